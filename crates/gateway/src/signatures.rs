//! Sends signatures to the pool: as many at once as keep its tokens busy. The others wait in a fair queue.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_config::GatewaySection;
use hsmux_pool::{Claim, Owner, Pool};
use hsmux_service::Estimates;
use hsmux_token::{Done, Error, Kind, Members, ObjectId, Request, Result};
use parking_lot::Mutex;

use crate::fair_queue::{FairQueue, Grant, Limits, Ticket};

/// All signatures of the gateway.
pub struct Signatures {
    pool: Arc<Pool>,
    estimates: Estimates,
    queue: Mutex<FairQueue<Members, QueuedSignature>>,
}

/// A waiting signature.
struct QueuedSignature {
    request: Request,
    state: Arc<Mutex<RequestState>>,
}

/// The state of a request for a signature.
#[derive(Default)]
enum RequestState {
    #[default]
    New,
    Waits(Ticket),
    Asked(#[allow(dead_code)] Claim),
    /// Its requester has gone.
    Unwanted,
}

/// A request for a signature. Dropping it cancels the request.
pub struct SignatureRequest {
    signatures: Arc<Signatures>,
    state: Arc<Mutex<RequestState>>,
}

thread_local! {
    /// While this thread dispatches: members that may have room since.
    static DISPATCHING: RefCell<Option<Vec<Members>>> = const { RefCell::new(None) };
}

/// Resets [`DISPATCHING`], also after a panic.
struct DispatchReset;

impl Drop for DispatchReset {
    fn drop(&mut self) {
        DISPATCHING.take();
    }
}

impl Signatures {
    /// The signatures of a gateway with this configuration.
    pub fn new(section: &GatewaySection, pool: &Arc<Pool>, estimates: Estimates) -> Arc<Self> {
        let all = pool.options().queue;
        let limits = Limits {
            all,
            of_source: section.source_signatures.unwrap_or_else(|| share(all)),
        };
        Arc::new(Self {
            pool: Arc::clone(pool),
            estimates,
            queue: Mutex::new(FairQueue::new(limits)),
        })
    }

    /// Learns how long uses of these keys wait. They are all that will be used. Blocks.
    pub fn learn(&self, keys: impl Iterator<Item = ObjectId>) {
        let keys: Vec<_> = keys.collect();
        self.estimates.learn(&keys);
    }

    /// Requests a signature by this key, in the client's turn.
    pub fn ask(
        self: &Arc<Self>,
        key: &ObjectId,
        client: IpAddr,
        request: Request,
    ) -> SignatureRequest {
        let (estimate, now) = (self.estimates.of(key), Instant::now());
        let (members, capacity) = (estimate.members, estimate.capacity);
        let wanted = SignatureRequest {
            signatures: Arc::clone(self),
            state: Arc::default(),
        };
        let mut queue = self.queue.lock();
        if let Some(grant) = queue.begin(&members, client, capacity, now) {
            drop(queue);
            let request = self.tracked(grant, request);
            *wanted.state.lock() =
                RequestState::Asked(self.pool.submit_claimed(request, Owner::Gateway, None));
            return wanted;
        }
        let state = Arc::clone(&wanted.state);
        let entry = QueuedSignature { request, state };
        let evicted = match queue.push(&members, client, entry, now) {
            Ok((ticket, evicted)) => {
                *wanted.state.lock() = RequestState::Waits(ticket);
                evicted
            }
            Err(refused) => Some(refused),
        };
        drop(queue);
        if let Some(QueuedSignature { request, .. }) = evicted {
            request.done.complete(Err(busy()));
        }
        // There may be room by now.
        self.dispatch(&members);
        wanted
    }

    /// The pool that signs.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Records that a client has completed its handshake with a signature.
    pub fn completed(&self, client: IpAddr) {
        self.queue.lock().completed(client, Instant::now());
    }

    /// Estimates the wait of a new signature for this client, if anything is known. An error: the queue would refuse
    /// it.
    pub fn wait_estimate(&self, key: &ObjectId, client: IpAddr) -> Result<Option<Duration>> {
        let queue = self.queue.lock();
        if !queue.admits(client) {
            return Err(busy());
        }
        let estimate = self.estimates.of(key);
        let before = queue.before(&estimate.members, client, Instant::now());
        drop(queue);
        Ok(estimate.wait(before))
    }

    /// Begins the next signatures while there is room. The pool may answer one at once, which calls this again. The
    /// inner call only leaves a note, so that the stack does not grow.
    fn dispatch(self: &Arc<Self>, members: &Members) {
        let is_inner = DISPATCHING.with_borrow_mut(|pending| {
            let is_inner = pending.is_some();
            pending.get_or_insert_default().push(*members);
            is_inner
        });
        if is_inner {
            return;
        }
        let _reset = DispatchReset;
        while let Some(members) = DISPATCHING.with_borrow_mut(|pending| pending.as_mut()?.pop()) {
            while self.dispatch_one(&members) {}
        }
    }

    fn dispatch_one(self: &Arc<Self>, members: &Members) -> bool {
        let capacity = self.estimates.key_capacity(members);
        let next = self.queue.lock().next(members, capacity, Instant::now());
        let Some((grant, QueuedSignature { request, state })) = next else {
            return false;
        };
        let request = self.tracked(grant, request);
        let claim = self.pool.submit_claimed(request, Owner::Gateway, None);
        let mut state = state.lock();
        if matches!(*state, RequestState::Unwanted) {
            drop(state);
            drop(claim);
        } else {
            *state = RequestState::Asked(claim);
        }
        true
    }

    /// Makes a request begin the next one when it ends.
    fn tracked(self: &Arc<Self>, grant: Grant<Members>, request: Request) -> Request {
        let (signatures, done) = (Arc::clone(self), request.done);
        let done = Done::new(move |result| {
            let mut queue = signatures.queue.lock();
            queue.end(&grant, result.is_ok(), Instant::now());
            drop(queue);
            signatures.dispatch(grant.group());
            done.complete(result);
        });
        Request { done, ..request }
    }
}

impl Drop for SignatureRequest {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *self.state.lock(), RequestState::Unwanted);
        if let RequestState::Waits(ticket) = state {
            let entry = self.signatures.queue.lock().cancel(ticket);
            drop(entry);
        }
    }
}

/// Default limit of one source: three quarters of all.
pub fn share(all: usize) -> usize {
    (all - all / 4).max(1)
}

fn busy() -> Error {
    let message = "too many handshakes of this client's address, or of all, wait for signatures: [gateway] \
                   source_signatures, [pool] queue";
    Error::pool(Kind::Busy, message)
}
