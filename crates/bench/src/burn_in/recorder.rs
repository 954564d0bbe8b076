//! Samples and saves the state while the callers work.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::swap;
use std::time::Duration;

use hsmux_token::Result;

use super::ledger::Ledger;
use super::state::{BurnInState, Share};
use super::{BurnInOptions, PoolCounts, PoolCountsQuery};
use crate::memory::Memory;

/// Writes the state file of a run.
pub struct Recorder<'a> {
    options: &'a BurnInOptions,
    ledger: &'a Ledger,
    /// The time of earlier runs.
    before: Duration,
    inner: RefCell<RecorderState<'a>>,
}

struct RecorderState<'a> {
    state: BurnInState,
    memory: Memory,
    shares: MemberShares<'a>,
    saved: Duration,
}

impl<'a> Recorder<'a> {
    /// Starts a run; fails if the state cannot be written.
    pub fn begin(
        mut state: BurnInState,
        ledger: &'a Ledger,
        options: &'a BurnInOptions,
    ) -> Result<Self> {
        state.runs += 1;
        let mut memory = Memory::resume(std::mem::take(&mut state.memory), &options.processes);
        let mut shares = MemberShares::new(options.pool_counts.as_deref());
        shares.update(&mut state, &mut memory);
        let before = Duration::try_from_secs_f64(state.elapsed_s).unwrap_or_default();
        state.write(&options.state)?;
        Ok(Self {
            options,
            ledger,
            before,
            inner: RefCell::new(RecorderState {
                state,
                memory,
                shares,
                saved: Duration::ZERO,
            }),
        })
    }

    /// Samples and saves after `elapsed` of this run; returns the time of all runs.
    pub fn record(&self, elapsed: Duration) -> Duration {
        let inner = &mut *self.inner.borrow_mut();
        self.sample(inner, elapsed);
        if elapsed.saturating_sub(inner.saved) >= self.options.save_every {
            inner.saved = elapsed;
            // A full disk may have space again at the next attempt; only the last save must succeed.
            let _ = self.save(inner);
        }
        self.before + elapsed
    }

    /// Ends the run after `elapsed`.
    pub fn end(self, elapsed: Duration) -> Result<BurnInState> {
        let mut inner = self.inner.borrow_mut();
        self.sample(&mut inner, elapsed);
        self.save(&mut inner)?;
        drop(inner);
        let RecorderState {
            mut state, memory, ..
        } = self.inner.into_inner();
        state.memory = memory.samples;
        Ok(state)
    }

    fn sample(&self, inner: &mut RecorderState<'_>, elapsed: Duration) {
        let at_s = (self.before + elapsed).as_secs_f64();
        inner.memory.sample(at_s);
        let course = &mut inner.state.course;
        course.push(at_s, self.ledger.performed() as f64);
        inner.state.elapsed_s = at_s;
    }

    fn save(&self, inner: &mut RecorderState<'_>) -> Result<()> {
        self.ledger.copy_to(&mut inner.state);
        inner.shares.update(&mut inner.state, &mut inner.memory);
        // Swapped, not copied: copies would grow with the run and appear in its memory.
        swap(&mut inner.state.memory, &mut inner.memory.samples);
        let written = inner.state.write(&self.options.state);
        swap(&mut inner.state.memory, &mut inner.memory.samples);
        written
    }
}

/// The members' work, from counters that restart with each daemon.
struct MemberShares<'a> {
    query: Option<&'a PoolCountsQuery>,
    last: BTreeMap<String, [u64; 2]>,
}

impl<'a> MemberShares<'a> {
    fn new(query: Option<&'a PoolCountsQuery>) -> Self {
        let last = BTreeMap::new();
        Self { query, last }
    }

    /// Adds the members' work since the last query. The first query only sets the start.
    fn update(&mut self, state: &mut BurnInState, memory: &mut Memory) {
        let Some(PoolCounts { members, processes }) = self.query.and_then(|query| query()) else {
            return;
        };
        memory.adopt(&processes);
        for member in members {
            let now = [member.served, member.failed];
            let last = self.last.insert(member.name.clone(), now).unwrap_or(now);
            let share = share(&mut state.members, member.name);
            share.served += since(last[0], now[0]);
            share.failed += since(last[1], now[1]);
        }
    }
}

/// A counter below its last value has restarted.
fn since(last: u64, now: u64) -> u64 {
    now.checked_sub(last).unwrap_or(now)
}

fn share(shares: &mut Vec<Share>, name: String) -> &mut Share {
    let known = shares.iter().position(|share| share.name == name);
    let at = known.unwrap_or_else(|| {
        shares.push(Share {
            name,
            served: 0,
            failed: 0,
        });
        shares.len() - 1
    });
    &mut shares[at]
}
