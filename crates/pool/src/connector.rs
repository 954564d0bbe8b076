//! How a seat gets its token, and what the pool knows of a seat beforehand.

use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{Result, Token, TokenInfo};

/// Makes the connection of one seat: loads a module or starts a worker, and logs in.
pub trait Connector: Send + Sync {
    /// Blocks for as long as the vendor's module takes; called on a thread of its own, again after
    /// each loss. A PIN that was refused is never sent twice: the second call says so.
    fn connect(&self) -> Result<Arc<dyn Token>>;

    /// A connection that is to serve in place of one that serves, and remembers nothing of what that one's module has
    /// seen. Only asked for where [`Care::replace`] says so.
    fn connect_afresh(&self, _serving: &TokenInfo) -> Result<Arc<dyn Token>> {
        self.connect()
    }

    /// How the pool looks after the member while it serves.
    fn care(&self) -> Care {
        Care::default()
    }

    /// Whether the token is another host's: it is used like the pool's own, but changes of objects leave
    /// it alone, and it is not offered to other hosts.
    fn remote(&self) -> bool {
        false
    }

    /// Whether its secret keys serve though those of a member before it are not there to compare them with.
    fn trusted(&self) -> bool {
        false
    }

    /// Whether its replicas serve without a proof: the token is the pool that has this process as a service, and has
    /// proved them.
    fn vouches(&self) -> bool {
        false
    }

    /// Whether the token can do more, or other things, than it could when it was connected last: a fresh
    /// connection is to take over then. Blocks; only asked for where [`Care::look`] says so.
    fn outgrown(&self) -> Result<bool> {
        Ok(false)
    }

    /// A connection beside those that serve, to look at the token: [`Token::look`]. Only asked for
    /// where [`Care::look`] says so.
    fn scout(&self) -> Result<Arc<dyn Token>> {
        self.connect()
    }
}

/// How the pool looks after a member while it serves: by default not at all.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Care {
    /// Keys that others add or remove are looked for, all the time.
    pub look: bool,
    /// A connection that has become slow, or does not see what others have added, is replaced by a
    /// fresh one: [`Connector::connect_afresh`] is called while the old one serves.
    pub replace: bool,
    /// The same of a token that can leave its slot: a card has one login and one reader, which a second
    /// process would share.
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
