//! Compares a worker with a fresh one: both do the same work in turns, and get no other requests.

use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{Operation, OperationKind, Result};

use crate::clock;
use crate::core::Core;
use crate::record::SeatConnection;

/// The most runs of each side. After so many the moving average of the pace has this work only.
const TIMES: u32 = 32;

/// The longest time of a comparison, and the fewest runs.
const AT_MOST: Duration = Duration::from_millis(20);
const ENOUGH: u32 = 8;

/// The longest wait until nothing runs on the old worker.
const QUIET_WITHIN: Duration = Duration::from_secs(1);

/// The fresh worker is better if it takes less than this share of the time.
const BETTER: f64 = 0.85;

impl Core {
    /// True if `fresh` is faster than `old`, which gets no requests meanwhile. `None` if they cannot be compared.
    pub(super) fn is_faster(
        self: &Arc<Self>,
        fresh: &Arc<SeatConnection>,
        old: &Arc<SeatConnection>,
        sample: &Operation,
    ) -> Result<Option<bool>> {
        let _paused = PausedConnection::new(self, old);
        // Operations of direct connections would slow it down.
        self.end_direct_of(old.generation);
        if !self.is_quiet(old) {
            return Ok(None);
        }
        // The first call starts the measurement.
        fresh.token.pace();
        // One win may be chance.
        let first = race(fresh, old, sample)?;
        match first {
            Some(true) => race(fresh, old, sample),
            other => Ok(other),
        }
    }

    /// Waits until nothing runs on the connection.
    fn is_quiet(&self, connection: &SeatConnection) -> bool {
        let until = clock::now() + QUIET_WITHIN;
        loop {
            let activity = self.scheduler.lock().activity(connection.record.index);
            match activity {
                None => return false,
                Some(activity) if activity.running == 0 => return true,
                Some(_) if clock::now() >= until => return false,
                Some(_) => clock::sleep(Duration::from_micros(200)),
            }
        }
    }
}

/// True if the fresh worker is faster in this comparison.
fn race(fresh: &SeatConnection, old: &SeatConnection, sample: &Operation) -> Result<Option<bool>> {
    let mut spent = [Duration::ZERO; 2];
    for times in 1..=TIMES {
        for (side, spent) in [fresh, old].into_iter().zip(&mut spent) {
            let begun = clock::now();
            side.token
                .execute(sample, begun + side.record.seat.timeout)?;
            *spent += clock::now() - begun;
        }
        if times >= ENOUGH && spent[0] + spent[1] > AT_MOST {
            // An operation takes a millisecond, so the time here is exact enough. The paces of the workers average over
            // more operations than these.
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

/// The paces that a connection has measured of this kind of work.
fn paces(connection: &SeatConnection, sample: &Operation) -> Vec<(OperationKind, u64)> {
    let Operation::Use {
        verb,
        mechanism,
        data,
        ..
    } = sample
    else {
        return Vec::new();
    };
    let of = OperationKind::new(*verb, mechanism.kind, data.len(), 0);
    let paces = connection.token.pace().into_iter();
    let alike = paces.filter(|p| {
        OperationKind {
            output: 0,
            ..p.work
        } == of
    });
    alike.map(|pace| (pace.work, pace.nanos)).collect()
}

/// A connection gets no requests while this lives.
struct PausedConnection<'a> {
    core: &'a Arc<Core>,
    connection: &'a Arc<SeatConnection>,
}

impl<'a> PausedConnection<'a> {
    fn new(core: &'a Arc<Core>, connection: &'a Arc<SeatConnection>) -> Self {
        let held = Self { core, connection };
        held.set(true);
        held
    }

    fn set(&self, held: bool) {
        let (index, generation) = (self.connection.record.index, self.connection.generation);
        let mut scheduler = self.core.scheduler.lock();
        scheduler.hold(index, generation, held);
        let grants = scheduler.fill(clock::now());
        drop(scheduler);
        self.core.hand_out(grants);
    }
}

impl Drop for PausedConnection<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}
