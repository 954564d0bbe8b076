//! A thread that rests until the others do not come back.
//!
//! Handshakes are work, and what signs for them may run on the threads that carry them out: as many threads as CPUs
//! do most of it, and each one more takes time for being woken. But tokens' modules may hang on all of them.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use hsmux_pool::Beat;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;

/// One thread of a runtime, which rests.
pub struct Reserve {
    runtime: Handle,
    call: Sender<()>,
    relieved: Arc<Notify>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Rests,
    Called,
    /// It goes to rest: what it may have taken on just before, another one has to see.
    Returns,
}

impl Reserve {
    /// The first thread of the runtime that looks rests, until this is dropped. The runtime does not end before that.
    pub fn new(runtime: &Handle) -> Self {
        let (call, called) = channel();
        let relieved = Arc::new(Notify::new());
        let relief = Arc::clone(&relieved);
        runtime.spawn(async move {
            // It blocks its thread: that is what it is for. The task that this thread has woken last no other one
            // can take over; whoever has yielded comes after it.
            yield_now().await;
            while called.recv().is_ok() {
                relief.notified().await;
                yield_now().await;
            }
        });
        Self {
            runtime: runtime.clone(),
            call,
            relieved,
            state: State::Returns,
        }
    }

    /// Calls it where the others stand, and lets it go when all have come back. As many as work besides it may sign at
    /// once in the whole process (`here.rs` of the module crate): where all of them hang nobody else ends anything.
    pub fn beat(&mut self, beat: Beat) {
        let before = self.state;
        self.state = match (before, beat) {
            (State::Rests | State::Returns, Beat::Stands) => {
                let _ = self.call.send(());
                State::Called
            }
            (State::Called, Beat::Quiet) => {
                self.relieved.notify_one();
                State::Returns
            }
            (State::Returns, _) => State::Rests,
            (state, _) => state,
        };
        if beat == Beat::Stands || before == State::Returns {
            drop(self.runtime.spawn(async {}));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// Occupies a thread until the answer is dropped.
    fn hang(runtime: &Runtime) -> Sender<()> {
        let (release, released) = channel::<()>();
        let (tell, told) = channel();
        runtime.spawn(async move {
            let _ = tell.send(());
            let _ = released.recv();
        });
        told.recv_timeout(SOON).expect("a thread takes it");
        release
    }

    fn serves(runtime: &Runtime, patience: Duration) -> bool {
        let (tell, told) = channel();
        runtime.spawn(async move {
            let _ = tell.send(());
        });
        told.recv_timeout(patience).is_ok()
    }

    /// Occupies the thread that does not rest, as soon as there is only one of those.
    fn hang_the_others(runtime: &Runtime) -> Sender<()> {
        let give_up = Instant::now() + SOON;
        while Instant::now() < give_up {
            let hung = hang(runtime);
            if !serves(runtime, Duration::from_millis(50)) {
                return hung;
            }
        }
        panic!("it does not rest");
    }

    #[test]
    fn it_serves_while_the_others_stand_and_again_when_they_do_once_more() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let mut reserve = Reserve::new(runtime.handle());
        for _ in 0..3 {
            assert!(serves(&runtime, SOON), "one thread is there");
            let hung = hang_the_others(&runtime);
            reserve.beat(Beat::Stands);
            assert!(serves(&runtime, SOON), "it has been called");
            drop(hung);
            for beat in [Beat::Busy, Beat::Quiet, Beat::Quiet] {
                reserve.beat(beat);
            }
        }
        drop(reserve);
        runtime.shutdown_timeout(SOON);
    }
}
