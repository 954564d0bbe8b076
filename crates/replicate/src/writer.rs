//! A pool whose changes go through the coordinator, and whose members catch up when they connect.

use super::catch_up_connector::CatchUpConnector;
use super::debt_report::UnseenMembers;
use super::journal::{self, JournalState};
use super::repeated_warnings::RepeatedWarnings;
use super::{CatchUp, ClonedObject, Coordinator, PoolMember, PoolMembers, Replicator, Selection};
use hsmux_config::LoneKeys;
use hsmux_pool::{Changes, DebtStatus, Options, Pool, Seat, one_round};
use hsmux_token::sync::Mutex;
use hsmux_token::{Error, Kind, Object, ObjectId, Operation, Outcome, Result, SessionObject};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The holder of the journal's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// This process, for as long as the pool lives: a daemon.
    Always,
    /// This process while it changes something: pools that are embedded in several processes.
    WhileChanging,
}

/// How long a process waits while others change something.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Delay of the rewrite of a long journal that removes unneeded wrapped keys.
const TIDY_AFTER: Duration = Duration::from_secs(10);

/// How often somebody looks whether a member has been away for too long: clocks may be set.
const LOOKS_EVERY: Duration = Duration::from_secs(60);

/// Starts a pool whose changes reach enough members or none.
///
/// Every seat makes up for what it missed before it serves, and does not show what was deleted.
/// A state folder that cannot be written is no error here: such a pool serves, and refuses changes.
/// New keys of members that the replicator serves get to the others by it, all others wrapped.
pub fn start(
    options: Options,
    seats: Vec<Seat>,
    hold: Hold,
    replicator: Option<Arc<dyn Replicator>>,
) -> Result<(Arc<Pool>, Arc<Writer>)> {
    let writer = Arc::new_cyclic(|me| Writer {
        me: me.clone(),
        state: options.state.clone(),
        replicas: options.replicas,
        lone_keys: options.lone_keys,
        envelope_life: options.envelope_life,
        tidies: AtomicBool::new(false),
        read_only: options.read_only,
        threads: options.threads,
        hold,
        replicator,
        held: Mutex::default(),
        pool: OnceLock::new(),
        strangers: UnseenMembers::default(),
        noticed: RepeatedWarnings::default(),
    });
    if !writer.read_only
        && let Err(error) = writer.coordinator()
    {
        tracing::warn!(%error, "token objects cannot be changed");
    }
    let seats = seats.into_iter().map(|seat| writer.admit(seat)).collect();
    let pool = Pool::start(options, seats)?;
    let _ = writer.pool.set(Arc::downgrade(&pool));
    pool.set_changes(Arc::clone(&writer) as Arc<dyn Changes>);
    Ok((pool, writer))
}

/// The writer of a pool.
pub struct Writer {
    me: Weak<Self>,
    state: PathBuf,
    replicas: usize,
    lone_keys: LoneKeys,
    envelope_life: Duration,
    /// A thread waits until keys have to leave the journal.
    tidies: AtomicBool,
    read_only: bool,
    threads: bool,
    hold: Hold,
    replicator: Option<Arc<dyn Replicator>>,
    held: Mutex<OpenCoordinator>,
    pool: OnceLock<Weak<Pool>>,
    strangers: UnseenMembers,
    /// Objects of members that are not as they should be, by name.
    noticed: RepeatedWarnings<(String, ObjectId)>,
}

/// The coordinator while somebody uses it, or always.
#[derive(Default)]
struct OpenCoordinator {
    used: Weak<Coordinator>,
    _always: Option<Arc<Coordinator>>,
}

impl Writer {
    /// Copies keys between members of the pool: [`Coordinator::clone_keys`]. `targets` empty: all
    /// others that are in service.
    pub fn clone_keys(
        &self,
        source: &str,
        targets: &[String],
        selection: &Selection,
        wrapping: Option<ObjectId>,
        progress: &(dyn Fn(&ClonedObject) + Sync),
    ) -> Result<Vec<ClonedObject>> {
        let pool = self
            .pool()
            .ok_or_else(|| Error::lost("the pool has stopped"))?;
        let coordinator = self.coordinator()?;
        let (mut source, mut targets) = chosen(&pool.members(), source, targets)?;
        if coordinator.log_in_each(targets.iter().chain([&source]), &*pool) {
            let names: Vec<_> = targets.into_iter().map(|target| target.name).collect();
            (source, targets) = chosen(&pool.members(), &source.name, &names)?;
        }
        let cloned = coordinator.clone_keys(&source, &targets, selection, wrapping, progress)?;
        for target in &targets {
            pool.refresh(&target.name)?;
        }
        Ok(cloned)
    }

