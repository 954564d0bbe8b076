//! Trails in a folder, by the crate's public face.

mod full;
mod rig;
mod runs;
mod torn;
