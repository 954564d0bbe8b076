//! A worker beside a fresh one: the same work, in turns, while nobody else asks anything of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{Operation, Result, Work};

use crate::core::Core;
use crate::record::Connection;

/// How often each does the work: enough for its pace to be of this work alone.
const TIMES: u32 = 32;

/// Slow work is done for this long, but so often at least.
const AT_MOST: Duration = Duration::from_millis(20);
const ENOUGH: u32 = 8;

/// How long what runs on a worker may take to end before it is compared.
const QUIET_WITHIN: Duration = Duration::from_secs(1);

/// The fresh one is better if it takes less than this of the time.
const BETTER: f64 = 0.85;

impl Core {
    /// Whether `fresh` is faster than `old`, which is given nothing else meanwhile; `None` where they
    /// cannot be compared.
    pub(super) fn is_faster(
        self: &Arc<Self>,
        fresh: &Arc<Connection>,
        old: &Arc<Connection>,
        sample: &Operation,
    ) -> Result<Option<bool>> {
        let _held = Held::new(self, old);
        // What programs ask of it directly would count against it.
        self.end_lines_of(old.generation);
        if !self.is_quiet(old) {
            return Ok(None);
        }
        // It measures from the moment on in which it is first asked.
        fresh.token.pace();
        // Once may be by chance.
        let first = race(fresh, old, sample)?;
        match first {
            Some(true) => race(fresh, old, sample),
            other => Ok(other),
        }
    }

    /// Waits until nothing runs there.
    fn is_quiet(&self, connection: &Connection) -> bool {
        let until = Instant::now() + QUIET_WITHIN;
        loop {
            let activity = self.scheduler.lock().activity(connection.record.index);
            match activity {
                None => return false,
                Some(activity) if activity.running == 0 => return true,
                Some(_) if Instant::now() >= until => return false,
                Some(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

/// Whether the fresh one is faster now.
fn race(fresh: &Connection, old: &Connection, sample: &Operation) -> Result<Option<bool>> {
    let mut spent = [Duration::ZERO; 2];
    for times in 1..=TIMES {
        for (side, spent) in [fresh, old].into_iter().zip(&mut spent) {
            let begun = Instant::now();
            side.token
                .execute(sample, begun + side.record.seat.timeout)?;
            *spent += begun.elapsed();
        }
        if times >= ENOUGH && spent[0] + spent[1] > AT_MOST {
            // A millisecond each, beside which the way to a worker is nothing. Their own paces look back further than
            // on so few.
            if spent[0] < spent[1].mul_f64(BETTER) {
                return Ok(Some(true));
            }
            break;
        }
    }
    let (fresh, old) = (paces(fresh, sample), paces(old, sample));
    let compared = fresh.iter().find_map(|(work, fresh)| {
        let (_, old) = old.iter().find(|(other, _)| other == work)?;
        Some((*fresh as f64) < *old as f64 * BETTER)
    });
    Ok(compared)
}

/// What a connection says of this kind of work.
fn paces(connection: &Connection, sample: &Operation) -> Vec<(Work, u64)> {
    let Operation::Use {
        verb,
        mechanism,
        data,
        ..
    } = sample
    else {
        return Vec::new();
    };
    let of = Work::new(*verb, mechanism.kind, data.len(), 0);
    let paces = connection.token.pace().into_iter();
    let alike = paces.filter(|p| {
        Work {
            output: 0,
            ..p.work
        } == of
    });
    alike.map(|pace| (pace.work, pace.nanos)).collect()
}

/// While it lives a connection is given no requests.
struct Held<'a> {
    core: &'a Arc<Core>,
    connection: &'a Arc<Connection>,
}

impl<'a> Held<'a> {
    fn new(core: &'a Arc<Core>, connection: &'a Arc<Connection>) -> Self {
        let held = Self { core, connection };
        held.set(true);
        held
    }

    fn set(&self, held: bool) {
        let (index, generation) = (self.connection.record.index, self.connection.generation);
        let mut scheduler = self.core.scheduler.lock();
        scheduler.hold(index, generation, held);
        let grants = scheduler.fill(Instant::now());
        drop(scheduler);
        self.core.hand_out(grants);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}
