//! A watchdog tells a service that its threads hang while short work runs on them.
//!
//! One of a runtime's idle threads waits for sockets and timers, for all of them. If that thread gets work from which a
//! token's module never returns, the others sleep on, and no thread looks at the sockets. Waking any of them is enough.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use hsmux_token::{Error, Kind, Result};

use crate::panics::one_round;

/// A thread that watches a service's runtime until this is dropped.
pub struct RuntimeWatchdog {
    _stop: Sender<()>,
}

/// The state of a service's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeState {
    /// No work runs on the callers' threads.
    Quiet,
    /// Work runs.
    Busy,
    /// Work runs, and none has ended since the last look: it may never return.
    Stalled,
}

/// The longest standstill of a service if a module hangs that was not in use just before.
const SELDOM: Duration = Duration::from_millis(500);

/// The same for a module that was in use.
const OFTEN: Duration = Duration::from_millis(10);

impl RuntimeWatchdog {
    /// Calls `watch` periodically. If the service hangs, `watch` has to wake one of its idle threads.
    pub fn start(mut watch: impl FnMut(RuntimeState) + Send + 'static) -> Result<Self> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new().name("hsmux-pulse".into());
        let look = move || {
            let (mut before, mut pause) = (0, SELDOM);
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let (running, ended) = hsmux_module::here();
                one_round("the pulse", || {
                    watch(RuntimeState::of(running, ended != before));
                });
                pause = if running > 0 || ended != before {
                    OFTEN
                } else {
                    SELDOM
                };
                before = ended;
            }
        };
        thread
            .spawn(look)
            .map_err(|e| Error::pool(Kind::Environment, format!("no thread for a service: {e}")))?;
        Ok(Self { _stop: stop })
    }
}

impl RuntimeState {
    fn of(running: usize, goes_on: bool) -> Self {
        match (running, goes_on) {
            (0, _) => Self::Quiet,
            (_, true) => Self::Busy,
            (_, false) => Self::Stalled,
        }
    }
}
