//! Quotas of one client: requests at once, requests per second, and memory.

mod memory;

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use hsmux_config::{Allowance, Limit, Limits};
use hsmux_edge::HeadMemory;
use parking_lot::Mutex;

use crate::auth::ClientIdentity;
use crate::refusal::Refusal;

use memory::{ClientMemory, MemoryCharge, MemoryFull, RequestMemory};

/// The quotas, and the current use of each client.
pub struct UsageLimits {
    limits: Limits,
    /// One for each `[[limit]]`, and last the clients without one.
    classes: Vec<ClientClass>,
    strangers: RateBuckets<Address>,
    /// Unknown tokens of known clients.
    tokens: RateBuckets<String>,
    /// Unknown clients, for what they may read.
    nobody: ClientClass,
    memory: Arc<RequestMemory>,
    /// The memory for answers to unknown clients. It takes nothing from clients.
    memory_of_nobody: Arc<RequestMemory>,
    /// The memory for heads of HTTP/1.1 connections.
    heads: Arc<HeadMemory>,
}

/// A bucket for each.
struct RateBuckets<K>(Mutex<HashMap<K, Arc<Bucket>>>);

/// Clients with the same quota, by their names.
struct ClientClass {
    allowance: Arc<Allowance>,
    clients: Mutex<HashMap<String, Arc<ClientUsage>>>,
}

/// An admitted request, which counts for its client until this is dropped.
pub struct AdmittedRequest {
    client: Arc<ClientUsage>,
    allowance: Arc<Allowance>,
    charge: MemoryCharge,
}

struct ClientUsage {
    /// A number that no other client ever gets.
    number: u64,
    bucket: Option<Bucket>,
    in_flight: AtomicUsize,
    memory: Arc<ClientMemory>,
}

/// The address of a stranger; `None`: this machine, over the unix socket.
pub(super) type Address = Option<IpAddr>;

type Bucket = RateLimiter<
    NotKeyed,
    InMemoryState,
    MonotonicClock,
    NoOpMiddleware<<MonotonicClock as Clock>::Instant>,
>;

/// The share of `max_bodies` for answers to unknown clients; one network has half of that.
const SHARE_OF_NOBODY: usize = 16;

/// The share of `max_bodies`, beside it, for heads of HTTP/1.1.
const SHARE_OF_HEADS: usize = 16;

/// From so many entries on, unused entries are dropped.
const MANY: usize = 4096;

/// The number of the next client.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl UsageLimits {
    /// No client has used anything yet.
    pub fn new(limits: Limits) -> Self {
        let special = limits.special.iter().map(|limit| &limit.allowance);
        let classes: Vec<ClientClass> = special
            .chain([&limits.each])
            .map(ClientClass::new)
            .collect();
        let longest = classes.iter().map(|class| class.allowance.max_body).max();
        Self {
            memory: RequestMemory::new(limits.max_bodies.max(longest.unwrap_or_default())),
            memory_of_nobody: RequestMemory::new(limits.max_bodies / SHARE_OF_NOBODY),
            heads: HeadMemory::new(limits.max_bodies / SHARE_OF_HEADS),
            classes,
            nobody: ClientClass::new(&Allowance {
                in_flight: usize::MAX,
                rate: None,
                max_body: 0,
                ..limits.each.clone()
            }),
            strangers: RateBuckets(Mutex::default()),
            tokens: RateBuckets(Mutex::default()),
            limits,
        }
    }

    /// The configured limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes of heads, bodies and answers that are held now.
    pub fn memory(&self) -> usize {
        self.memory.taken() + self.memory_of_nobody.taken() + self.heads.taken()
    }

    /// The memory that connections of HTTP/1.1 may hold for heads.
    pub fn heads(&self) -> &Arc<HeadMemory> {
        &self.heads
    }

    /// Counts a request of a client, or says when to come back. `name` is the client's name in the count.
    pub fn admit(&self, client: &ClientIdentity, name: &str) -> Result<AdmittedRequest, Refusal> {
        let means = |limit: &Limit| limit.clients.iter().any(|who| client.is(who));
        let special = &self.limits.special;
        let class = special.iter().position(means).unwrap_or(special.len());
        self.classes[class].admit(name, &self.memory)
    }

    /// Counts a request of an unknown client. The memory of its answers is counted by network, apart from that of
    /// clients.
    pub fn admit_nobody(&self, address: Address) -> Result<AdmittedRequest, Refusal> {
        let network = network(address).map_or_else(String::new, |network| network.to_string());
        self.nobody.admit(&network, &self.memory_of_nobody)
    }

    /// Counts a request without a known identity.
    pub fn stranger(&self, address: Address) -> Result<(), Refusal> {
        let rate = self.limits.stranger_rate;
        self.strangers.take(network(address), rate)
    }

    /// Counts an unknown token of a client that its connection identifies: it does not count against others at its
    /// address.
    pub fn unknown_token(&self, client: &str) -> Result<(), Refusal> {
        let rate = self.limits.stranger_rate;
        self.tokens.take(client.to_owned(), rate)
    }
}

