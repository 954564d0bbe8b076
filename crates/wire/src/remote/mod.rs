//! A token at the other end of sockets: a worker process.

mod direct;
mod lane_table;
mod link;
mod link_state;
mod recent;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use hsmux_token::sync::Mutex;
use hsmux_token::{
    Batch, Blob, DirectConnection, Error, Estimate, Kind, ObjectChanges, ObjectId, Operation,
    OperationPace, Outcome, Result, Snapshot, Token, TokenInfo,
};

use crate::connection::Connection;
use crate::reactor::Reactor;
use crate::{Answer, Call, KNOWS_BEGIN, KNOWS_WITHDRAW, frame};
use direct::DirectTokens;
pub use link::{Link, PeerProcess};
use link_state::{Admin, LinkState};
pub use recent::RecentTokens;

/// Reading all objects of a slow card takes seconds; longer than this is a hang.
const OBJECTS_WITHIN: Duration = Duration::from_secs(120);

/// How long the kernel may take to tell what became of a process.
const FATE_WITHIN: Duration = Duration::from_secs(1);

/// A token at the other end of some lanes.
///
/// An operation is written at once, on the caller's thread, to a lane that is free; when none is,
/// it waits here. Answers are read by the reactor, and `done` runs there.
pub struct RemoteToken {
    state: Arc<LinkState>,
    reactor: Arc<Reactor>,
    objects_within: Duration,
    direct: Arc<DirectTokens>,
}

impl RemoteToken {
    /// Takes the link into service.
    pub fn start(reactor: Arc<Reactor>, mut link: Link) -> Result<Arc<Self>> {
        let failed =
            |error| Error::token(Kind::Environment, format!("cannot watch a lane: {error}"));
        let admin = link.admin.take().map(Admin::new);
        let admin = admin.transpose().map_err(failed)?;
        let state = reactor.adopt(|watch| LinkState::new(watch, link, admin));
        let token = Arc::new(Self {
            state,
            reactor,
            objects_within: OBJECTS_WITHIN,
            direct: Arc::default(),
        });
        token.state.watch_all().map_err(failed)?;
        Ok(token)
    }

    /// Asks over the administration's socket, in turn.
    fn ask(&self, call: &Call) -> Result<Answer> {
        let admin = self.admin()?;
        self.ask_over(&mut admin.lock(), call)
    }

    fn admin(&self) -> Result<&Mutex<Connection>> {
        let admin = self.state.admin.as_ref().ok_or_else(|| {
            let message = format!("{} serves uses of keys only", self.state.name);
            Error::request(Kind::Unsupported, message)
        })?;
        Ok(&admin.connection)
    }

    fn ask_over(&self, admin: &mut Connection, call: &Call) -> Result<Answer> {
        if let Some(lost) = self.state.table.lock().lost() {
            return Err(lost);
        }
        let deadline = Instant::now() + self.objects_within;
        let frame = match admin.exchange(call, Some(deadline)) {
            Ok(frame) => frame,
            Err(broken) if broken.is_late() => {
                self.abort(&format!("{} takes too long", call.name()));
                return Err(self.verdict(call));
            }
            Err(broken) => {
                self.state.lose(&broken.to_string());
                return Err(self.verdict(call));
            }
        };
        match frame::decode_reply(self.state.version, &frame.into())?.answer {
            Answer::Failed(error) => Err(error),
            answer => Ok(answer),
        }
    }

    /// True if its connections have ended.
    pub fn is_lost(&self) -> bool {
        self.state.table.lock().lost().is_some()
    }

    /// Cancels a request that still waits for a lane here ([`hsmux_token::Behalf::request`]). False if none does.
    pub fn withdraw_waiting(&self, request: u64) -> bool {
        let waiting = self.state.table.lock().withdraw(request);
        let Some(waiting) = waiting else { return false };
        let error = Error::request(Kind::Deadline, "the caller has gone away");
        waiting.done.complete(Err(error));
        true
    }

    /// Cancels requests that wait at a daemon ([`hsmux_token::Behalf::request`]). Blocks.
    pub fn withdraw(&self, requests: Vec<u64>) -> Result<()> {
        if self.state.version < KNOWS_WITHDRAW {
            return Ok(());
        }
        match self.ask(&Call::Withdraw(requests))? {
            Answer::Done => Ok(()),
            other => Err(unexpected("the withdrawal", &other)),
        }
    }

    /// The daemon's readings ([`Call::Readings`]). Blocks.
    pub fn readings(&self) -> Result<Blob> {
        if self.state.version < KNOWS_WITHDRAW {
            let message = "the daemon is older than this service: systemctl restart hsmux";
            return Err(Error::request(Kind::Unsupported, message));
        }
        match self.ask(&Call::Readings)? {
            Answer::Readings(json) => Ok(json),
            other => Err(unexpected("readings", &other)),
        }
    }

    /// Asks the token for its information again. A pool's changes when it gets more members. Blocks.
    pub fn inquire(&self) -> Result<TokenInfo> {
        match self.ask(&Call::Info)? {
            Answer::Info(info) => Ok(info),
            other => Err(unexpected("what the token is", &other)),
        }
    }

