//! What one client may cost: how many requests at once, and how many in a second.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use hsmux_config::{Allowance, Limit, Limits};
use parking_lot::Mutex;

use crate::auth::Client as Identified;
use crate::refusal::Refusal;

/// The clients of now, each with what it uses.
pub struct Usage {
    limits: Limits,
    /// Of each `[[limit]]`, and last of those clients that none of them means.
    classes: Vec<Class>,
    strangers: Buckets<Address>,
    /// Of those who are known, for tokens that are not.
    tokens: Buckets<String>,
    room: Arc<Room>,
}

/// A bucket for each.
struct Buckets<K>(Mutex<HashMap<K, Arc<Bucket>>>);

/// Room in memory for bodies of requests.
struct Room {
    most: usize,
    taken: AtomicUsize,
}

/// Clients that may cost the same, by their names.
struct Class {
    allowance: Arc<Allowance>,
    clients: Mutex<HashMap<String, Arc<Client>>>,
}

/// A request that counts as one of its client's until this is dropped.
pub struct Admitted {
    client: Arc<Client>,
    allowance: Arc<Allowance>,
    room: Arc<Room>,
    /// Bytes of its body.
    held: AtomicUsize,
}

struct Client {
    bucket: Option<Bucket>,
    in_flight: AtomicUsize,
    /// Bytes of the bodies of all its requests.
    held: AtomicUsize,
}

/// Where a stranger comes from; `None`: from this machine, over the unix socket.
pub(super) type Address = Option<IpAddr>;

type Bucket = RateLimiter<
    NotKeyed,
    InMemoryState,
    MonotonicClock,
    NoOpMiddleware<<MonotonicClock as Clock>::Instant>,
>;

/// From so many entries on, those that nobody uses any more make room.
const MANY: usize = 4096;

impl Usage {
    /// Nobody uses anything yet.
    pub fn new(limits: Limits) -> Self {
        let special = limits.special.iter().map(|limit| &limit.allowance);
        let classes = special.chain([&limits.each]).map(|allowance| Class {
            allowance: Arc::new(allowance.clone()),
            clients: Mutex::default(),
        });
        let classes: Vec<Class> = classes.collect();
        let longest = classes.iter().map(|class| class.allowance.max_body).max();
        Self {
            room: Arc::new(Room {
                most: limits.max_bodies.max(longest.unwrap_or_default()),
                taken: AtomicUsize::new(0),
            }),
            classes,
            strangers: Buckets(Mutex::default()),
            tokens: Buckets(Mutex::default()),
            limits,
        }
    }

    /// What holds.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts a request of a client, or says when to come back. `name` is what it is counted under.
    pub fn admit(&self, client: &Identified, name: &str) -> Result<Admitted, Refusal> {
        let means = |limit: &Limit| limit.clients.iter().any(|who| client.is(who));
        let special = &self.limits.special;
        let class = special.iter().position(means).unwrap_or(special.len());
        self.classes[class].admit(name, &self.room)
    }

    /// Counts a request of somebody who has shown nothing, or what nobody knows yet.
    pub fn stranger(&self, address: Address) -> Result<(), Refusal> {
        let rate = self.limits.stranger_rate;
        self.strangers.take(network(address), rate)
    }

    /// Counts a token that nobody knows yet, of a client that its connection has shown: others at its address have
    /// nothing to do with it.
    pub fn unknown_token(&self, client: &str) -> Result<(), Refusal> {
        let rate = self.limits.stranger_rate;
        self.tokens.take(client.to_owned(), rate)
    }
}

impl<K: Eq + Hash> Buckets<K> {
    fn take(&self, who: K, rate: NonZeroU32) -> Result<(), Refusal> {
        let bucket = {
            let mut buckets = self.0.lock();
            if is_crowded(buckets.len()) {
                buckets.retain(|_, bucket| take(bucket).is_err());
            }
            let new = || Arc::new(bucket(rate, None));
            Arc::clone(buckets.entry(who).or_insert_with(new))
        };
        take(&bucket)
    }
}

