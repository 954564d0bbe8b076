//! Objects: what the catalogue shows, what sessions made, and what can be read of either.

mod catalogue;
mod change;
mod entry;
mod find;
mod local;
mod numbers;
mod store;
pub mod template;

pub(crate) use local::complete as complete_here;
pub(crate) use template::is_token;

pub use catalogue::Catalogue;
pub use entry::{Entry, Home, Value};
pub use store::Objects;
