//! Objects: what the catalogue shows, what sessions made, and what can be read of either.

mod catalogue;
mod change;
mod entry;
mod find;
mod handles;
mod local;
mod store;
pub mod template;

pub(crate) use local::complete as complete_here;
pub(crate) use template::is_token;

pub use catalogue::CatalogueView;
pub use entry::{AttributeValue, ObjectEntry, ObjectLocation};
pub use store::Objects;
