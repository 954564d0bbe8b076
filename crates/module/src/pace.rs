//! Durations of the vendor's calls, by kind of work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsmux_token::sync::Mutex;
use hsmux_token::{ObjectId, OperationKind, OperationPace};

/// The number of operations that are considered.
const WINDOW: usize = 32;

/// With fewer samples the duration is unknown.
const FEW: u64 = 8;

/// Kinds of work that are measured; further ones are not.
const KINDS: usize = 64;

/// Measurements of this process. They start with the first query, so that pools without watching pay no clock and no
/// lock.
#[derive(Default)]
pub(crate) struct Paces {
    asked: AtomicBool,
    kinds: Mutex<HashMap<OperationKind, Window>>,
}

struct Window {
    key: ObjectId,
    count: u64,
    last: [u64; WINDOW],
}

impl Paces {
    /// The start of an operation, if it is measured.
    pub fn begin(&self) -> Option<Instant> {
        self.asked.load(Ordering::Relaxed).then(Instant::now)
    }

    /// Records a successful operation.
    pub fn note(&self, work: OperationKind, key: ObjectId, took: Duration) {
        let mut kinds = self.kinds.lock();
        if kinds.len() >= KINDS && !kinds.contains_key(&work) {
            return;
        }
        let window = kinds.entry(work).or_insert(Window {
            key,
            count: 0,
            last: [0; WINDOW],
        });
        window.key = key;
        window.last[window.count as usize % WINDOW] = took.as_nanos() as u64;
        window.count += 1;
    }

    /// The durations of kinds of work with enough samples.
    pub fn all(&self) -> Vec<OperationPace> {
        self.asked.store(true, Ordering::Relaxed);
        let kinds = self.kinds.lock();
        let full = kinds.iter().filter(|(_, w)| w.count >= FEW);
        full.map(|(work, window)| {
            let len = WINDOW.min(window.count as usize);
            let mut sorted = window.last[..len].to_vec();
            sorted.sort_unstable();
            OperationPace {
                work: *work,
                key: window.key,
                nanos: sorted[len / 4],
                count: window.count,
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsmux_token::{Verb, ck};

    #[test]
    fn a_few_slow_ones_do_not_count_and_many_do() {
        let paces = Paces::default();
        let work = OperationKind::new(Verb::Encrypt, ck::CKM_AES_CBC, 256, 256);
        let key = ObjectId::of_secret_key(ck::CKK_AES, b"id", b"kcv");
        let note = |micros| paces.note(work, key, Duration::from_micros(micros));
        (1..FEW).for_each(|_| note(20));
        assert_eq!(paces.all(), []);
        note(20);
        assert_eq!(paces.all()[0].nanos, 20_000);
        (FEW..WINDOW as u64).for_each(|_| note(20));
        (0..WINDOW / 2).for_each(|_| note(5000));
        assert_eq!(paces.all()[0].nanos, 20_000);
        (0..WINDOW / 2).for_each(|_| note(60));
        assert_eq!(paces.all()[0].nanos, 60_000);
        assert_eq!(paces.all()[0].count, 2 * WINDOW as u64);
    }
}
