//! One application's use of a pool: its session objects live together, as on a bare token.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use hsmux_token::{Batch, Operation, Outcome, Request, Result, Snapshot, Token, TokenInfo};

use crate::catalogue::Catalogue;
use crate::claim::Requester;
use crate::clock::Mutex;
use crate::core::Core;
use crate::need::Route;
use crate::request_timing::RequestTiming;
use crate::seatset::SeatSet;
use crate::{Owner, Policy, Pool};

/// A pool as one application uses it.
///
/// All session objects of one client session live on one seat. They can be used together there: one key
/// wraps the other. Client sessions are spread over the seats. If the connection of that seat ends, its
/// session objects are gone, and the next session object chooses a seat again. Operations that make no
/// session object go to any seat.
pub struct ClientSession {
    pool: Arc<Pool>,
    affinity: Arc<Affinity>,
}

/// One connection of a client session.
pub struct ClientConnection {
    pool: Arc<Pool>,
    affinity: Arc<Affinity>,
    requester: Arc<Requester>,
}

/// The seat on which the session objects of one client session are made.
#[derive(Debug)]
pub(crate) struct Affinity {
    /// Spreads client sessions over the seats.
    number: usize,
    chosen: Mutex<ChosenConnection>,
    /// The owner of the session's requests.
    pub owner: Owner,
}

/// The chosen connection. Generation 0 means none yet: no connection has it.
#[derive(Debug, Default)]
struct ChosenConnection {
    /// The generation of the connection.
    generation: u64,
    /// The edition of the catalogue by which it was chosen.
    edition: u64,
}

impl ClientSession {
    /// A session without an owner. It chooses its seat with its first session object.
    pub fn new(pool: Arc<Pool>) -> Self {
        Self::of(pool, Owner::default())
    }

    /// A session of this owner. If the owner is another host, only tokens of this host serve it. Otherwise two hosts
    /// that use each other's tokens would send a request round and round.
    pub fn of(pool: Arc<Pool>, owner: Owner) -> Self {
        let number = match pool.core.options.policy {
            Policy::FirstAvailable => 0,
            Policy::LeastLoaded | Policy::RoundRobin => {
                pool.core.client_sessions.fetch_add(1, Ordering::Relaxed)
            }
        };
        let affinity = Arc::new(Affinity {
            number,
            chosen: Mutex::default(),
            owner,
        });
        let mut affinities = pool.core.affinities.lock();
        affinities.retain(|affinity| affinity.strong_count() > 0);
        affinities.push(Arc::downgrade(&affinity));
        drop(affinities);
        Self { pool, affinity }
    }

    /// Opens a connection.
    pub fn connect(&self) -> ClientConnection {
        ClientConnection {
            pool: Arc::clone(&self.pool),
            affinity: Arc::clone(&self.affinity),
            requester: Arc::default(),
        }
    }
}

impl ClientConnection {
    /// [`Token::submit`] for the session, for as long as the connection lasts. The timing of a request is recorded
    /// if one is given, as by [`Pool::submit_claimed`].
    pub fn submit(&self, batch: impl IntoIterator<Item = (Request, Option<Arc<RequestTiming>>)>) {
        self.pool
            .submit_at(batch, Some(&self.affinity), Some(&self.requester));
    }

    /// The connection has ended. Its requests that wait for a seat are cancelled. Running requests and changes go on.
    pub fn end(&self) {
        self.pool.core.cancel(&self.requester);
    }
}

impl Core {
    /// True if session objects of a client live on this connection, or may.
    pub fn may_hold_session_objects(&self, generation: u64) -> bool {
        let affinities = self.affinities.lock();
        let mut affinities = affinities.iter().filter_map(Weak::upgrade);
        affinities.any(|affinity| affinity.chosen.lock().generation == generation)
    }
}

impl Token for ClientSession {
    fn info(&self) -> Arc<TokenInfo> {
        self.pool.info()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        self.pool.objects()
    }

    fn submit(&self, batch: Batch) {
        let batch = batch.into_iter().map(|request| (request, None));
        self.pool.submit_at(batch, Some(&self.affinity), None);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        self.pool
            .execute_at(operation, deadline, Some(&self.affinity))
    }
}

impl Affinity {
    /// Narrows the route to the chosen seat, even if the request has to wait there. A request that can never be
    /// served there keeps its route: an object on another seat is better than none.
    pub fn narrow(&self, route: Route, catalogue: &Catalogue) -> Route {
        let mut chosen = self.chosen.lock();
        if chosen.edition > catalogue.edition {
            // This catalogue may not know the chosen connection yet. The scheduler queues nothing by an older
            // edition, so the route is computed again.
            return Route {
                able: SeatSet::EMPTY,
                ..route
            };
        }
        let affinity = catalogue.locate(chosen.generation).or_else(|| {
            let seat = self.choose(&route.able)?;
            *chosen = ChosenConnection {
                generation: catalogue.generations[seat],
                edition: catalogue.edition,
            };
            Some(seat)
        });
        match affinity.map(SeatSet::of) {
            Some(affinity) if !route.hopeful.and(&affinity).is_empty() => Route {
                able: route.able.and(&affinity),
                hopeful: affinity,
                ..route
            },
            _ => route,
        }
    }

    fn choose(&self, able: &SeatSet) -> Option<usize> {
        let nth = self.number.checked_rem(able.len())?;
        able.iter().nth(nth)
    }
}
