//! A token in memory for tests: it answers by a closure, with injected latencies and faults.
//!
//! ```
//! use hsmux_token::{Operation, Token, fake::FakeToken};
//! use std::time::{Duration, Instant};
//!
//! let token = FakeToken::builder("one").latency(Duration::from_millis(1)).build();
//! let bytes = token.execute(&Operation::Random { len: 8 }, Instant::now() + Duration::from_secs(1));
//! assert_eq!(bytes.unwrap().into_bytes().unwrap().len(), 8);
//! ```

mod builder;
mod random;
mod seeds;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex};
use crate::{
    Batch, DirectConnection, Error, Kind, Object, ObjectChanges, ObjectId, ObjectRef, Operation,
    OperationPace, Outcome, Request, Result, Snapshot, Token, TokenInfo,
};

pub use builder::Builder;
pub use random::Random;
pub use seeds::run_seeds;

/// What a token answers to an operation.
pub type Answer = dyn Fn(&Operation) -> Result<Outcome> + Send + Sync;

/// See the module's page. `submit` without latency answers on the caller's thread, otherwise on
/// one thread for each lane, so that a lane serves one operation at a time as a device does.
pub struct FakeToken(Arc<Inner>);

struct Inner {
    info: Arc<TokenInfo>,
    answer: Box<Answer>,
    takes_connections: bool,
    state: Mutex<FakeState>,
    changed: Condvar,
}

#[derive(Default)]
struct FakeState {
    latency: Duration,
    snapshot: Arc<Snapshot>,
    /// What was told by the last reading or look.
    told: Arc<Snapshot>,
    pace: Vec<OperationPace>,
    paced: usize,
    waiting: VecDeque<Request>,
    threads: u32,
    fault: Option<(Error, usize)>,
    hanging: bool,
    ended: Option<Error>,
    lost: Vec<Box<dyn FnOnce(Error) + Send>>,
    calls: usize,
    busy: Duration,
    aborts: usize,
    reads: usize,
    unread: usize,
}

impl FakeToken {
    /// A token with this label and serial number, one lane, no latency and no objects.
    pub fn builder(label: &str) -> Builder {
        Builder::new(label)
    }

    /// From now on each operation takes this long.
    pub fn set_latency(&self, latency: Duration) {
        self.0.state.lock().latency = latency;
    }

    /// From now on the token holds these objects; its epoch grows.
    pub fn set_objects(&self, objects: Vec<Object>) {
        let mut state = self.0.state.lock();
        let epoch = state.snapshot.epoch + 1;
        state.snapshot = Arc::new(Snapshot {
            epoch,
            objects,
            is_partial: false,
        });
    }

    /// What it says from now on of how long its work takes.
    pub fn set_pace(&self, pace: Vec<OperationPace>) {
        self.0.state.lock().pace = pace;
    }

    /// The next `times` operations fail with this error; `usize::MAX` for all.
    pub fn fail(&self, error: Error, times: usize) {
        self.0.state.lock().fault = (times > 0).then_some((error, times));
    }

    /// From now on no operation is answered, until [`Self::heal`] or the connection ends.
    pub fn hang(&self) {
        self.0.state.lock().hanging = true;
    }

    /// No more faults; what hangs is answered.
    pub fn heal(&self) {
        let mut state = self.0.state.lock();
        state.hanging = false;
        state.fault = None;
        self.0.changed.notify_all();
    }

    /// The connection ends by itself, as when a worker dies.
    pub fn lose(&self, reason: &str) {
        self.0.end(&Error::lost(reason), true);
    }

    /// How many operations were started.
    pub fn calls(&self) -> usize {
        self.0.state.lock().calls
    }

    /// How long operations were under way, all taken together.
    pub fn busy(&self) -> Duration {
        self.0.state.lock().busy
    }

    /// How often all objects were read.
    pub fn reads(&self) -> usize {
        self.0.state.lock().reads
    }

    /// How many operations were for an object that no reading or look had told: a token looks for it then.
    pub fn unread(&self) -> usize {
        self.0.state.lock().unread
    }

    /// How often it was asked how long its work takes.
    pub fn paced(&self) -> usize {
        self.0.state.lock().paced
    }

    /// How often the pool has ended the connection.
    pub fn aborts(&self) -> usize {
        self.0.state.lock().aborts
    }
}

