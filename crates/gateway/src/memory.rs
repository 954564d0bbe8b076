//! One memory budget for all connections: what they have asked for, and the parts of bodies that are not yet passed on.
//!
//! A connection may hold an eighth of what is left of three quarters. Past that its bodies wait, and its requests beyond
//! the first are refused. The last quarter gives each connection one part of a body. Stalled connections are closed
//! while some of it is taken.

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

use part::Unsent;
pub use part::{cost, own};

/// A connection may hold this part of what is left.
const SHARE: usize = 8;

/// This part of the budget is the last: it is for connections that hold no part of a body yet.
const LAST: usize = 4;

/// A connection is stalled if it takes longer to pass on as much as it holds.
const STALLED: Duration = Duration::from_secs(5);

/// Stalled connections are looked for so often, and bodies that wait for others' memory.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_FOR_WAITING: Duration = Duration::from_millis(10);

/// The budget.
pub struct Memory {
    limit: usize,
    used: AtomicUsize,
    /// Beside it: what connections of HTTP/1.1 hold of heads.
    heads: Arc<HeadMemory>,
    /// Every connection that has ever held some.
    accounts: Mutex<Vec<Weak<Account>>>,
    /// Those whose bodies wait.
    waiting: Mutex<Vec<Weak<Account>>>,
    waits: Notify,
}

/// What one connection holds.
pub struct Account {
    memory: Arc<Memory>,
    held: AtomicUsize,
    /// What of that the client has yet to be sent.
    unsent: AtomicUsize,
    /// Requests so far, those under way, and those of them whose bodies are received.
    begun: AtomicUsize,
    requests: AtomicUsize,
    uploads: AtomicUsize,
    /// Bytes in the buffer of HTTP/1.1, which are given back together.
    unflushed: AtomicUsize,
    is_listed: AtomicBool,
    is_waiting: AtomicBool,
    progress: Mutex<Progress>,
    wakers: Mutex<Vec<Waker>>,
    close: Notify,
}

/// When a connection has last sent its client as much as it held.
struct Progress {
    since: Instant,
    sent: usize,
}

/// Some bytes of a connection, until this is dropped.
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

/// A place among a connection's requests or uploads, and what it holds.
pub struct Admission {
    charge: Charge,
    counted: fn(&Account) -> &AtomicUsize,
}

impl Memory {
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

    /// For a new connection.
    pub fn account(self: &Arc<Self>) -> Arc<Account> {
        Arc::new(Account {
            memory: Arc::clone(self),
            held: AtomicUsize::new(0),
            unsent: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            uploads: AtomicUsize::new(0),
            unflushed: AtomicUsize::new(0),
            is_listed: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            progress: Mutex::new(Progress::begin()),
            wakers: Mutex::default(),
            close: Notify::new(),
        })
    }

    /// How many bytes are held.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// What connections of HTTP/1.1 hold of heads.
    pub fn heads(&self) -> &Arc<HeadMemory> {
        &self.heads
    }

    fn left(&self) -> usize {
        self.limit.saturating_sub(self.used())
    }

    /// Wakes bodies that wait, and closes stalled connections, for ever. `closed` is told of each.
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

    /// Wakes what waits on connections that may go on.
    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for account in waiting.iter().filter_map(Weak::upgrade) {
            if account.may_hold_more() {
                // Before the others are woken: one that comes now is on the list again.
                account.is_waiting.store(false, SeqCst);
                account.wake();
            } else {
                self.waiting.lock().push(Arc::downgrade(&account));
            }
        }
    }

    /// Stalled connections that have to end, so that the last part of the budget is left: those that hold most come first.
    fn stalled(&self) -> Vec<Arc<Account>> {
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

impl Account {
    /// A place for a request that holds so many bytes; `None`: nothing is left for it. The first request of a connection
    /// is free: connections are bounded themselves.
    pub fn request(self: &Arc<Self>, bytes: usize) -> Option<Admission> {
        self.begun.fetch_add(1, Relaxed);
        self.admit(|account| &account.requests, 1..=usize::MAX, bytes)
    }

    /// Its requests.
    pub fn requests(&self) -> Requests {
        Requests {
            begun: self.begun.load(Relaxed),
            // The rest of a body may be read after the answer.
            is_under_way: self.requests.load(Relaxed) + self.uploads.load(Relaxed) > 0,
        }
    }

    /// Whether a request is under way, or its client has yet to be sent a part of an answer.
    pub fn is_busy(&self) -> bool {
        self.requests().is_under_way || self.unsent.load(Relaxed) > 0
    }

    /// A place for a request's body, of which so many bytes may be received before they are passed on. `window`: what the
    /// bodies of a connection may have together.
    pub fn upload(self: &Arc<Self>, bytes: usize, window: usize) -> Option<Admission> {
        let others = window.checked_div(bytes).unwrap_or(0).saturating_sub(1);
        self.admit(|account| &account.uploads, 0..=others, bytes)
    }

    /// `charged`: how many of its kind there are already where one more costs something.
    fn admit(
        self: &Arc<Self>,
        counted: fn(&Self) -> &AtomicUsize,
        charged: std::ops::RangeInclusive<usize>,
        bytes: usize,
    ) -> Option<Admission> {
        let others = counted(self).fetch_add(1, Relaxed);
        let is_charged = charged.contains(&others);
        // Given back in any case.
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

    /// Holds so many bytes more, whether there are some left or not.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let mut charge = Charge {
            account: Arc::clone(self),
            bytes: 0,
        };
        charge.grow(bytes);
        charge
    }

    /// Holds a part of a body until its last byte is gone, however it is split.
    pub fn hold(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.begin(cost(&bytes));
        Bytes::from_owner(Unsent::new(bytes, self))
    }

    /// Holds so many bytes until all that was written to the connection has left its buffer.
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

    /// Comes when the connection may read more from a back end or a file.
    pub fn poll_ready(self: &Arc<Self>, context: &Context<'_>) -> Poll<()> {
        if self.may_hold_more() {
            return Poll::Ready(());
        }
        {
            let mut wakers = self.wakers.lock();
            if wakers.is_empty() {
                self.restart_if_idle();
            }
            // A body may be asked again before it is woken.
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

    /// Comes when the connection has to end, for it is stalled and others need what it holds.
    pub async fn ended(&self) {
        self.close.notified().await;
    }

    fn may_hold_more(&self) -> bool {
        let is_first = self.unsent.load(Relaxed) == 0;
        self.may_hold_several() || is_first && self.memory.left() > 0
    }

    /// The last part of the budget is not for this.
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
            *self.progress.lock() = Progress::begin();
        }
    }

    /// Holds what the client is to be sent.
    fn begin(self: &Arc<Self>, bytes: usize) {
        self.restart_if_idle();
        self.unsent.fetch_add(bytes, Relaxed);
        self.add(bytes);
    }

    /// The client has been sent so much.
    fn end(&self, bytes: usize) {
        self.unsent.fetch_sub(bytes, Relaxed);
        {
            let mut progress = self.progress.lock();
            progress.sent += bytes;
            if progress.sent >= self.held.load(Relaxed) {
                *progress = Progress::begin();
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
    /// Holds so many bytes more.
    pub fn grow(&mut self, bytes: usize) {
        self.account.add(bytes);
        self.bytes += bytes;
    }
}

impl Progress {
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

impl Drop for Account {
    fn drop(&mut self) {
        // Was never flushed. All else has kept the account alive.
        self.memory
            .used
            .fetch_sub(self.unflushed.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests;
