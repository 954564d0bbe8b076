//! Connections of programs that workers serve themselves: where they go, and when that has to end.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Object, ObjectId, Result, ck};
use hsmux_wire::HandedOver;

use crate::catalogue::{Catalogue, Entry};
use crate::core::Core;
use crate::record::Connection;
use crate::seatset::SeatSet;
use crate::{Policy, Pool};

/// Those that are handed over.
#[derive(Default)]
pub(crate) struct Lines(Mutex<Vec<Line>>);

/// A connection, for uses of one key by one worker.
struct Line {
    key: ObjectId,
    /// As the key was shown when it was handed over.
    object: Arc<Object>,
    /// Seats that served it then: others are to have their share.
    serving: SeatSet,
    seat: usize,
    /// The worker's.
    generation: u64,
    handed: HandedOver,
}

/// So many connections of programs are served by one worker: each is a descriptor of that process.
const MOST: usize = 256;

impl Pool {
    /// Hands a program's connection over to a worker that serves the key, and whose work is short: then nobody
    /// stands between them. It ends as soon as the worker may serve the key no longer, for whatever reason, or the
    /// key is shown with other attributes.
    ///
    /// Whether the program may use the key is to be looked at before, and `handed` to be ended when it no
    /// longer may.
    pub fn hand_over(
        &self,
        key: ObjectId,
        connection: &UnixStream,
        version: u16,
        handed: HandedOver,
    ) -> Result<()> {
        let core = &self.core;
        let catalogue = core.catalogue.load_full();
        let entry = catalogue.get(&key).ok_or_else(|| refused("no such key"))?;
        if !is_short(&entry.object) {
            return Err(refused("uses of such a key are not short"));
        }
        // Those whose programs have gone are not counted.
        core.review_lines();
        let worker = core.worker_for(&catalogue, entry)?;
        worker.token.hand_over(&hsmux_token::Line {
            connection,
            version,
            key,
            timeout: worker.record.seat.timeout,
        })?;
        let line = Line {
            key,
            object: Arc::clone(&entry.object),
            serving: entry.serving.and(&catalogue.in_service),
            seat: worker.record.index,
            generation: worker.generation,
            handed,
        };
        core.lines.0.lock().push(line);
        // What has changed since it was looked at.
        core.review_lines();
        if core.scheduler.lock().is_held(worker.record.index) {
            core.end_lines_of(worker.generation);
        }
        Ok(())
    }

    /// Ends all connections that were handed over: programs ask again, and get them if nothing speaks against it.
    pub fn end_direct(&self) {
        let lines = std::mem::take(&mut *self.core.lines.0.lock());
        for line in lines {
            line.handed.end();
        }
    }
}

impl Core {
    /// Ends connections for which the catalogue says something else than when they were handed over.
    pub fn review_lines(&self) {
        let mut lines = self.lines.0.lock();
        if lines.is_empty() {
            return;
        }
        let catalogue = self.catalogue.load();
        let over = lines.extract_if(.., |line| !line.holds(&catalogue));
        let over: Vec<_> = over.collect();
        drop(lines);
        for line in over {
            line.handed.end();
        }
    }

    /// Ends those that one worker serves.
    pub fn end_lines_of(&self, generation: u64) {
        let mut lines = self.lines.0.lock();
        let over: Vec<_> = lines
            .extract_if(.., |line| line.generation == generation)
            .collect();
        drop(lines);
        for line in over {
            line.handed.end();
        }
    }

    /// By the policy: the first, or the one with the fewest connections for its weight.
    fn worker_for(&self, catalogue: &Catalogue, entry: &Entry) -> Result<Arc<Connection>> {
        let able = entry.serving.and(&catalogue.in_service);
        let scheduler = self.scheduler.lock();
        let left_out = |seat| !scheduler.is_of_short_token(seat) || catalogue.remote.contains(seat);
        let mut all = able.iter();
        let one_is_left_out = match self.options.policy {
            // Who is asked is the first, and the others nothing.
            Policy::FirstAvailable => all.next().is_some_and(left_out),
            Policy::LeastLoaded | Policy::RoundRobin => all.any(left_out),
        };
        let able: SeatSet = able
            .iter()
            .filter(|seat| scheduler.is_short(*seat))
            .collect();
        drop(scheduler);
        // It would idle while programs wait for the others.
        if one_is_left_out {
            return Err(refused(
                "it is also served by a token that takes longer, that nobody knows yet, or of another host",
            ));
        }
        let workers = able.iter().filter_map(|seat| self.record(seat));
        let workers = workers.filter_map(|record| record.life.lock().connection.clone());
        let current = |worker: &Arc<Connection>| {
            catalogue.generations.get(worker.record.index) == Some(&worker.generation)
        };
        let workers = workers.filter(current);
        let lines = self.lines.0.lock();
        let open = |worker: &Arc<Connection>| {
            let of_worker = |line: &&Line| line.generation == worker.generation;
            lines.iter().filter(of_worker).count()
        };
        let load = |worker: &Arc<Connection>| {
            let weight = u64::from(worker.record.seat.weight.max(1));
            ((open(worker) as u64 + 1) << 10) / weight
        };
        let mut workers = workers.filter(|worker| open(worker) < MOST);
        let worker = match self.options.policy {
            Policy::FirstAvailable => workers.next(),
            Policy::LeastLoaded | Policy::RoundRobin => workers.min_by_key(load),
        };
        worker.ok_or_else(|| refused("no worker serves the key by work that is short"))
    }
}

impl Line {
    fn holds(&self, catalogue: &Catalogue) -> bool {
        let entry = catalogue.get(&self.key);
        self.handed.is_open()
            && catalogue.generations.get(self.seat) == Some(&self.generation)
            && entry.is_some_and(|entry| {
                let serving = entry.serving.and(&catalogue.in_service);
                serving == self.serving && entry.object == self.object
            })
    }
}

/// RSA is slow. And what takes PKCS#1 v1.5 off is judged in one place, the pool's.
fn is_short(object: &Object) -> bool {
    object.attributes.number(ck::CKA_KEY_TYPE) != Some(ck::CKK_RSA)
}

fn refused(why: &str) -> Error {
    Error::request(Kind::Unsupported, format!("not handed over: {why}"))
}