impl<K: Eq + Hash> RateBuckets<K> {
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

impl ClientClass {
    fn new(allowance: &Allowance) -> Self {
        Self {
            allowance: Arc::new(allowance.clone()),
            clients: Mutex::default(),
        }
    }

    fn admit(&self, name: &str, memory: &Arc<RequestMemory>) -> Result<AdmittedRequest, Refusal> {
        let client = self.client(name);
        let before = client.in_flight.fetch_add(1, Ordering::AcqRel);
        let admitted = AdmittedRequest {
            charge: MemoryCharge::new(memory, &client.memory, self.allowance.max_body),
            client,
            allowance: Arc::clone(&self.allowance),
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

    fn client(&self, name: &str) -> Arc<ClientUsage> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(name) {
            return Arc::clone(client);
        }
        if is_crowded(clients.len()) {
            clients.retain(|_, client| client.is_in_use());
        }
        let Allowance { rate, burst, .. } = *self.allowance;
        let client = Arc::new(ClientUsage {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            bucket: rate.map(|rate| bucket(rate, burst)),
            in_flight: AtomicUsize::new(0),
            memory: Arc::default(),
        });
        clients.insert(name.to_owned(), Arc::clone(&client));
        client
    }
}

impl AdmittedRequest {
    /// The number of its client.
    pub fn client(&self) -> u64 {
        self.client.number
    }

    /// The longest body of this request.
    pub fn max_body(&self) -> usize {
        self.allowance.max_body
    }

    /// Takes memory for more of its body or for results, until this is dropped.
    pub fn hold(&self, bytes: usize) -> Result<(), Refusal> {
        self.charge.grow(bytes).map_err(|full| {
            Refusal::later(
                match full {
                    MemoryFull::Client => {
                        "there is no room for this request beside the others of this client"
                    }
                    MemoryFull::All => "there is no room for this request beside those of others",
                },
                None,
            )
        })
    }

    /// Replaces the memory of the body by that of an answer, until this is dropped.
    pub fn hold_answer(&self, bytes: usize) -> Result<(), Refusal> {
        self.charge.answer(bytes).map_err(|full| {
            Refusal::later(
                match full {
                    MemoryFull::Client => {
                        "there is no room for the answer beside those that this client has not taken yet"
                    }
                    MemoryFull::All => {
                        "there is no room for the answer beside those that clients have not taken yet"
                    }
                },
                None,
            )
        })
    }
}

impl ClientUsage {
    /// True if forgetting the client would reset a quota.
    fn is_in_use(&self) -> bool {
        let spent = || {
            self.bucket
                .as_ref()
                .is_some_and(|bucket| take(bucket).is_err())
        };
        self.in_flight.load(Ordering::Acquire) > 0 || spent()
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        self.client.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// True at every doubling, to keep the cost of the search low.
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

/// The owner of one IPv6 address has 2^64 of them (RFC 6177).
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
