//! Workers that are futures: many share a thread, so that the client uses little CPU.

use std::cell::RefCell;
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::Barrier;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::{join_all, select};
use hsmux_token::{Error, Kind, Result};
use tokio::runtime::Builder;

use super::round::{RoundState, SAMPLE_INTERVAL};
use super::worker::{StartTimes, Tally};

/// A future of an [`AsyncCaller`].
pub type CallerFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A caller without a thread.
pub trait AsyncCaller {
    /// Connects before the clock starts. An error here occurs again in the first call.
    fn prepare(&mut self) -> CallerFuture<'_, ()>;

    /// Whether it has more operations.
    fn more(&self) -> bool {
        true
    }

    /// Delays before an operation, outside its latency: a user's thinking time.
    fn think(&mut self) -> CallerFuture<'_, ()> {
        Box::pin(ready(()))
    }

    /// One operation.
    fn call(&mut self) -> CallerFuture<'_, Result<Bytes>>;
}

/// The treatment of unfinished operations at the end or on an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Waits for them, and counts them.
    Finish,
    /// Drops them uncounted.
    Cut,
}

/// Creates the caller of an index; it stays on the thread that creates it.
pub type AsyncCallers<'a> = dyn Fn(usize) -> Box<dyn AsyncCaller + 'a> + Sync + 'a;

/// The workers of one thread, which share a tally to save memory.
pub fn work(
    workers: impl Iterator<Item = usize>,
    round: &RoundState<'_>,
    callers: &AsyncCallers<'_>,
    ending: Ending,
    begin: &Barrier,
) -> Tally {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            begin.wait();
            let message = format!("no event loop for the callers: {error}");
            return Tally::failed(&Error::pool(Kind::Environment, message));
        }
    };
    let mut callers: Vec<_> = workers.map(callers).collect();
    let preparing = callers.iter_mut().map(|caller| caller.prepare());
    runtime.block_on(async { join_all(preparing).await });
    let tally = RefCell::new(Tally::ready());
    begin.wait();
    let working = callers
        .iter_mut()
        .map(|caller| one(&mut **caller, round, &tally));
    runtime.block_on(async {
        let working = pin!(join_all(working));
        match ending {
            Ending::Finish => drop(working.await),
            Ending::Cut => drop(select(working, pin!(over(round))).await),
        }
    });
    let mut tally = tally.into_inner();
    tally.end(round);
    tally
}

/// One worker, until it or the board has no more operations.
async fn one(caller: &mut dyn AsyncCaller, round: &RoundState<'_>, tally: &RefCell<Tally>) {
    let start_times = StartTimes::new(round);
    while caller.more()
        && let Some(number) = round.next_operation()
    {
        caller.think().await;
        let Some(start) = start_times.start_of_waiting(number).await else {
            break;
        };
        let answer = caller.call().await;
        let took = start.elapsed();
        round.tell(answer.is_ok());
        tally.borrow_mut().record(took, answer, false);
    }
}

/// Waits for the end or an interruption.
async fn over(round: &RoundState<'_>) {
    while !round.stopped() {
        let sample = Instant::now() + SAMPLE_INTERVAL;
        let wake = round.end().map_or(sample, |end| end.min(sample));
        if wake <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(wake.into()).await;
    }
}
