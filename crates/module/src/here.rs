//! Short work on the thread that asks for it: handing an operation to another thread takes longer than a fast
//! token does.
//!
//! Whoever asks ([`Token::submit_here`](hsmux_token::Token::submit_here)) has other threads that go on when the
//! vendor's call does not return; so that one of them is always left, no more operations than [`most`] run here
//! at once in the whole process.
//!
//! [`Paces`](crate::pace::Paces) know more, for those who compare workers; they have a lock, and measure only while
//! somebody asks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hsmux_token::Operation;

/// Work that usually takes longer is handed over: others of its thread wait so long at most.
const SHORT: Duration = Duration::from_millis(1);

/// No thread waits so long for a CPU, usually: what takes longer than this once is long.
const LONG: Duration = Duration::from_millis(10);

/// Kinds of work that are told apart; those that fall into the same place push each other out.
const KINDS: usize = 64;

/// A hand-over costs more.
const YIELDS: usize = 4;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// How many have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// How many operations run at once on the threads that ask for them: one for each CPU.
pub fn most() -> usize {
    static CPUS: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *CPUS
}

/// How many operations run so now, and how many have ended, of the whole process.
pub fn running_and_ended() -> (usize, u64) {
    (
        RUNNING.load(Ordering::Relaxed),
        ENDED.load(Ordering::Relaxed),
    )
}

/// The right to run one operation on this thread.
pub(crate) struct Turn(());

impl Turn {
    /// `None` where as many run already as may: most likely one of them waits for a CPU, so this thread
    /// gives up its own a few times before.
    pub fn take() -> Option<Self> {
        let room = |running: usize| (running < most()).then_some(running + 1);
        (0..YIELDS).find_map(|before| {
            if before > 0 {
                std::thread::yield_now();
            }
            let taken = RUNNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
            taken.is_ok().then(|| Self(()))
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        ENDED.fetch_add(1, Ordering::Relaxed);
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long each kind of work usually takes: what waits for a CPU or for others takes longer now and then, so
/// that one that was longer counts little, and one that was shorter much.
pub(crate) struct Usual([AtomicU64; KINDS]);

/// What takes about the same time each time.
pub(crate) struct Task {
    place: usize,
    /// Tells it from others in its place; never 0.
    mark: u64,
}

impl Task {
    /// Of an operation that uses a key of the token.
    pub fn of(operation: &Operation) -> Option<Self> {
        let (verb, key, mechanism, data) = operation.key_use()?;
        let size = usize::BITS - data.len().leading_zeros();
        let mut hasher = DefaultHasher::new();
        (verb, mechanism.kind, key, size).hash(&mut hasher);
        let hash = hasher.finish();
        Some(Self {
            place: hash as usize % KINDS,
            mark: hash >> 32 | 1,
        })
    }
}

impl Default for Usual {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; KINDS])
    }
}

impl Usual {
    /// Whether it is known to be short.
    pub fn is_short(&self, task: &Task) -> bool {
        let known = self.0[task.place].load(Ordering::Relaxed);
        known >> 32 == task.mark && u128::from(known & LOW) <= SHORT.as_nanos()
    }

    /// A task that began then has ended.
    pub fn note(&self, task: &Task, begun: Instant) {
        let took = u64::try_from(begun.elapsed().as_nanos()).map_or(LOW, |took| took.min(LOW));
        let known = self.0[task.place].load(Ordering::Relaxed);
        let usual = if known >> 32 != task.mark || u128::from(took) > LONG.as_nanos() {
            took
        } else {
            let before = known & LOW;
            match took.checked_sub(before) {
                Some(more) => before + more.min(before) / 8,
                None => before - (before - took) / 4,
            }
        };
        // Of two at the same moment one is lost, which does not matter.
        self.0[task.place].store(task.mark << 32 | usual.min(LOW), Ordering::Relaxed);
    }
}

/// Where the nanoseconds are; four seconds and more are all the same.
const LOW: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use hsmux_token::{Blob, Mechanism, ObjectId, Verb, ck};

    fn task(mechanism: u64) -> Task {
        let key = ObjectId::of_secret_key(ck::CKK_AES, b"id", b"kcv");
        let operation = Operation::Use {
            verb: Verb::Encrypt,
            key: key.into(),
            mechanism: Mechanism::plain(mechanism),
            data: Blob::from(vec![0; 256]),
        };
        Task::of(&operation).unwrap()
    }

    fn ago(micros: u64) -> Instant {
        Instant::now()
            .checked_sub(Duration::from_micros(micros))
            .unwrap()
    }

    #[test]
    fn what_is_not_known_is_not_short() {
        let usual = Usual::default();
        assert!(!usual.is_short(&task(ck::CKM_AES_CBC)));
        usual.note(&task(ck::CKM_AES_CBC), ago(10));
        assert!(usual.is_short(&task(ck::CKM_AES_CBC)));
        assert!(!usual.is_short(&task(ck::CKM_AES_GCM)));
    }

    #[test]
    fn one_that_waits_for_a_cpu_does_not_count_and_many_do() {
        let usual = Usual::default();
        let task = task(ck::CKM_AES_CBC);
        usual.note(&task, ago(10));
        usual.note(&task, ago(4_000));
        assert!(usual.is_short(&task));
        (0..80).for_each(|_| usual.note(&task, ago(4_000)));
        assert!(!usual.is_short(&task));
        (0..20).for_each(|_| usual.note(&task, ago(10)));
        assert!(usual.is_short(&task));
    }

    #[test]
    fn a_token_that_hangs_once_is_slow_until_it_has_shown_otherwise() {
        let usual = Usual::default();
        let task = task(ck::CKM_AES_CBC);
        usual.note(&task, ago(10));
        usual.note(&task, ago(1_000_000));
        assert!(!usual.is_short(&task));
        (0..10).for_each(|_| usual.note(&task, ago(10)));
        assert!(!usual.is_short(&task));
        (0..40).for_each(|_| usual.note(&task, ago(10)));
        assert!(usual.is_short(&task));
    }

    #[test]
    fn so_many_run_here_and_no_more() {
        let turns: Vec<_> = std::iter::from_fn(Turn::take).take(1000).collect();
        assert!(turns.len() <= most());
        assert!(Turn::take().is_none());
        drop(turns);
        assert!(Turn::take().is_some());
    }
}