    /// The coordinator; opened now where it is not held.
    pub fn coordinator(&self) -> Result<Arc<Coordinator>> {
        let mut held = self.held.lock();
        if let Some(coordinator) = held.used.upgrade() {
            return Ok(coordinator);
        }
        let patience = match self.hold {
            Hold::Always => Duration::ZERO,
            Hold::WhileChanging => LOCK_TIMEOUT,
        };
        let coordinator = Coordinator::open_within(&self.state, self.replicas, patience)?;
        let coordinator = coordinator
            .with_replicator(self.replicator.clone())
            .with_lone_keys(self.lone_keys)
            .with_envelope_life(self.envelope_life);
        let coordinator = Arc::new(if self.threads {
            coordinator
        } else {
            coordinator.without_threads()
        });
        *held = OpenCoordinator {
            used: Arc::downgrade(&coordinator),
            _always: (self.hold == Hold::Always).then(|| Arc::clone(&coordinator)),
        };
        Ok(coordinator)
    }

    /// Takes wrapped keys out of the journal in time, where something is in it: by a thread that ends when nothing is.
    fn tidy_later(&self) {
        let daemon = self.threads && self.hold == Hold::Always;
        let open = self.held.lock().used.upgrade();
        if !daemon || open.and_then(|c| c.tidy(false)).is_none() {
            return;
        }
        if self.tidies.swap(true, Ordering::AcqRel) {
            return;
        }
        let me = Weak::clone(&self.me);
        let spawned = thread::Builder::new()
            .name("envelopes".into())
            .spawn(move || {
                let mut wait = TIDY_AFTER;
                loop {
                    thread::sleep(wait);
                    let Some(writer) = me.upgrade() else { return };
                    let round = one_round("the journal's tidying", || {
                        writer.tidy().or_else(|| {
                            writer.tidies.store(false, Ordering::Release);
                            // A key that was written just before was left to this thread.
                            let left = writer.tidy()?;
                            (!writer.tidies.swap(true, Ordering::AcqRel)).then_some(left)
                        })
                    });
                    let Some(left) = round.unwrap_or(Some(LOOKS_EVERY)) else {
                        return;
                    };
                    wait = left.clamp(TIDY_AFTER, LOOKS_EVERY);
                }
            });
        if let Err(error) = spawned {
            self.tidies.store(false, Ordering::Release);
            tracing::warn!(%error, "wrapped keys stay in the journal until the next change");
        }
    }

    /// Removes expired keys; returns when there is more.
    fn tidy(&self) -> Option<Duration> {
        let open = self.held.lock().used.upgrade();
        open?.tidy(true)
    }

    fn pool(&self) -> Option<Arc<Pool>> {
        self.pool.get()?.upgrade()
    }

    /// Brings a token up to date before it serves. Debts that remain stay in the journal.
    pub(super) fn bring_up_to_date(&self, member: &PoolMember) -> Option<CatchUp> {
        if self.read_only {
            return None;
        }
        let pool = self.pool();
        let nobody = NoMembers;
        let members: &dyn PoolMembers = pool.as_deref().map_or(&nobody, |pool| pool);
        let told = self
            .coordinator()
            .and_then(|coordinator| coordinator.catch_up(members, member));
        self.tidy_later();
        let name = &member.name;
        match told {
            Ok(told) => {
                self.tell(name, &told);
                // Other processes may have other members.
                if self.hold == Hold::Always
                    && let Some(configured) = self.strangers.seen(name)
                    && let Ok(coordinator) = self.coordinator()
                {
                    coordinator.forget_all_but(&configured);
                }
                Some(told)
            }
            Err(error) => {
                tracing::warn!(member = name, %error, "has not caught up");
                None
            }
        }
    }

