//! A token at the other end of sockets: a worker process.

mod board;

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{Batch, Error, Kind, Result, Snapshot, Token, TokenInfo};
use parking_lot::Mutex;
use rustix::event::epoll::EventFlags;

use crate::connection::{Broken, Connection};
use crate::frame::{self, FrameBuffer, MAX_FRAME};
use crate::outlet::Outlet;
use crate::reactor::{Reactor, Source, Watch};
use crate::{Answer, Call, socket};
use board::{Board, Load, Lost};

/// Reading all objects of a slow card takes seconds; longer than this is a hang.
const OBJECTS_WITHIN: Duration = Duration::from_secs(120);

/// The tag of [`Keeper::ended`]; lanes are numbered from 0.
const PEER: u16 = u16::MAX;

/// Knows what stands behind the lanes, and what became of it when they end.
pub trait Keeper: Send + Sync {
    /// Turns readable when the peer has ended (a pidfd); `None` when the lanes are all there is.
    fn ended(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Nobody needs the peer any more: it may finish what it is doing. Does not wait.
    fn release(&self) {}

    /// Ends the peer now. Does not wait.
    fn kill(&self) {}

    /// What became of it, for the error: `died by signal 11`. Called once, when it has ended.
    fn fate(&self) -> String {
        "closed the connection".into()
    }
}

/// Nothing is known of the peer but its lanes.
impl Keeper for () {}

/// What a [`RemoteToken`] is made of.
pub struct Link {
    /// Who it is, for errors: `the worker of hsm1`.
    pub name: String,
    /// What the token says of itself.
    pub info: TokenInfo,
    /// The frame version agreed.
    pub version: u16,
    /// One operation runs on each at a time; at most 65,000.
    pub lanes: Vec<UnixStream>,
    /// For reading objects, so that this takes no lane.
    pub admin: UnixStream,
    /// How many of the operations that wait together may travel in one frame: above 1 they run one
    /// after the other, even when another lane comes free.
    pub max_batch: usize,
    /// What stands behind the lanes.
    pub keeper: Box<dyn Keeper>,
}

/// A token at the other end of some lanes.
///
/// An operation is written at once, on the caller's thread, to a lane that is free; when none is,
/// it waits here. Answers are read by the reactor, and `done` runs there.
pub struct RemoteToken {
    shared: Arc<Shared>,
    reactor: Arc<Reactor>,
}

struct Shared {
    watch: Watch,
    name: String,
    info: Arc<TokenInfo>,
    version: u16,
    lanes: Box<[Lane]>,
    admin: Mutex<Connection>,
    keeper: Box<dyn Keeper>,
    board: Mutex<Board>,
}

struct Lane {
    outlet: Outlet,
    inbox: Mutex<FrameBuffer>,
}

impl RemoteToken {
    /// Takes the link into service.
    pub fn start(reactor: Arc<Reactor>, link: Link) -> Result<Arc<Self>> {
        let lane = |(tag, stream)| Lane {
            outlet: Outlet::new(stream, tag),
            inbox: Mutex::default(),
        };
        let shared = reactor.adopt(|watch| Shared {
            watch,
            board: Mutex::new(Board::new(link.lanes.len(), link.max_batch)),
            name: link.name,
            info: Arc::new(link.info),
            version: link.version,
            lanes: (0..PEER).zip(link.lanes).map(lane).collect(),
            admin: Mutex::new(Connection::new(link.admin)),
            keeper: link.keeper,
        });
        let token = Arc::new(Self { shared, reactor });
        token.shared.watch_all().map_err(|error| {
            Error::token(Kind::Environment, format!("cannot watch a lane: {error}"))
        })?;
        Ok(token)
    }

    /// The reactor that it lives on.
    pub fn reactor(&self) -> &Arc<Reactor> {
        &self.reactor
    }
}

impl Token for RemoteToken {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::clone(&self.shared.info)
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        let mut admin = self.shared.admin.lock();
        if let Some(lost) = self.shared.board.lock().lost() {
            return Err(lost);
        }
        let deadline = Instant::now() + OBJECTS_WITHIN;
        let failed = |broken: Broken| {
            Error::lost(format!(
                "{}: reading its objects: {broken}",
                self.shared.name
            ))
        };
        let frame = admin
            .exchange(&Call::Objects, Some(deadline))
            .map_err(failed)?;
        match frame::decode_reply(self.shared.version, &frame.into())?.answer {
            Answer::Objects(snapshot) => Ok(Arc::new(snapshot)),
            Answer::Failed(error) => Err(error),
            other => Err(Error::protocol(format!("expected objects, got {other:?}"))),
        }
    }

    fn submit(&self, batch: Batch) {
        self.shared.submit(batch);
    }

    fn on_lost(&self, lost: Box<dyn FnOnce(Error) + Send>) {
        let already = self.shared.board.lock().on_lost(lost);
        if let Some((lost, error)) = already {
            lost(error);
        }
    }

    fn abort(&self, reason: &str) {
        self.shared.keeper.kill();
        let error = Error::lost(format!("{} was ended: {reason}", self.shared.name));
        self.shared.finish(error);
    }
}

impl Drop for RemoteToken {
    fn drop(&mut self) {
        self.shared.board.lock().forget_listeners();
        let error = Error::lost(format!("{} was let go", self.shared.name));
        self.shared.finish(error);
        self.shared.keeper.release();
    }
}

