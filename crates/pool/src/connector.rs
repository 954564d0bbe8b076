//! How a seat gets its token.

use hsmux_token::{Result, Token};
use std::sync::Arc;

/// Makes the connection of one seat: loads a module or starts a worker, and logs in.
pub trait Connector: Send + Sync {
    /// Blocks for as long as the vendor's module takes; called on a thread of its own, again after
    /// each loss. A PIN that was refused is never sent twice: the second call says so.
    fn connect(&self) -> Result<Arc<dyn Token>>;
}
