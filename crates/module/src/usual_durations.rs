//! How long each kind of work usually takes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hsmux_token::Operation;

/// Work that takes no longer is short: preparing it pays.
const SHORT: Duration = Duration::from_millis(1);

/// A thread rarely waits this long for a CPU, so one longer duration is enough to call the work long.
const LONG: Duration = Duration::from_millis(10);

/// Kinds of work with separate durations; kinds with the same slot replace each other.
const KINDS: usize = 64;

/// The usual duration of each kind of work. Waits for a CPU lengthen some samples,
/// so that a longer sample counts little, and a shorter one much.
pub(crate) struct UsualDurations([AtomicU64; KINDS]);

/// A kind of work with similar durations.
pub(crate) struct Task {
    slot: usize,
    /// Distinguishes kinds that share a slot; never 0.
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
            slot: hash as usize % KINDS,
            mark: hash >> 32 | 1,
        })
    }
}

impl Default for UsualDurations {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; KINDS])
    }
}

impl UsualDurations {
    /// Whether work of this kind is known to be short.
    pub fn is_short(&self, task: &Task) -> bool {
        let known = self.0[task.slot].load(Ordering::Relaxed);
        known >> 32 == task.mark && u128::from(known & LOW) <= SHORT.as_nanos()
    }

    /// Records the duration of a finished task.
    pub fn note(&self, task: &Task, begun: Instant) {
        let took = u64::try_from(begun.elapsed().as_nanos()).map_or(LOW, |took| took.min(LOW));
        let known = self.0[task.slot].load(Ordering::Relaxed);
        let usual = if known >> 32 != task.mark || u128::from(took) > LONG.as_nanos() {
            took
        } else {
            let before = known & LOW;
            match took.checked_sub(before) {
                Some(more) => before + more.min(before) / 8,
                None => before - (before - took) / 4,
            }
        };
        // Two updates at the same moment may lose one, which is harmless.
        self.0[task.slot].store(task.mark << 32 | usual.min(LOW), Ordering::Relaxed);
    }
}

/// The bits of the nanoseconds; they saturate at four seconds.
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
        let usual = UsualDurations::default();
        assert!(!usual.is_short(&task(ck::CKM_AES_CBC)));
        usual.note(&task(ck::CKM_AES_CBC), ago(10));
        assert!(usual.is_short(&task(ck::CKM_AES_CBC)));
        assert!(!usual.is_short(&task(ck::CKM_AES_GCM)));
    }

    #[test]
    fn one_that_waits_for_a_cpu_does_not_count_and_many_do() {
        let usual = UsualDurations::default();
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
        let usual = UsualDurations::default();
        let task = task(ck::CKM_AES_CBC);
        usual.note(&task, ago(10));
        usual.note(&task, ago(1_000_000));
        assert!(!usual.is_short(&task));
        (0..10).for_each(|_| usual.note(&task, ago(10)));
        assert!(!usual.is_short(&task));
        (0..40).for_each(|_| usual.note(&task, ago(10)));
        assert!(usual.is_short(&task));
    }
}
