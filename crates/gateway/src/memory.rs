//! One memory budget for all connections: their requests, and the parts of bodies that are not yet passed on.
//!
//! A connection may hold an eighth of what is left of three quarters. Beyond that its bodies wait, and its requests
//! after the first are refused. The last quarter gives each connection one part of a body. While some of that quarter
//! is taken, stalled connections are closed.

mod part;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hsmux_edge::{HeadMemory, Requests};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use part::UnsentPart;
pub use part::{cost, own};

/// A connection may hold an eighth of what is left.
const SHARE: usize = 8;

/// The last quarter of the budget is for connections that hold no part of a body yet.
const LAST: usize = 4;

/// A connection is stalled if it takes longer to pass on as much as it holds.
const STALLED: Duration = Duration::from_secs(5);

/// How often stalled connections are looked for, and waiting bodies are tried again.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_FOR_WAITING: Duration = Duration::from_millis(10);

/// The budget.
pub struct MemoryBudget {
    limit: usize,
    used: AtomicUsize,
    /// Budget for heads of HTTP/1.1, beside this one.
    heads: Arc<HeadMemory>,
    /// All connections that have held some.
    accounts: Mutex<Vec<Weak<MemoryAccount>>>,
    /// Connections whose bodies wait.
    waiting: Mutex<Vec<Weak<MemoryAccount>>>,
    waits: Notify,
}

/// What one connection holds.
pub struct MemoryAccount {
    memory: Arc<MemoryBudget>,
    held: AtomicUsize,
    /// The part of `held` that the client has yet to be sent.
    unsent: AtomicUsize,
    /// Requests so far, requests under way, and bodies that are being received.
    begun: AtomicUsize,
    requests: AtomicUsize,
    uploads: AtomicUsize,
    /// Bytes in the buffer of HTTP/1.1, which are released together.
    unflushed: AtomicUsize,
    is_listed: AtomicBool,
    is_waiting: AtomicBool,
    progress: Mutex<SendProgress>,
    wakers: Mutex<Vec<Waker>>,
    close: Notify,
}

/// Since when a connection has not sent its client as much as it holds.
struct SendProgress {
    since: Instant,
    sent: usize,
}

/// Bytes that a connection holds until this is dropped.
pub struct Charge {
    account: Arc<MemoryAccount>,
    bytes: usize,
}

/// One of a connection's requests or uploads, and the bytes that it holds.
pub struct Admission {
    charge: Charge,
    counted: fn(&MemoryAccount) -> &AtomicUsize,
}

impl MemoryBudget {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
            heads: HeadMemory::new(limit / LAST),
            accounts: Mutex::default(),
            waiting: Mutex::default(),
            waits: Notify::new(),
        })
    }

    /// The account of a new connection.
    pub fn account(self: &Arc<Self>) -> Arc<MemoryAccount> {
        Arc::new(MemoryAccount {
            memory: Arc::clone(self),
            held: AtomicUsize::new(0),
            unsent: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            uploads: AtomicUsize::new(0),
            unflushed: AtomicUsize::new(0),
            is_listed: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            progress: Mutex::new(SendProgress::begin()),
            wakers: Mutex::default(),
            close: Notify::new(),
        })
    }

    /// How many bytes are held.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Budget for heads of HTTP/1.1.
    pub fn heads(&self) -> &Arc<HeadMemory> {
        &self.heads
    }

    fn left(&self) -> usize {
        self.limit.saturating_sub(self.used())
    }

    /// Wakes waiting bodies and closes stalled connections, for ever. `closed` is called for each of these.
    pub async fn watch(self: Arc<Self>, closed: impl Fn()) {
        let mut looked = Instant::now();
        loop {
            if self.waiting.lock().is_empty() {
                let _ = timeout(LOOK, self.waits.notified()).await;
            } else {
                sleep(LOOK_FOR_WAITING).await;
            }
            self.wake();
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                for account in self.stalled() {
                    account.close.notify_one();
                    closed();
                }
            }
        }
    }

    /// Wakes the bodies of connections that may hold more.
    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for account in waiting.iter().filter_map(Weak::upgrade) {
            if account.may_hold_more() {
                // Reset before they are woken: a body that waits again goes back to the list.
                account.is_waiting.store(false, SeqCst);
                account.wake();
            } else {
                self.waiting.lock().push(Arc::downgrade(&account));
            }
        }
    }

    /// Stalled connections to close until the last quarter of the budget is left. Those that hold most come first.
    fn stalled(&self) -> Vec<Arc<MemoryAccount>> {
        let mut accounts = self.accounts.lock();
        accounts.retain(|account| account.strong_count() > 0);
        let wanted = (self.limit / LAST).saturating_sub(self.left());
        if wanted == 0 {
            return Vec::new();
        }
        let all = accounts.iter().filter_map(Weak::upgrade);
        let mut stalled: Vec<_> = all.filter(|account| account.is_stalled()).collect();
        stalled.sort_by_key(|account| std::cmp::Reverse(account.held.load(Relaxed)));
        let mut freed = 0;
        let needed = stalled.into_iter().take_while(|account| {
            let is_needed = freed < wanted;
            freed += account.held.load(Relaxed);
            is_needed
        });
        needed.collect()
    }
}

impl MemoryAccount {
    /// Admits a request that holds so many bytes. `None`: nothing is left for it. The first request of a connection is
    /// free: the number of connections is limited itself.
    pub fn request(self: &Arc<Self>, bytes: usize) -> Option<Admission> {
        self.begun.fetch_add(1, Relaxed);
        self.admit(|account| &account.requests, 1..=usize::MAX, bytes)
    }

