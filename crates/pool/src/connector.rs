//! How a seat gets its token, and what the pool knows of a seat beforehand.

use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{Result, Token};

/// Makes the connection of one seat: loads a module or starts a worker, and logs in.
pub trait Connector: Send + Sync {
    /// Blocks for as long as the vendor's module takes; called on a thread of its own, again after
    /// each loss. A PIN that was refused is never sent twice: the second call says so.
    fn connect(&self) -> Result<Arc<dyn Token>>;

    /// How the pool looks after the member while it serves.
    fn care(&self) -> Care {
        Care::default()
    }

    /// True if the token is another host's: it is used like the pool's own, but changes of objects leave
    /// it alone, and it is not offered to other hosts.
    fn remote(&self) -> bool {
        false
    }

    /// True if the token's secret keys serve even while no earlier member can be compared with them.
    fn trusted(&self) -> bool {
        false
    }

    /// True if its replicas serve without a proof: the token is the daemon's pool, which has proved them.
    fn vouches(&self) -> bool {
        false
    }

    /// True if the token can do other things than at its last connection. A fresh connection then takes over.
    /// Blocks. Called only with [`Care::look`].
    fn outgrown(&self) -> Result<bool> {
        Ok(false)
    }

    /// Cancels a request at the token, if it still waits there (`Behalf::request`). Never blocks.
    fn withdraw(&self, _request: u64) {}

    /// Opens a connection beside those that serve, for [`Token::look`]. Called only with [`Care::look`].
    fn connect_probe(&self) -> Result<Arc<dyn Token>> {
        self.connect()
    }
}

/// How the pool watches a member while it serves: by default not at all.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Care {
    /// Look for keys that others add or remove.
    pub look: bool,
    /// Replace a connection that has become slow, or does not see what others have added.
    /// [`Connector::connect`] is called while the old one serves.
    pub replace: bool,
    /// Watch also a token that can leave its slot. A card has one login and one reader, which a second process would
    /// share.
    pub cards: bool,
}

impl<F: Fn() -> Result<Arc<dyn Token>> + Send + Sync> Connector for F {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        self()
    }
}

/// One place where operations are served: a worker process, or a module in this process.
///
/// A fast token may have several seats; they share their `member`.
#[derive(Clone)]
pub struct Seat {
    /// Unique in the pool: `hsm1`, or `hsm1#2` for its second worker.
    pub name: String,
    /// The physical token: `hsm1`. Copies of a key are counted by members.
    pub member: String,
    /// Its share of the load against others of the same speed; 0 counts as 1.
    pub weight: u32,
    /// How long one operation may take on the token: when it has answered nothing for so long the connection
    /// is ended. Making a key may take ten times as long.
    pub timeout: Duration,
    /// Makes the connection.
    pub connector: Arc<dyn Connector>,
}