    /// Returns the expected wait of a use of each key, if the token is a pool that tells this client. Blocks.
    pub fn estimates(&self, keys: Vec<ObjectId>) -> Result<Vec<Estimate>> {
        let count = keys.len();
        match self.ask(&Call::Estimates(keys))? {
            Answer::Estimates(estimates) if estimates.len() == count => Ok(estimates),
            other => Err(unexpected("an estimate for each key", &other)),
        }
    }

    /// What became of the peer, once that is known.
    fn verdict(&self, call: &Call) -> Error {
        let (tell, told) = mpsc::channel();
        self.on_lost(Box::new(move |error| drop(tell.send(error))));
        told.recv_timeout(FATE_WITHIN)
            .unwrap_or_else(|_| Error::lost(format!("{} is gone", self.state.name)))
            .at(call.name())
    }

    /// The reactor that it lives on.
    pub fn reactor(&self) -> &Arc<Reactor> {
        &self.reactor
    }
}

impl Token for RemoteToken {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::clone(&self.state.info)
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        match self.ask(&Call::Objects)? {
            Answer::Objects(snapshot) => Ok(Arc::new(snapshot)),
            other => Err(unexpected("objects", &other)),
        }
    }

    fn look(&self) -> Result<ObjectChanges> {
        match self.ask(&Call::Look)? {
            Answer::Seen(seen) => Ok(seen),
            other => Err(unexpected("what was seen", &other)),
        }
    }

    /// Nothing while somebody reads the objects, which may take long.
    fn pace(&self) -> Vec<OperationPace> {
        let admin = self.admin().ok().and_then(Mutex::try_lock);
        let Some(mut admin) = admin else {
            return Vec::new();
        };
        match self.ask_over(&mut admin, &Call::Pace) {
            Ok(Answer::Pace(pace)) => pace,
            // That the worker has ended is told otherwise.
            _ => Vec::new(),
        }
    }

    fn submit(&self, mut batch: Batch) {
        if self.state.version < KNOWS_BEGIN {
            batch = without_begin(batch);
        }
        let batch = self.direct.submit(batch, &self.state);
        if !batch.is_empty() {
            self.state.submit(batch);
        }
    }

    fn on_lost(&self, lost: Box<dyn FnOnce(Error) + Send>) {
        let already = self.state.table.lock().on_lost(lost);
        if let Some((lost, error)) = already {
            lost(error);
        }
    }

    fn hand_over(&self, connection: &DirectConnection<'_>) -> Result<()> {
        self.state.peer.hand_over(connection).map_err(|error| {
            let message = format!("{} takes no connection over: {error}", self.state.name);
            Error::request(Kind::Unsupported, message)
        })
    }

    fn takes_connections(&self) -> bool {
        self.state.peer.takes_connections()
    }

    fn served_directly(&self) -> u64 {
        self.state.peer.served_directly()
    }

    fn process(&self) -> Option<u32> {
        self.state.peer.process()
    }

    fn abort(&self, reason: &str) {
        let error = Error::lost(format!("{} was ended: {reason}", self.state.name));
        // First, so that the requests fail with the reason and not with its consequence.
        self.state.finish(&error);
        self.state.peer.kill();
    }
}

impl Drop for RemoteToken {
    fn drop(&mut self) {
        self.direct.end();
        self.state.table.lock().forget_listeners();
        let error = Error::lost(format!("{} was let go", self.state.name));
        self.state.finish(&error);
        self.state.peer.release();
    }
}

/// A peer that does not know [`Operation::Begin`] says at the step that follows what it refuses.
fn without_begin(batch: Batch) -> Batch {
    let (unknown, known): (Batch, Batch) = batch
        .into_iter()
        .partition(|request| matches!(request.operation, Operation::Begin { .. }));
    for request in unknown {
        request.done.complete(Ok(Outcome::Done));
    }
    known
}

fn unexpected(wanted: &str, answer: &Answer) -> Error {
    Error::protocol(format!("expected {wanted}, got {answer:?}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::VERSION;

    /// Notes that the worker is killed.
    struct Killed(Arc<AtomicBool>);

    impl PeerProcess for Killed {
        fn kill(&self) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn a_worker_that_does_not_answer_with_its_objects_is_killed() {
        let (lane, _lane) = UnixStream::pair().unwrap();
        let (admin, _admin) = UnixStream::pair().unwrap();
        let killed = Arc::new(AtomicBool::new(false));
        let link = Link {
            name: "the worker of test".into(),
            info: TokenInfo::default(),
            version: VERSION,
            lanes: vec![lane.into()],
            admin: Some(admin.into()),
            depth: 1,
            one_frame: false,
            peer: Box::new(Killed(Arc::clone(&killed))),
        };
        let mut token = RemoteToken::start(Reactor::start().unwrap(), link).unwrap();
        let token = Arc::get_mut(&mut token).unwrap();
        assert_eq!(token.objects_within, Duration::from_secs(120));
        token.objects_within = Duration::from_millis(10);
        let error = token.objects().unwrap_err().to_string();
        assert!(error.contains("takes too long"), "{error}");
        assert!(killed.load(Ordering::Acquire));
    }
}
