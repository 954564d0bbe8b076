//! The part of a [`RemoteToken`](super::RemoteToken) that the reactor knows.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use hsmux_token::fork::Unshared;
use hsmux_token::sync::Mutex;
use hsmux_token::{Batch, Error, TokenInfo};
use rustix::event::epoll::EventFlags;

use super::board::{self, Board, Load, Lost};
use super::{Keeper, Link};
use crate::connection::Connection;
use crate::cork::{self, Corked};
use crate::frame::{self, FrameBuffer, MAX_FRAME};
use crate::outlet::Outlet;
use crate::reactor::{Source, Watch};
use crate::wipe::wipe;
use crate::{Answer, Call, socket};

/// The tag of [`Keeper::ended`]; lanes are numbered from 0.
const PEER: u16 = u16::MAX;

pub(super) struct Shared {
    watch: Watch,
    pub name: String,
    pub info: Arc<TokenInfo>,
    pub version: u16,
    lanes: Box<[Lane]>,
    pub admin: Option<Admin>,
    pub keeper: Box<dyn Keeper>,
    pub board: Mutex<Board>,
    /// Held from the choice of a lane until its frame is written: answers come without a number, in
    /// the order of the frames. Locked before the board, never while somebody is told something.
    writing: Mutex<()>,
}

/// The connection for everything but operations.
pub(super) struct Admin {
    pub connection: Mutex<Connection>,
    /// The same socket, to end it while a thread waits for its answer.
    hang_up: Unshared<UnixStream>,
}

impl Admin {
    pub fn new(stream: Unshared<UnixStream>) -> std::io::Result<Self> {
        Ok(Self {
            hang_up: Unshared::make(|| stream.try_clone())?,
            connection: Mutex::new(Connection::new(stream)),
        })
    }
}

/// Why a frame was not written.
enum Unwritten {
    /// It cannot be: these are told so. The lane is as it was.
    Malformed(Vec<board::Told>),
    /// The link is broken.
    Broken(String),
}

struct Lane {
    outlet: Outlet,
    inbox: Mutex<FrameBuffer>,
}

impl Shared {
    pub fn new(watch: Watch, link: Link, admin: Option<Admin>) -> Self {
        let lane = |(tag, stream)| Lane {
            outlet: Outlet::new(stream, tag),
            inbox: Mutex::default(),
        };
        Self {
            watch,
            board: Mutex::new(Board::new(link.lanes.len(), link.depth)),
            name: link.name,
            info: Arc::new(link.info),
            version: link.version,
            lanes: (0..PEER).zip(link.lanes).map(lane).collect(),
            admin,
            keeper: link.keeper,
            writing: Mutex::default(),
        }
    }

    pub fn watch_all(&self) -> std::io::Result<()> {
        for (tag, lane) in (0..PEER).zip(&self.lanes) {
            self.watch.add(tag, lane.outlet.stream())?;
        }
        match self.keeper.ended() {
            Some(ended) => self.watch.add(PEER, ended),
            None => Ok(()),
        }
    }

    pub fn submit(self: &Arc<Self>, mut batch: Batch) {
        let mut board = self.board.lock();
        let admitted = board.admit(&mut batch);
        let idle = board.has_idle_lane();
        drop(board);
        match admitted {
            Ok(None) => {}
            Ok(Some(at)) => self.watch.wake_at(at),
            Err(error) => {
                for request in batch {
                    request.done.complete(Err(error.clone()));
                }
                return;
            }
        }
        if idle || !cork::put_off(self) {
            self.load_lanes();
        }
    }

    /// Writes all that waits and has a lane.
    fn load_lanes(&self) {
        while let Err(unwritten) = self.write_loads() {
            match unwritten {
                Unwritten::Malformed(told) => told.into_iter().for_each(board::Told::tell),
                Unwritten::Broken(reason) => return self.lose(&reason),
            }
        }
    }

    fn write_loads(&self) -> Result<(), Unwritten> {
        let _order = self.writing.lock();
        loop {
            let next = self.board.lock().next_load();
            let Some(load) = next else { return Ok(()) };
            self.carry(load)?;
        }
    }

