//! A thread that rests until the others do not come back.
//!
//! Handshakes are work, and what signs for them may run on the threads that carry them out: as many threads as CPUs
//! do most of it, and each one more takes time for being woken. But tokens' modules may hang on all of them.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use hsmux_pool::Beat;
use tokio::runtime::Handle;
use tokio::sync::Notify;

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
    /// It goes back to rest: what it may have taken on just before, another one has to see.
    Returns,
}

impl Reserve {
    /// The first thread of the runtime that looks rests, until this is dropped. The runtime does not end before that.
    pub fn new(runtime: &Handle) -> Self {
        let (call, called) = channel();
        let relieved = Arc::new(Notify::new());
        let relief = Arc::clone(&relieved);
        runtime.spawn(async move {
            // It blocks its thread: that is what it is for.
            while called.recv().is_ok() {
                relief.notified().await;
            }
        });
        Self {
            runtime: runtime.clone(),
            call,
            relieved,
            state: State::Rests,
        }
    }

    /// Calls it where the others stand, and lets it go when all have come back.
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
    use std::time::Duration;

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

    #[test]
    fn it_serves_while_the_others_stand_and_again_when_they_do_once_more() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let mut reserve = Reserve::new(runtime.handle());
        for _ in 0..3 {
            assert!(serves(&runtime, SOON), "one thread is there");
            let hung = hang(&runtime);
            assert!(!serves(&runtime, Duration::from_millis(50)), "it rests");
            reserve.beat(Beat::Stands);
            assert!(serves(&runtime, SOON), "it has been called");
            drop(hung);
            for beat in [Beat::Busy, Beat::Quiet, Beat::Quiet] {
                reserve.beat(beat);
            }
            let (hung, more) = (hang(&runtime), serves(&runtime, Duration::from_millis(50)));
            assert!(!more, "it has gone back to rest");
            drop(hung);
        }
        drop(reserve);
        runtime.shutdown_timeout(SOON);
    }
}
