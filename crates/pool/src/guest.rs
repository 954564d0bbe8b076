//! One application's side of a pool: its session objects live together, as on a bare token.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use hsmux_token::sync::Mutex;
use hsmux_token::{Batch, Operation, Outcome, Request, Result, Snapshot, Token, TokenInfo};

use crate::catalogue::Catalogue;
use crate::claim::Asker;
use crate::core::Core;
use crate::course::Course;
use crate::need::Route;
use crate::seatset::SeatSet;
use crate::{Owner, Policy, Pool};

/// A pool as one application has it.
///
/// All session objects that it makes through one guest live on one seat, its home, so that they can
/// be used together: one key wraps the other. Guests take different homes. When the connection of a
/// home ends, its session objects are gone, and the next one that is made finds the guest another
/// home. Operations that make no session object go wherever they can be served, as without a guest.
pub struct Guest {
    pool: Arc<Pool>,
    home: Arc<Home>,
}

/// One connection of a guest.
pub struct Visit {
    pool: Arc<Pool>,
    home: Arc<Home>,
    asker: Arc<Asker>,
}

/// Where a guest's session objects are made.
#[derive(Debug)]
pub(crate) struct Home {
    /// Homes with different numbers are spread over the seats.
    number: usize,
    settled: Mutex<Settled>,
    /// Whose requests they are.
    pub owner: Owner,
}

/// Nowhere yet, at first: no connection has the generation 0.
#[derive(Debug, Default)]
struct Settled {
    /// Of the home's connection.
    generation: u64,
    /// Of the catalogue by which it was chosen.
    edition: u64,
}

impl Guest {
    /// A guest who has no home until the first session object is made.
    pub fn new(pool: Arc<Pool>) -> Self {
        Self::of(pool, Owner::default())
    }

    /// The same for this owner. If it is another host, the tokens of this one alone serve it: two hosts that use each
    /// other's tokens would otherwise send a request round and round.
    pub fn of(pool: Arc<Pool>, owner: Owner) -> Self {
        let number = match pool.core.options.policy {
            Policy::FirstAvailable => 0,
            Policy::LeastLoaded | Policy::RoundRobin => {
                pool.core.guests.fetch_add(1, Ordering::Relaxed)
            }
        };
        let home = Arc::new(Home {
            number,
            settled: Mutex::default(),
            owner,
        });
        let mut homes = pool.core.homes.lock();
        homes.retain(|home| home.strong_count() > 0);
        homes.push(Arc::downgrade(&home));
        drop(homes);
        Self { pool, home }
    }

    /// A connection begins.
    pub fn visit(&self) -> Visit {
        Visit {
            pool: Arc::clone(&self.pool),
            home: Arc::clone(&self.home),
            asker: Arc::default(),
        }
    }
}

impl Visit {
    /// [`Token::submit`] for the guest, for as long as the connection lasts. The course of a request is written
    /// down where one is given, as by [`Pool::submit_claimed`].
    pub fn submit(&self, batch: impl IntoIterator<Item = (Request, Option<Arc<Course>>)>) {
        self.pool
            .submit_at(batch, Some(&self.home), Some(&self.asker));
    }

    /// It has ended: what it has asked for and waits for a seat is given up. What runs goes on, and changes are
    /// carried out all the same.
    pub fn end(&self) {
        self.pool.core.forsake(&self.asker);
    }
}

impl Core {
    /// Whether session objects of a guest live on this connection, or may.
    pub fn is_home(&self, generation: u64) -> bool {
        let homes = self.homes.lock();
        let mut homes = homes.iter().filter_map(Weak::upgrade);
        homes.any(|home| home.settled.lock().generation == generation)
    }
}

impl Token for Guest {
    fn info(&self) -> Arc<TokenInfo> {
        self.pool.info()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        self.pool.objects()
    }

    fn submit(&self, batch: Batch) {
        let batch = batch.into_iter().map(|request| (request, None));
        self.pool.submit_at(batch, Some(&self.home), None);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        self.pool.execute_at(operation, deadline, Some(&self.home))
    }
}

impl Home {
    /// The route to the home alone, also if it has to be waited for there.
    ///
    /// What can never be served there goes elsewhere: better an object that lives apart than none.
    pub fn narrow(&self, route: Route, catalogue: &Catalogue) -> Route {
        let mut settled = self.settled.lock();
        if settled.edition > catalogue.edition {
            // The home may be of a connection that this catalogue does not know yet. With an older
            // edition nothing is queued: the route is asked for again.
            return Route {
                able: SeatSet::EMPTY,
                ..route
            };
        }
        let home = catalogue.locate(settled.generation).or_else(|| {
            let seat = self.choose(&route.able)?;
            *settled = Settled {
                generation: catalogue.generations[seat],
                edition: catalogue.edition,
            };
            Some(seat)
        });
        match home.map(SeatSet::of) {
            Some(home) if !route.hopeful.and(&home).is_empty() => Route {
                able: route.able.and(&home),
                hopeful: home,
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