impl Shared {
    fn watch_all(&self) -> std::io::Result<()> {
        for (tag, lane) in (0..PEER).zip(&self.lanes) {
            self.watch.add(tag, lane.outlet.stream())?;
        }
        match self.keeper.ended() {
            Some(ended) => self.watch.add(PEER, ended),
            None => Ok(()),
        }
    }

    fn submit(&self, batch: Batch) {
        let admitted = self.board.lock().admit(batch);
        match admitted {
            Ok(None) => {}
            Ok(Some(wake_at)) => self.watch.wake_at(wake_at),
            Err((error, batch)) => {
                for request in batch {
                    request.done.complete(Err(error.clone()));
                }
            }
        }
        loop {
            let next = self.board.lock().next_load();
            let Some(load) = next else { return };
            self.carry(load);
        }
    }

    /// Writes a frame to its lane.
    fn carry(&self, load: Load) {
        let lane = &self.lanes[usize::from(load.lane)];
        let call = Call::Execute(load.items);
        let mut encoded = Ok(());
        let sent = lane
            .outlet
            .send(&self.watch, |out| encoded = frame::encode(&call, out));
        if let Err(error) = encoded {
            // Nothing was written: the lane is as it was.
            self.deliver(load.lane, Err(error));
        } else if let Err(error) = sent {
            self.lose(&error.to_string());
        }
    }

    fn read(&self, tag: u16, scratch: &mut [u8]) {
        let lane = &self.lanes[usize::from(tag)];
        let mut inbox = lane.inbox.lock();
        match socket::read_some(lane.outlet.stream(), scratch) {
            Ok(0) => return self.lose("closed a lane"),
            Ok(read) => inbox.extend(&scratch[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(error) => return self.lose(&error.to_string()),
        }
        loop {
            match inbox.next(MAX_FRAME) {
                Ok(None) => return,
                Ok(Some(frame)) => self.hear(tag, frame),
                Err(error) => return self.lose(&error.to_string()),
            }
        }
    }

    fn hear(&self, tag: u16, frame: Vec<u8>) {
        let answer = frame::decode_reply(self.version, &frame.into()).map(|reply| reply.answer);
        match answer {
            Ok(Answer::Results(results)) => self.deliver(tag, Ok(results)),
            Ok(Answer::Failed(error)) => self.deliver(tag, Err(error)),
            Ok(other) => self.lose(&format!("answered out of turn: {other:?}")),
            Err(error) => self.lose(&error.to_string()),
        }
    }

    /// Gives the lane its next load before anyone is told: no lane idles while a request waits.
    fn deliver(&self, lane: u16, results: board::Results) {
        let mut board = self.board.lock();
        let told = board.take_answered(lane, results);
        let next = board.next_load();
        drop(board);
        if let Some(load) = next {
            self.carry(load);
        }
        match told {
            Ok(told) => told.into_iter().for_each(board::Told::tell),
            Err(reason) => self.lose(&reason),
        }
    }

    /// The link is broken. Where a process stands behind it, its fate is awaited, which the
    /// kernel tells in a moment; the requests fail with that.
    fn lose(&self, reason: &str) {
        let error = Error::lost(format!("{}: {reason}", self.name));
        if self.keeper.ended().is_none() {
            return self.finish(error);
        }
        self.board.lock().close(error);
        self.unwatch_lanes();
        self.keeper.kill();
    }

    /// Fails everything with the error, and later requests too.
    fn finish(&self, error: Error) {
        let Some(Lost {
            outstanding,
            listeners,
        }) = self.board.lock().finish(error.clone())
        else {
            return;
        };
        self.unwatch_lanes();
        for lane in &self.lanes {
            let _ = lane.outlet.stream().shutdown(std::net::Shutdown::Both);
        }
        if self.keeper.ended().is_none() {
            self.watch.end();
        }
        outstanding.into_iter().for_each(board::Told::tell);
        for listener in listeners {
            listener(error.clone());
        }
    }

    fn peer_ended(&self) {
        let fate = self.keeper.fate();
        let during = self.board.lock().running_call();
        let during = during.map_or(String::new(), |call| format!(" in {call}"));
        tracing::debug!(name = self.name, fate, "ended");
        if let Some(ended) = self.keeper.ended() {
            self.watch.remove(ended);
        }
        self.finish(Error::lost(format!("{} {fate}{during}", self.name)));
        self.watch.end();
    }

    fn unwatch_lanes(&self) {
        for lane in &self.lanes {
            self.watch.remove(lane.outlet.stream());
        }
    }
}

impl Source for Shared {
    fn ready(self: Arc<Self>, tag: u16, ready: EventFlags, scratch: &mut [u8]) {
        if tag == PEER {
            return self.peer_ended();
        }
        let lane = &self.lanes[usize::from(tag)];
        if ready.contains(EventFlags::OUT) {
            if let Err(error) = lane.outlet.flush(&self.watch) {
                return self.lose(&error.to_string());
            }
        }
        if ready.intersects(!EventFlags::OUT) {
            self.read(tag, scratch);
        }
    }

    fn expired(self: Arc<Self>, now: Instant) -> Option<Instant> {
        let (late, next) = self.board.lock().expire(now);
        late.into_iter().for_each(board::Told::tell);
        next
    }

    fn abandoned(self: Arc<Self>) {
        self.finish(Error::lost(format!(
            "{}: its reactor has stopped",
            self.name
        )));
        self.keeper.release();
    }
}
