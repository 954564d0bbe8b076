//! The project itself: the borders between its crates, its documentation, what it installs.

mod attacks;
mod book;
mod borders;
mod demo;
mod docs;
mod install;
mod judges;
mod sbom;
