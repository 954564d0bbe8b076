//! Direct connections of programs to workers: where they go, and when they have to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hsmux_token::{Error, Kind, Object, ObjectId, Result, ck, share};
use hsmux_wire::HandedOver;

use crate::catalogue::{Catalogue, Entry};
use crate::clock::Mutex;
use crate::core::Core;
use crate::record::SeatConnection;
use crate::seatset::SeatSet;
use crate::{Owner, Policy, Pool};

/// All direct connections.
#[derive(Default)]
pub(crate) struct DirectConnections {
    open: Mutex<Vec<DirectConnection>>,
    /// The number of the last one.
    last: AtomicU64,
    /// How often all were ended.
    ended: AtomicU64,
}

/// A connection, for uses of one key.
struct DirectConnection {
    number: u64,
    key: ObjectId,
    owner: Owner,
    /// The key's object when the connection was handed over.
    object: Arc<Object>,
    /// The seats that served the key then. A new seat has to get its share.
    serving: SeatSet,
    /// The seats that receive its requests, each with its worker's generation. The first is its home.
    heard_by: Vec<(usize, u64)>,
    /// All seats that serve the key receive its requests.
    shared: bool,
    handed: HandedOver,
}

/// The most direct connections. One user has half of what others leave. A shared connection takes a descriptor in every
/// worker.
const MOST: usize = 512;

impl Pool {
    /// Hands a program's connection over to a worker that serves the key. Operations of the key have to be short. The
    /// connection ends as soon as the worker may not serve the key any longer, or the key has other attributes.
    ///
    /// While no worker has two connections, each connection has one worker. From the second one on all are shared:
    /// every worker that serves the key receives requests, and the first free one takes them.
    ///
    /// The caller checks the program's right before, and ends `handed` when the right is gone.
    pub fn hand_over(&self, key: ObjectId, handed: HandedOver, owner: Owner) -> Result<()> {
        let core = &self.core;
        let catalogue = core.catalogue.load_full();
        let entry = catalogue.get(&key).ok_or_else(|| refused("no such key"))?;
        if !is_short(&entry.object) {
            return Err(refused("uses of such a key are not short"));
        }
        // Connections of programs that have ended do not count.
        core.review_direct();
        let workers = core.workers_for(&catalogue, entry)?;
        core.direct.has_room_for(owner)?;
        let mut line = DirectConnection {
            number: core.direct.last.fetch_add(1, Ordering::Relaxed) + 1,
            key,
            owner,
            object: Arc::clone(&entry.object),
            serving: entry.serving.and(&catalogue.in_service),
            heard_by: Vec::new(),
            shared: false,
            handed,
        };
        let passed = if core.are_shared(&workers) {
            core.share_all(&catalogue);
            line.share(&workers)
        } else {
            line.pass_to(&workers[0])
        };
        if passed.is_ok() {
            core.direct.open.lock().push(line);
        }
        // What has changed since it was looked at.
        core.review_direct();
        passed
    }

    /// Ends all connections that were handed over: programs ask again, and get them if nothing speaks against it.
    pub fn end_direct(&self) {
        let direct = &self.core.direct;
        direct.ended.fetch_add(1, Ordering::SeqCst);
        direct.end_those(|_| true);
    }
}

impl Core {
    /// Ends connections for which the catalogue says something else than when they were handed over.
    pub fn review_direct(&self) {
        let catalogue = self.catalogue.load();
        self.direct.end_those(|line| !line.holds(&catalogue));
    }

