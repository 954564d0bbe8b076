//! The broker over real tokens, as its clients see it.

mod hvac;
mod requests;
mod restarts;
mod rig;