    /// Has the log say what was found on a member that has returned, each once.
    fn tell(&self, member: &str, told: &CatchUp) {
        if told.applied > 0 {
            tracing::info!(member, changes = told.applied, "has caught up");
        }
        let wrong = |id: &ObjectId| told.tombstoned.contains(id) || told.missing.contains(id);
        self.noticed
            .retain(|(of, id)| of != member || told.unseen || wrong(id));
        let times = |id: &ObjectId| self.noticed.note((member.to_owned(), *id), "");
        for id in &told.tombstoned {
            if let Some(times) = times(id) {
                tracing::warn!(
                    member,
                    times,
                    "{id:?} was deleted from the pool and is not served"
                );
            }
        }
        for id in &told.missing {
            if let Some(times) = times(id) {
                tracing::warn!(
                    member,
                    times,
                    "{id:?} is not there: deleted by other means, or not kept for so long ([pool] \
                     envelope_life); `hsmux key clone` brings it if it can be copied"
                );
            }
        }
    }

    /// Makes of a token's objects what the pool shows: without those that were deleted through the pool, and keys
    /// that say how they were made.
    pub(super) fn show(&self, objects: &mut Vec<Object>) {
        let mut show = |state: &JournalState| {
            objects.retain_mut(|object| {
                state.show_origin(object);
                !state.is_tombstoned(&object.id)
            });
        };
        let open = self.held.lock().used.upgrade();
        match open {
            Some(coordinator) => coordinator.journal.read(show),
            None => show(&journal::state(&super::folder(&self.state))),
        }
    }
}

impl Changes for Writer {
    fn change(&self, pool: &Pool, operation: Operation, deadline: Instant) -> Result<Outcome> {
        let answer = self.coordinator()?.change(pool, &operation, deadline);
        self.tidy_later();
        answer
    }

    fn debts(&self) -> Vec<DebtStatus> {
        let open = self.held.lock().used.upgrade();
        open.map(|coordinator| coordinator.debts())
            .unwrap_or_default()
    }

    /// A seat whose token makes up for what it missed whenever it connects.
    fn admit(&self, seat: Seat) -> Seat {
        if seat.connector.remote() {
            return seat;
        }
        self.strangers.expect(&seat.member);
        Seat {
            connector: Arc::new(CatchUpConnector::new(
                seat.member.clone(),
                seat.connector,
                Weak::clone(&self.me),
            )),
            ..seat
        }
    }
}

/// The members of these names; `targets` empty: all but the source that are in service.
fn chosen(
    all: &[PoolMember],
    source: &str,
    targets: &[String],
) -> Result<(PoolMember, Vec<PoolMember>)> {
    let named = |name: &str| {
        let found = all.iter().find(|member| member.name == name).cloned();
        found.ok_or_else(|| {
            Error::request(
                Kind::Invalid,
                format!("the pool has no member {name}; hsmux token list shows all"),
            )
        })
    };
    let source = named(source)?;
    let targets = if targets.is_empty() {
        let others = all.iter().filter(|other| other.name != source.name);
        others
            .filter(|other| other.token.is_some())
            .cloned()
            .collect()
    } else {
        let each = targets.iter().map(|name| named(name));
        each.collect::<Result<_>>()?
    };
    Ok((source, targets))
}

impl PoolMembers for Pool {
    fn members(&self) -> Vec<PoolMember> {
        self.members()
    }

    fn changed(&self, member: &str, made: &[Object], gone: &[ObjectId]) {
        self.show_change(member, made, gone);
    }

    fn renew(&self, member: &str) {
        if let Err(error) = self.connect_anew(member) {
            tracing::warn!(member, %error, "is not connected anew");
        }
    }

    fn home(&self, object: &SessionObject) -> Result<(PoolMember, SessionObject)> {
        self.holder_of(object)
    }
}

/// Before the pool is there.
struct NoMembers;

impl PoolMembers for NoMembers {
    fn members(&self) -> Vec<PoolMember> {
        Vec::new()
    }

    fn changed(&self, _: &str, _: &[Object], _: &[ObjectId]) {}
}
