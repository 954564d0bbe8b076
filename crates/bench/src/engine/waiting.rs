//! Workers that wait as futures: many share a thread, so that the client costs the machine little.

use std::future::Future;
use std::pin::Pin;
use std::sync::Barrier;

use bytes::Bytes;
use futures_util::future::join_all;
use hsmux_token::{Error, Kind, Result};
use tokio::runtime::Builder;

use super::round::Board;
use super::worker::{Pace, Tally};

/// What a [`Caller`] answers later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// One caller that waits without a thread.
pub trait Caller {
    /// What is done before the clock starts: connecting. What fails here fails again in the first call.
    fn prepare(&mut self) -> Later<'_, ()>;

    /// One operation.
    fn call(&mut self) -> Later<'_, Result<Bytes>>;
}

/// Makes the caller of an index; it stays on the thread that it is made on.
pub type Callers<'a> = dyn Fn(usize) -> Box<dyn Caller + 'a> + Sync + 'a;

/// The workers of one thread.
pub fn work(
    workers: impl Iterator<Item = usize>,
    board: &Board<'_>,
    callers: &Callers<'_>,
    begin: &Barrier,
) -> Vec<Tally> {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            begin.wait();
            let message = format!("no event loop for the callers: {error}");
            return vec![Tally::failed(&Error::pool(Kind::Environment, message))];
        }
    };
    let mut callers: Vec<_> = workers.map(callers).collect();
    let preparing = callers.iter_mut().map(|caller| caller.prepare());
    runtime.block_on(async { join_all(preparing).await });
    begin.wait();
    let working = callers.iter_mut().map(|caller| one(&mut **caller, board));
    runtime.block_on(async { join_all(working).await })
}

/// One worker, until the board has no more for it.
async fn one(caller: &mut dyn Caller, board: &Board<'_>) -> Tally {
    let mut tally = Tally::new();
    let pace = Pace::new(board);
    while let Some(claimed) = board.claim() {
        let Some(start) = pace.start_of_waiting(claimed).await else {
            break;
        };
        let answer = caller.call().await;
        let took = start.elapsed();
        board.tell(answer.is_ok());
        tally.record(took, answer, false);
    }
    tally.end(board);
    tally
}