    /// Writes a frame to its lane.
    fn carry(&self, load: Load) -> Result<(), Unwritten> {
        let lane = &self.lanes[usize::from(load.lane)];
        self.watch.begun();
        let call = Call::Execute(load.items);
        let mut encoded = Ok(());
        let sent = lane
            .outlet
            .send(&self.watch, |out| encoded = frame::encode(&call, out));
        if let Err(error) = encoded {
            let mut board = self.board.lock();
            self.watch.ended(usize::from(board.carries(load.lane)));
            return Err(Unwritten::Malformed(board.take_back(load.lane, &error)));
        }
        sent.map(drop)
            .map_err(|error| Unwritten::Broken(error.to_string()))
    }

    fn read(self: &Arc<Self>, tag: u16, scratch: &mut [u8]) {
        let lane = &self.lanes[usize::from(tag)];
        let mut inbox = lane.inbox.lock();
        match socket::read_some(lane.outlet.stream(), scratch) {
            Ok(0) => return self.lose("closed a lane"),
            Ok(read) => {
                inbox.extend(&scratch[..read]);
                wipe(&mut scratch[..read]);
            }
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

    fn hear(self: &Arc<Self>, tag: u16, frame: Vec<u8>) {
        let answer = frame::decode_reply(self.version, &frame.into()).map(|reply| reply.answer);
        match answer {
            Ok(Answer::Results(results)) => self.deliver(tag, Ok(results)),
            Ok(Answer::Failed(error)) => self.deliver(tag, Err(error)),
            Ok(other) => self.lose(&format!("answered out of turn: {other:?}")),
            Err(error) => self.lose(&error.to_string()),
        }
    }

    /// Gives an idle lane its next load before anyone is told: none idles while a request waits.
    fn deliver(self: &Arc<Self>, lane: u16, results: board::Results) {
        let mut board = self.board.lock();
        self.watch.ended(usize::from(board.carries(lane)));
        let told = board.take_answered(lane, results);
        let idle = board.has_idle_lane();
        drop(board);
        if idle || !cork::put_off(self) {
            self.load_lanes();
        }
        match told {
            Ok(told) => told.into_iter().for_each(board::Told::tell),
            Err(reason) => self.lose(&reason),
        }
    }

    /// Handles a broken link. If the peer is a process, it is killed, and the requests fail with its fate once the kernel
    /// reports that.
    pub fn lose(&self, reason: &str) {
        let error = Error::lost(format!("{}: {reason}", self.name));
        if self.keeper.ended().is_none() {
            return self.finish(&error);
        }
        self.board.lock().close(error);
        self.unwatch_lanes();
        self.keeper.kill();
    }

    /// Fails everything with the error, and later requests too.
    pub fn finish(&self, error: &Error) {
        let Some(Lost {
            frames,
            outstanding,
            listeners,
        }) = self.board.lock().finish(error)
        else {
            return;
        };
        self.watch.ended(frames);
        self.unwatch_lanes();
        for lane in &self.lanes {
            let _ = lane.outlet.stream().shutdown(Shutdown::Both);
        }
        if let Some(admin) = &self.admin {
            let _ = admin.hang_up.shutdown(Shutdown::Both);
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
        self.finish(&Error::lost(format!("{} {fate}{during}", self.name)));
        self.watch.end();
    }

    fn unwatch_lanes(&self) {
        for lane in &self.lanes {
            self.watch.remove(lane.outlet.stream());
        }
    }
}

impl Corked for Shared {
    fn uncork(&self) {
        self.load_lanes();
    }
}

impl Source for Shared {
    fn ready(self: Arc<Self>, tag: u16, ready: EventFlags, scratch: &mut [u8]) {
        if tag == PEER {
            return self.peer_ended();
        }
        let lane = &self.lanes[usize::from(tag)];
        if ready.contains(EventFlags::OUT)
            && let Err(error) = lane.outlet.flush(&self.watch, || ())
        {
            return self.lose(&error.to_string());
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
        let error = format!("{}: its reactor has stopped", self.name);
        self.finish(&Error::lost(error));
        self.keeper.release();
    }
}
