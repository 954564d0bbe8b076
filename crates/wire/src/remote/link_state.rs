//! The part of a [`RemoteToken`](super::RemoteToken) that the reactor knows.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use hsmux_token::fork::Unshared;
use hsmux_token::sync::Mutex;
use hsmux_token::{Batch, Error, TokenInfo};
use rustix::event::epoll::EventFlags;

use super::lane_table::{self, LaneFrame, LaneTable, Lost};
use super::{Link, PeerProcess};
use crate::connection::Connection;
use crate::frame::{self, FrameBuffer, MAX_FRAME};
use crate::outlet::Outlet;
use crate::reactor::{Source, Watch};
use crate::wipe::wipe;
use crate::{Answer, Call, socket};

/// The tag of [`PeerProcess::ended`]; lanes are numbered from 0.
const PEER: u16 = u16::MAX;

/// A link's lanes, its peer, and the requests on them.
pub(super) struct LinkState {
    watch: Watch,
    pub name: String,
    pub info: Arc<TokenInfo>,
    pub version: u16,
    lanes: Box<[Lane]>,
    pub admin: Option<Admin>,
    pub peer: Box<dyn PeerProcess>,
    pub table: Mutex<LaneTable>,
    /// Held from the choice of a lane until its frame is written: answers come without a number, in
    /// the order of the frames. Locked before the table, never while somebody is told something.
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
    Malformed(Vec<lane_table::Completion>),
    /// The link is broken.
    Broken(String),
}

struct Lane {
    outlet: Outlet,
    inbox: Mutex<FrameBuffer>,
}

impl LinkState {
    pub fn new(watch: Watch, link: Link, admin: Option<Admin>) -> Self {
        let lane = |(tag, stream)| Lane {
            outlet: Outlet::new(stream, tag),
            inbox: Mutex::default(),
        };
        Self {
            watch,
            table: Mutex::new(LaneTable::new(link.lanes.len(), link.depth, link.one_frame)),
            name: link.name,
            info: Arc::new(link.info),
            version: link.version,
            lanes: (0..PEER).zip(link.lanes).map(lane).collect(),
            admin,
            peer: link.peer,
            writing: Mutex::default(),
        }
    }

    pub fn watch_all(&self) -> std::io::Result<()> {
        for (tag, lane) in (0..PEER).zip(&self.lanes) {
            self.watch.add(tag, lane.outlet.stream())?;
        }
        match self.peer.ended() {
            Some(ended) => self.watch.add(PEER, ended),
            None => Ok(()),
        }
    }

    pub fn submit(self: &Arc<Self>, mut batch: Batch) {
        let mut table = self.table.lock();
        let admitted = table.admit(&mut batch);
        drop(table);
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
        self.write_frames();
    }

    /// Writes all that waits and has a lane.
    fn write_frames(&self) {
        while let Err(unwritten) = self.write_waiting() {
            match unwritten {
                Unwritten::Malformed(completions) => completions
                    .into_iter()
                    .for_each(lane_table::Completion::run),
                Unwritten::Broken(reason) => return self.lose(&reason),
            }
        }
    }

    fn write_waiting(&self) -> Result<(), Unwritten> {
        let _order = self.writing.lock();
        loop {
            let mut table = self.table.lock();
            let Some(frame) = table.next_frame() else {
                let look = table.look_again();
                drop(table);
                if let Some(at) = look {
                    self.watch.wake_at(at);
                }
                return Ok(());
            };
            drop(table);
            self.carry(frame)?;
        }
    }

    /// Writes a frame to its lane.
    fn carry(&self, frame: LaneFrame) -> Result<(), Unwritten> {
        let lane = &self.lanes[usize::from(frame.lane)];
        self.watch.begun();
        let call = Call::Execute(frame.items);
        let mut encoded = Ok(());
        let sent = lane
            .outlet
            .send(&self.watch, |out| encoded = frame::encode(&call, out));
        if let Err(error) = encoded {
            let mut table = self.table.lock();
            self.watch.ended(usize::from(table.carries(frame.lane)));
            return Err(Unwritten::Malformed(table.take_back(frame.lane, &error)));
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

    /// Gives an idle lane its next frame before anyone is told: none idles while a request waits.
    fn deliver(self: &Arc<Self>, lane: u16, results: lane_table::Results) {
        let mut table = self.table.lock();
        self.watch.ended(usize::from(table.carries(lane)));
        let completions = table.take_answered(lane, results);
        drop(table);
        self.write_frames();
        match completions {
            Ok(completions) => completions
                .into_iter()
                .for_each(lane_table::Completion::run),
            Err(reason) => self.lose(&reason),
        }
    }

    /// Handles a broken link. If the peer is a process, it is killed, and the requests fail with its fate once the kernel
    /// reports that.
    pub fn lose(&self, reason: &str) {
        let error = Error::lost(format!("{}: {reason}", self.name));
        if self.peer.ended().is_none() {
            return self.finish(&error);
        }
        self.table.lock().close(error);
        self.unwatch_lanes();
        self.peer.kill();
    }

    /// Fails everything with the error, and later requests too.
    pub fn finish(&self, error: &Error) {
        let Some(Lost {
            frames,
            outstanding,
            listeners,
        }) = self.table.lock().finish(error)
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
        if self.peer.ended().is_none() {
            self.watch.end();
        }
        outstanding
            .into_iter()
            .for_each(lane_table::Completion::run);
        for listener in listeners {
            listener(error.clone());
        }
    }

    fn peer_ended(&self) {
        let fate = self.peer.fate();
        let during = self.table.lock().running_call();
        let during = during.map_or(String::new(), |call| format!(" in {call}"));
        tracing::debug!(name = self.name, fate, "ended");
        if let Some(ended) = self.peer.ended() {
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

impl Source for LinkState {
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
        let (late, next) = self.table.lock().expire(now);
        late.into_iter().for_each(lane_table::Completion::run);
        self.write_frames();
        next
    }

    fn abandoned(self: Arc<Self>) {
        let error = format!("{}: its reactor has stopped", self.name);
        self.finish(&Error::lost(error));
        self.peer.release();
    }
}