    /// The connection's requests.
    pub fn requests(&self) -> Requests {
        Requests {
            begun: self.begun.load(Relaxed),
            // The rest of a body may still be read after the answer.
            is_under_way: self.requests.load(Relaxed) + self.uploads.load(Relaxed) > 0,
        }
    }

    /// `true` if a request is under way, or a part of an answer is yet to be sent.
    pub fn is_busy(&self) -> bool {
        self.requests().is_under_way || self.unsent.load(Relaxed) > 0
    }

    /// Admits a request's body, of which so many bytes may be received before they are passed on. `window` is the limit
    /// of all bodies of the connection together.
    pub fn upload(self: &Arc<Self>, bytes: usize, window: usize) -> Option<Admission> {
        let others = window.checked_div(bytes).unwrap_or(0).saturating_sub(1);
        self.admit(|account| &account.uploads, 0..=others, bytes)
    }

    /// Admits one more. It is charged if the number of others is in `charged`.
    fn admit(
        self: &Arc<Self>,
        counted: fn(&Self) -> &AtomicUsize,
        charged: std::ops::RangeInclusive<usize>,
        bytes: usize,
    ) -> Option<Admission> {
        let others = counted(self).fetch_add(1, Relaxed);
        let is_charged = charged.contains(&others);
        // Dropping it undoes the count in any case.
        let mut admission = Admission {
            charge: self.charge(0),
            counted,
        };
        if is_charged {
            if !self.may_hold_several() {
                return None;
            }
            admission.charge.grow(bytes);
        }
        Some(admission)
    }

    /// Charges so many bytes, even if none are left.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let mut charge = Charge {
            account: Arc::clone(self),
            bytes: 0,
        };
        charge.grow(bytes);
        charge
    }

    /// Charges a part of a body until its last byte is gone, however it is split.
    pub fn hold(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.begin(cost(&bytes));
        Bytes::from_owner(UnsentPart::new(bytes, self))
    }

    /// Charges so many bytes until the connection's buffer is empty.
    pub fn hold_until_flushed(self: &Arc<Self>, bytes: usize) {
        self.begin(bytes);
        self.unflushed.fetch_add(bytes, Relaxed);
    }

    /// The connection's buffer is empty.
    pub fn flushed(&self) {
        if self.unflushed.load(Relaxed) > 0 {
            self.end(self.unflushed.swap(0, Relaxed));
        }
    }

    /// Ready when the connection may read more from a back end or a file.
    pub fn poll_ready(self: &Arc<Self>, context: &Context<'_>) -> Poll<()> {
        if self.may_hold_more() {
            return Poll::Ready(());
        }
        {
            let mut wakers = self.wakers.lock();
            if wakers.is_empty() {
                self.restart_if_idle();
            }
            // A body may be polled again before it is woken.
            if !wakers.iter().any(|it| it.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
        }
        if !self.is_waiting.swap(true, SeqCst) {
            self.memory.waiting.lock().push(Arc::downgrade(self));
            self.memory.waits.notify_one();
        }
        Poll::Pending
    }

    /// Returns when the connection has to end: it is stalled, and others need what it holds.
    pub async fn ended(&self) {
        self.close.notified().await;
    }

    fn may_hold_more(&self) -> bool {
        let is_first = self.unsent.load(Relaxed) == 0;
        self.may_hold_several() || is_first && self.memory.left() > 0
    }

    /// Without the last quarter of the budget.
    fn may_hold_several(&self) -> bool {
        let left = self.memory.left().saturating_sub(self.memory.limit / LAST);
        self.held.load(Relaxed) < left / SHARE
    }

    fn is_stalled(&self) -> bool {
        let is_busy = self.unsent.load(Relaxed) > 0 || !self.wakers.lock().is_empty();
        let holds = self.held.load(Relaxed) > 0;
        is_busy && holds && self.progress.lock().since.elapsed() > STALLED
    }

    fn restart_if_idle(&self) {
        if self.unsent.load(Relaxed) == 0 {
            *self.progress.lock() = SendProgress::begin();
        }
    }

    /// Charges bytes that the client is to be sent.
    fn begin(self: &Arc<Self>, bytes: usize) {
        self.restart_if_idle();
        self.unsent.fetch_add(bytes, Relaxed);
        self.add(bytes);
    }

    /// Releases bytes that the client was sent.
    fn end(&self, bytes: usize) {
        self.unsent.fetch_sub(bytes, Relaxed);
        {
            let mut progress = self.progress.lock();
            progress.sent += bytes;
            if progress.sent >= self.held.load(Relaxed) {
                *progress = SendProgress::begin();
            }
        }
        self.release(bytes);
    }

    fn add(self: &Arc<Self>, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.held.fetch_add(bytes, Relaxed);
        self.memory.used.fetch_add(bytes, Relaxed);
        if !self.is_listed.swap(true, Relaxed) {
            self.memory.accounts.lock().push(Arc::downgrade(self));
        }
    }

    fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.memory.used.fetch_sub(bytes, Relaxed);
        self.held.fetch_sub(bytes, Relaxed);
        if self.may_hold_more() {
            self.wake();
        }
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Charge {
    /// Charges so many bytes more.
    pub fn grow(&mut self, bytes: usize) {
        self.account.add(bytes);
        self.bytes += bytes;
    }
}

impl SendProgress {
    fn begin() -> Self {
        Self {
            since: Instant::now(),
            sent: 0,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.release(self.bytes);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        (self.counted)(&self.charge.account).fetch_sub(1, Relaxed);
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        // The bytes that were never flushed. Every other charge has kept the account alive.
        self.memory
            .used
            .fetch_sub(self.unflushed.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests;
