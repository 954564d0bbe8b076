//! Connections: how many there may be, and which one makes room for the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// All connections of all listeners.
pub struct Connections {
    most: usize,
    slots: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<ConnectionActivity>>>,
    next: AtomicU64,
    leaving: Arc<AtomicBool>,
}

/// The slot of a connection, until this is dropped.
pub struct ConnectionSlot {
    all: Arc<Connections>,
    number: u64,
    activity: Arc<ConnectionActivity>,
    _permit: OwnedSemaphorePermit,
}

/// The activity of one connection.
pub struct ConnectionActivity {
    opened: Instant,
    /// Requests whose answer the client has not taken.
    running: AtomicUsize,
    /// Requests without an answer yet.
    owed: AtomicUsize,
    /// True while there are bytes that the client does not take.
    stuck: AtomicBool,
    /// Requests so far.
    requests: AtomicUsize,
    /// The time of the last bytes that the client has taken, in milliseconds after `opened`.
    moved: AtomicU64,
    told: AtomicBool,
    go: Notify,
}

/// A request that runs on a connection, until this is dropped.
pub struct RunningRequest {
    activity: Arc<ConnectionActivity>,
    owed: bool,
}

/// A connection that was told to close has so long, before another one is told.
const EVICTION_WAIT: Duration = Duration::from_millis(50);

impl Connections {
    /// Places for so many.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            slots: Arc::new(Semaphore::new(most)),
            open: Mutex::default(),
            next: AtomicU64::new(0),
            leaving: Arc::default(),
        })
    }

    /// A slot for a new connection. If all are taken, the longest idle connection loses its slot; if all are busy,
    /// this waits.
    pub async fn slot(self: &Arc<Self>) -> ConnectionSlot {
        let permit = loop {
            let slots = || Arc::clone(&self.slots);
            if let Ok(permit) = slots().try_acquire_owned() {
                break permit;
            }
            self.make_room();
            if let Ok(Ok(permit)) =
                tokio::time::timeout(EVICTION_WAIT, slots().acquire_owned()).await
            {
                break permit;
            }
        };
        let activity = Arc::new(ConnectionActivity {
            opened: Instant::now(),
            running: AtomicUsize::new(0),
            owed: AtomicUsize::new(0),
            stuck: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
            told: AtomicBool::new(false),
            go: Notify::new(),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(number, Arc::clone(&activity));
        ConnectionSlot {
            all: Arc::clone(self),
            number,
            activity,
            _permit: permit,
        }
    }

    /// From now on each answer closes its connection.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    /// Waits until no connection is left.
    pub async fn ended(&self) {
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        // The semaphore is never closed, so there is no error.
        let _ = self.slots.acquire_many(all).await;
    }

    fn make_room(&self) {
        let open = self.open.lock();
        let idle = open
            .values()
            .filter(|one| one.is_quiet() && !one.told.load(Ordering::Acquire));
        if let Some(one) = idle.min_by_key(|one| one.quiet_since()) {
            one.told.store(true, Ordering::Release);
            one.go.notify_one();
        }
    }
}

impl ConnectionSlot {
    /// The activity of the connection.
    pub fn activity(&self) -> &Arc<ConnectionActivity> {
        &self.activity
    }

    /// Waits until it has to make room.
    pub async fn evicted(&self) {
        self.activity.go.notified().await;
    }

    /// True if the service is about to end.
    pub fn leaving(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.all.leaving)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.all.open.lock().remove(&self.number);
    }
}

impl ConnectionActivity {
    /// A request begins.
    pub fn begin(self: &Arc<Self>) -> RunningRequest {
        self.running.fetch_add(1, Ordering::AcqRel);
        self.owed.fetch_add(1, Ordering::AcqRel);
        self.requests.fetch_add(1, Ordering::AcqRel);
        RunningRequest {
            activity: Arc::clone(self),
            owed: true,
        }
    }

    /// True if no request runs and the client has taken all answers.
    pub fn is_quiet(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0 && !self.stuck.load(Ordering::Acquire)
    }

    /// True if the client waits for an answer.
    pub fn is_owed(&self) -> bool {
        self.owed.load(Ordering::Acquire) > 0
    }

    /// Notes that the client takes no bytes, or takes some again.
    pub fn stuck(&self, stuck: bool) {
        self.moved();
        self.stuck.store(stuck, Ordering::Release);
    }

    /// The client has taken something.
    fn moved(&self) {
        let moved = u64::try_from(self.opened.elapsed().as_millis());
        self.moved
            .store(moved.unwrap_or(u64::MAX), Ordering::Release);
    }

    /// How many requests it has had.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// The time when it was opened, or when the client last took something.
    pub fn quiet_since(&self) -> Instant {
        self.opened + Duration::from_millis(self.moved.load(Ordering::Acquire))
    }
}

impl RunningRequest {
    /// The answer is there: from now on the broker waits for the client.
    pub fn answered(&mut self) {
        if std::mem::take(&mut self.owed) {
            self.moved();
            self.activity.owed.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The client has taken a part of it.
    pub fn moved(&self) {
        self.activity.moved();
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.answered();
        self.moved();
        self.activity.running.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_one_that_was_idle_longest_makes_room() {
        let all = Connections::new(3);
        let busy = all.slot().await;
        let _running = busy.activity().begin();
        let (second, third) = (all.slot().await, all.slot().await);
        // Both have the same age by the clock's resolution; the third has been active since.
        while second.activity().quiet_since() == third.activity().quiet_since() {
            drop(third.activity().begin());
        }
        let newcomer = tokio::spawn({
            let all = Arc::clone(&all);
            async move { all.slot().await }
        });
        second.evicted().await;
        drop(second);
        let newcomer = newcomer.await.unwrap();
        assert!(!busy.activity().told.load(Ordering::Acquire));
        drop((busy, third, newcomer));
        all.ended().await;
    }
}
