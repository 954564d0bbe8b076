//! A word to a service, from outside, while short work runs on its threads.
//!
//! Of a runtime's idle threads one waits for sockets and timers, for all. When that one is given work which a
//! token's module never returns from, the others sleep on: nobody wakes them, for nobody looks at the sockets. A
//! wake is enough for one of them to look.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use hsmux_token::{Error, Kind, Result};

/// A thread that wakes a service, until this is dropped.
pub struct Pulse {
    _stop: Sender<()>,
}

/// How long a service may stand still at most when a module hangs.
const OFTEN: Duration = Duration::from_millis(500);

impl Pulse {
    /// `wake` has one of the service's idle threads run for a moment.
    pub fn start(wake: impl Fn() + Send + 'static) -> Result<Self> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new().name("hsmux-pulse".into());
        let beat = move || {
            while stopped.recv_timeout(OFTEN) == Err(RecvTimeoutError::Timeout) {
                if hsmux_module::runs_here() {
                    wake();
                }
            }
        };
        thread
            .spawn(beat)
            .map_err(|e| Error::pool(Kind::Environment, format!("no thread for a service: {e}")))?;
        Ok(Self { _stop: stop })
    }
}