impl Class {
    fn admit(&self, name: &str, room: &Arc<Room>) -> Result<Admitted, Refusal> {
        let client = self.client(name);
        let before = client.in_flight.fetch_add(1, Ordering::AcqRel);
        let admitted = Admitted {
            client,
            allowance: Arc::clone(&self.allowance),
            room: Arc::clone(room),
            held: AtomicUsize::new(0),
        };
        let most = self.allowance.in_flight;
        if before >= most {
            let message = format!("{most} requests of this client are running already");
            return Err(too_many(message, Duration::ZERO));
        }
        if let Some(bucket) = &admitted.client.bucket {
            take(bucket)?;
        }
        Ok(admitted)
    }

    fn client(&self, name: &str) -> Arc<Client> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(name) {
            return Arc::clone(client);
        }
        if is_crowded(clients.len()) {
            clients.retain(|_, client| client.is_in_use());
        }
        let Allowance { rate, burst, .. } = *self.allowance;
        let client = Arc::new(Client {
            bucket: rate.map(|rate| bucket(rate, burst)),
            in_flight: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
        });
        clients.insert(name.to_owned(), Arc::clone(&client));
        client
    }
}

impl Admitted {
    /// The longest body of this request.
    pub fn max_body(&self) -> usize {
        self.allowance.max_body
    }

    /// Takes room for so much more of its body, until this is dropped; refused where others have taken all, or its
    /// client has half of it. One body always fits in. What is refused gives back its room at once: of two bodies that
    /// do not fit in together one does.
    pub fn hold(&self, bytes: usize) -> Result<(), Refusal> {
        let take = |of: &AtomicUsize, most: usize| {
            let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= most);
            of.fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
                .is_ok()
        };
        let part = self.max_body().max(self.room.most / 2);
        let message = if !take(&self.client.held, part) {
            "there is no room for the body of this request beside those of this client's others"
        } else if !take(&self.room.taken, self.room.most) {
            self.client.held.fetch_sub(bytes, Ordering::AcqRel);
            "there is no room for the body of this request beside those of others"
        } else {
            self.held.fetch_add(bytes, Ordering::AcqRel);
            return Ok(());
        };
        self.give_back();
        Err(Refusal::later(message, None))
    }

    fn give_back(&self) {
        let held = self.held.swap(0, Ordering::AcqRel);
        self.room.taken.fetch_sub(held, Ordering::AcqRel);
        self.client.held.fetch_sub(held, Ordering::AcqRel);
    }
}

impl Client {
    /// Whether to forget it would forgive it something.
    fn is_in_use(&self) -> bool {
        let spent = || {
            self.bucket
                .as_ref()
                .is_some_and(|bucket| take(bucket).is_err())
        };
        self.in_flight.load(Ordering::Acquire) > 0 || spent()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.give_back();
        self.client.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// At every doubling, so that looking through all costs each of them little.
fn is_crowded(entries: usize) -> bool {
    entries >= MANY && entries.is_power_of_two()
}

fn bucket(rate: NonZeroU32, burst: Option<NonZeroU32>) -> Bucket {
    let quota = Quota::per_second(rate).allow_burst(burst.unwrap_or(rate));
    RateLimiter::direct_with_clock(quota, MonotonicClock)
}

fn take(bucket: &Bucket) -> Result<(), Refusal> {
    bucket.check().map_err(|until| {
        let wait = until.wait_time_from(bucket.clock().now());
        too_many("too many requests: come back later".into(), wait)
    })
}

fn too_many(message: String, wait: Duration) -> Refusal {
    Refusal {
        retry_after: Some(wait),
        ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, message)
    }
}

/// Who has one address of IPv6 has 2^64 of them (RFC 6177).
pub(super) fn network(address: Address) -> Address {
    address.map(|address| match address.to_canonical() {
        IpAddr::V6(six) => {
            let network = u128::from(six) >> 64 << 64;
            IpAddr::V6(network.into())
        }
        four @ IpAddr::V4(_) => four,
    })
}

#[cfg(test)]
mod tests;