impl Token for FakeToken {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::clone(&self.0.info)
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        let mut state = self.0.state.lock();
        state.reads += 1;
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        state.told = Arc::clone(&state.snapshot);
        Ok(Arc::clone(&state.snapshot))
    }

    fn look(&self) -> Result<ObjectChanges> {
        let mut state = self.0.state.lock();
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        let now = Arc::clone(&state.snapshot);
        let before = std::mem::replace(&mut state.told, Arc::clone(&now));
        let (old, new) = (&before.objects, &now.objects);
        let here = |object: &&Object| new.iter().any(|other| other.id == object.id);
        Ok(ObjectChanges {
            is_partial: false,
            made: new.iter().filter(|o| !old.contains(o)).cloned().collect(),
            gone: old.iter().filter(|o| !here(o)).map(|o| o.id).collect(),
        })
    }

    fn pace(&self) -> Vec<OperationPace> {
        let mut state = self.0.state.lock();
        state.paced += 1;
        state.pace.clone()
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            let mut state = self.0.state.lock();
            if let Some(error) = state.ended.clone() {
                drop(state);
                request.done.complete(Err(error));
            } else if state.latency.is_zero() && !state.hanging {
                drop(state);
                let result = self.0.run(&request.operation, request.deadline);
                request.done.complete(result);
            } else {
                state.waiting.push_back(request);
                if state.threads < self.0.info.lanes {
                    state.threads += 1;
                    let inner = Arc::clone(&self.0);
                    std::thread::spawn(move || inner.serve_lane());
                }
                self.0.changed.notify_all();
            }
        }
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        self.0.run(operation, deadline)
    }

    fn on_lost(&self, lost: Box<dyn FnOnce(Error) + Send>) {
        let mut state = self.0.state.lock();
        match state.ended.clone() {
            Some(error) => {
                drop(state);
                lost(error);
            }
            None => state.lost.push(lost),
        }
    }

    fn hand_over(&self, _: &DirectConnection<'_>) -> Result<()> {
        if self.takes_connections() {
            return Ok(());
        }
        let message = "this fake token takes no connections over";
        Err(Error::request(Kind::Unsupported, message))
    }

    fn takes_connections(&self) -> bool {
        self.0.takes_connections
    }

    fn abort(&self, reason: &str) {
        self.0.state.lock().aborts += 1;
        self.0.end(&Error::lost(reason), false);
    }
}

impl Drop for FakeToken {
    fn drop(&mut self) {
        self.0
            .end(&Error::lost("the fake token was dropped"), false);
    }
}

impl Inner {
    fn run(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        let begun = Instant::now();
        let result = self.serve(operation, deadline);
        self.state.lock().busy += begun.elapsed();
        result
    }

    /// One operation from start to end, on this thread.
    fn serve(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        let mut state = self.state.lock();
        state.calls += 1;
        let told = |id: &ObjectId| state.told.objects.iter().any(|object| object.id == *id);
        let read = operation
            .objects()
            .all(|object| !matches!(object, ObjectRef::Token(id) if !told(id)));
        state.unread += usize::from(!read);
        if !state.latency.is_zero() {
            let until = Instant::now() + state.latency;
            while state.ended.is_none() && !self.changed.wait_until(&mut state, until) {}
        }
        while state.hanging && state.ended.is_none() {
            if self.changed.wait_until(&mut state, deadline) {
                return Err(Error::token(Kind::Deadline, "the fake token hangs"));
            }
        }
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        if let Some((error, times)) = state.fault.take() {
            if times > 1 {
                let left = if times == usize::MAX {
                    times
                } else {
                    times - 1
                };
                state.fault = Some((error.clone(), left));
            }
            return Err(error);
        }
        drop(state);
        (self.answer)(operation)
    }

    fn serve_lane(&self) {
        loop {
            let mut state = self.state.lock();
            let request = loop {
                if state.ended.is_some() {
                    return;
                }
                match state.waiting.pop_front() {
                    Some(request) => break request,
                    None => self.changed.wait(&mut state),
                }
            };
            drop(state);
            // The pool decides about deadlines; a device does not know them.
            let never = Instant::now() + Duration::from_secs(86_400);
            let result = self.run(&request.operation, never);
            request.done.complete(result);
        }
    }

    fn end(&self, error: &Error, by_itself: bool) {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(error.clone());
        let waiting = std::mem::take(&mut state.waiting);
        let lost = std::mem::take(&mut state.lost);
        self.changed.notify_all();
        drop(state);
        for request in waiting {
            request.done.complete(Err(error.clone()));
        }
        if by_itself {
            for tell in lost {
                tell(error.clone());
            }
        }
    }
}

/// Writes a file that its owner alone may read.
pub fn write_secret(path: &std::path::Path, bytes: impl AsRef<[u8]>) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let options = options.create(true).truncate(true).write(true).mode(0o600);
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(bytes.as_ref()));
    written.expect("write a secret");
}
