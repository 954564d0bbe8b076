//! Connections of members in a pool that changes tokens: a member catches up before it serves. It does not show
//! deleted objects, and shows how its keys were made.

use std::sync::{Arc, Weak};
use std::time::Instant;

use hsmux_token::sync::Mutex;
use hsmux_token::{
    Batch, DirectConnection, Error, ObjectChanges, Operation, OperationPace, Outcome, Result,
    Snapshot, Token, TokenInfo,
};

use super::{PoolMember, Writer};
use hsmux_pool::{Care, Connector};

/// A seat's connector, behind which a token catches up.
pub(super) struct CatchUpConnector {
    member: String,
    connector: Arc<dyn Connector>,
    writer: Weak<Writer>,
}

impl CatchUpConnector {
    pub fn new(member: String, connector: Arc<dyn Connector>, writer: Weak<Writer>) -> Self {
        Self {
            member,
            connector,
            writer,
        }
    }
}

impl Connector for CatchUpConnector {
    fn care(&self) -> Care {
        self.connector.care()
    }

    fn trusted(&self) -> bool {
        self.connector.trusted()
    }

    fn outgrown(&self) -> Result<bool> {
        self.connector.outgrown()
    }

    /// It catches up by the connections that serve.
    fn connect_probe(&self) -> Result<Arc<dyn Token>> {
        Ok(Arc::new(MemberToken {
            token: self.connector.connect_probe()?,
            writer: Weak::clone(&self.writer),
            read: Mutex::default(),
        }))
    }

    fn connect(&self) -> Result<Arc<dyn Token>> {
        self.admit(self.connector.connect()?)
    }
}

impl CatchUpConnector {
    /// Lets a token in when it is up to date.
    fn admit(&self, mut token: Arc<dyn Token>) -> Result<Arc<dyn Token>> {
        let Some(writer) = self.writer.upgrade() else {
            return Ok(token);
        };
        let up_to_date = |token: &Arc<dyn Token>| {
            writer.bring_up_to_date(&PoolMember {
                name: self.member.clone(),
                token: Some(Arc::clone(token)),
            })
        };
        let mut told = up_to_date(&token);
        if told.as_ref().is_some_and(|told| told.unseen) {
            token.abort("its module has not seen what came to its token");
            token = self.connector.connect()?;
            told = up_to_date(&token);
        }
        let read = told.filter(|told| !told.unseen).map(|told| told.snapshot);
        Ok(Arc::new(MemberToken {
            token,
            writer: Weak::clone(&self.writer),
            read: Mutex::new(read),
        }))
    }
}

/// A token that shows its objects as the pool knows them.
struct MemberToken {
    token: Arc<dyn Token>,
    writer: Weak<Writer>,
    /// The objects read during catch-up, for the first caller that asks for them.
    read: Mutex<Option<Arc<Snapshot>>>,
}

impl Token for MemberToken {
    fn info(&self) -> Arc<TokenInfo> {
        self.token.info()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        let read = self.read.lock().take();
        let mut snapshot = read.map_or_else(|| self.token.objects(), Ok)?;
        if let Some(writer) = self.writer.upgrade() {
            writer.show(&mut Arc::make_mut(&mut snapshot).objects);
        }
        Ok(snapshot)
    }

    fn look(&self) -> Result<ObjectChanges> {
        let mut seen = self.token.look()?;
        if let Some(writer) = self.writer.upgrade().filter(|_| !seen.made.is_empty()) {
            writer.show(&mut seen.made);
        }
        Ok(seen)
    }

    fn pace(&self) -> Vec<OperationPace> {
        self.token.pace()
    }

    fn submit(&self, batch: Batch) {
        self.token.submit(batch);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        self.token.execute(operation, deadline)
    }

    fn on_lost(&self, lost: Box<dyn FnOnce(Error) + Send>) {
        self.token.on_lost(lost);
    }

    fn hand_over(&self, line: &DirectConnection<'_>) -> Result<()> {
        self.token.hand_over(line)
    }

    fn takes_connections(&self) -> bool {
        self.token.takes_connections()
    }

    fn served_directly(&self) -> u64 {
        self.token.served_directly()
    }

    fn process(&self) -> Option<u32> {
        self.token.process()
    }

    fn abort(&self, reason: &str) {
        self.token.abort(reason);
    }
}