    /// The workers that may serve the key. The first one is selected by the policy: the first of all, or the one with
    /// the fewest connections for its weight.
    fn workers_for(
        &self,
        catalogue: &Catalogue,
        entry: &Entry,
    ) -> Result<Vec<Arc<SeatConnection>>> {
        let able = entry.serving.and(&catalogue.in_service);
        let scheduler = self.scheduler.lock();
        let is_left_out =
            |seat| !scheduler.is_of_short_token(seat) || catalogue.remote.contains(seat);
        let mut one_is_left_out = able.iter().any(is_left_out);
        let short = |seat: &usize| scheduler.is_short(*seat);
        let short: SeatSet = able.iter().filter(short).collect();
        drop(scheduler);
        let current = |seat: usize| {
            let worker = self.record(seat)?.life.lock().connection.clone()?;
            let is_current = catalogue.generations.get(seat) == Some(&worker.generation);
            (is_current && worker.token.takes_connections()).then_some(worker)
        };
        let mut workers: Vec<_> = short.iter().filter_map(current).collect();
        let has_worker = |seat| {
            let member = self.record(seat).map(|record| Arc::clone(&record.member));
            let of_member =
                |worker: &Arc<SeatConnection>| Some(&worker.record.member) == member.as_ref();
            workers.iter().any(of_member)
        };
        one_is_left_out |= !able.iter().all(has_worker);
        // It would idle while programs wait for the others.
        if one_is_left_out {
            return Err(refused(
                "it is also served by a token that takes longer, that nobody knows yet, or of another host",
            ));
        }
        let direct = self.direct.open.lock();
        if workers.is_empty() {
            return Err(refused("no worker serves the key by work that is short"));
        }
        if self.options.policy != Policy::FirstAvailable {
            workers.sort_by_cached_key(|worker| {
                let of_worker = |line: &&DirectConnection| line.is_at_home_with(worker);
                let open = direct.iter().filter(of_worker).count() as u64;
                ((open + 1) << 10) / u64::from(worker.record.seat.weight.max(1))
            });
        }
        Ok(workers)
    }

    /// True if one more connection to these workers is shared: others are, or the first worker already has one.
    fn are_shared(&self, workers: &[Arc<SeatConnection>]) -> bool {
        let could_be = workers.len() > 1 || workers[0].info.lanes > 1;
        let says_so = |line: &DirectConnection| line.shared || line.is_at_home_with(&workers[0]);
        could_be && self.direct.open.lock().iter().any(says_so)
    }

    /// Shares those that are not yet.
    fn share_all(&self, catalogue: &Catalogue) {
        let ended = || self.direct.ended.load(Ordering::SeqCst);
        let before = ended();
        let not_yet = |line: &mut DirectConnection| !line.shared;
        let direct: Vec<_> = self.direct.open.lock().extract_if(.., not_yet).collect();
        for mut line in direct {
            let entry = catalogue.get(&line.key);
            let entry = entry.ok_or_else(|| refused("no such key"));
            let workers = entry.and_then(|entry| self.workers_for(catalogue, entry));
            let shared = workers.and_then(|workers| line.share(&workers));
            let mut open = self.direct.open.lock();
            // Who ended all has not seen it meanwhile.
            if shared.is_ok() && ended() == before {
                open.push(line);
            } else {
                drop(open);
                line.handed.end();
            }
        }
    }
}

impl DirectConnections {
    fn has_room_for(&self, owner: Owner) -> Result<()> {
        let open = self.open.lock();
        let own = open.iter().filter(|line| line.owner == owner).count();
        if own < share(MOST, open.len() - own) {
            return Ok(());
        }
        Err(refused("its user has a share of such connections already"))
    }

    /// Their programs ask again.
    fn end_those(&self, which: impl Fn(&DirectConnection) -> bool) {
        let over: Vec<_> = self
            .open
            .lock()
            .extract_if(.., |line| which(line))
            .collect();
        for line in over {
            line.handed.end();
        }
    }
}

impl DirectConnection {
    fn is_at_home_with(&self, worker: &SeatConnection) -> bool {
        self.heard_by
            .first()
            .is_some_and(|(_, of)| *of == worker.generation)
    }

    /// Has all of these hear it; its home stays. What fails on the way ends it.
    fn share(&mut self, workers: &[Arc<SeatConnection>]) -> Result<()> {
        self.shared = true;
        let passed = workers.iter().try_for_each(|worker| self.pass_to(worker));
        passed.inspect_err(|_| self.handed.end())
    }

    fn pass_to(&mut self, worker: &SeatConnection) -> Result<()> {
        self.handed.pass_on(|connection, version| {
            worker.token.hand_over(&hsmux_token::DirectConnection {
                connection,
                version,
                key: self.key,
                timeout: worker.record.seat.timeout,
                number: self.number,
                shared: self.shared,
                home: self.heard_by.is_empty() || self.is_at_home_with(worker),
            })
        })?;
        let hears = (worker.record.index, worker.generation);
        if !self.heard_by.contains(&hears) {
            self.heard_by.push(hears);
        }
        Ok(())
    }

    fn holds(&self, catalogue: &Catalogue) -> bool {
        let entry = catalogue.get(&self.key);
        let current = |(seat, of): &(usize, u64)| catalogue.generations.get(*seat) == Some(of);
        self.handed.is_open()
            && self.heard_by.iter().all(current)
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
