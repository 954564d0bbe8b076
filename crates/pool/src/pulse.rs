//! A word to a service, from outside, while short work runs on its threads.
//!
//! Of a runtime's idle threads one waits for sockets and timers, for all. When that one is given work which a
//! token's module never returns from, the others sleep on: nobody wakes them, for nobody looks at the sockets. A
//! wake is enough for one of them to look.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use hsmux_token::{Error, Kind, Result};

use crate::panics::one_round;

/// A thread that looks after a service, until this is dropped.
pub struct Pulse {
    _stop: Sender<()>,
}

/// What the pulse has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// No work runs on threads of those who ask for it.
    Quiet,
    /// Some runs.
    Busy,
    /// Some runs, and none has ended since the beat before: it may never return.
    Stands,
}

/// How long a service may stand still at most when a module hangs that was not in use just before.
const SELDOM: Duration = Duration::from_millis(500);

/// And one that was.
const OFTEN: Duration = Duration::from_millis(10);

impl Pulse {
    /// `beat` is called again and again. Where a service stands it has to have one of its idle threads run for a
    /// moment.
    pub fn start(mut beat: impl FnMut(Beat) + Send + 'static) -> Result<Self> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new().name("hsmux-pulse".into());
        let look = move || {
            let (mut before, mut pause) = (0, SELDOM);
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let (running, ended) = hsmux_module::here();
                one_round("the pulse", || beat(Beat::of(running, ended != before)));
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

impl Beat {
    fn of(running: usize, goes_on: bool) -> Self {
        match (running, goes_on) {
            (0, _) => Self::Quiet,
            (_, true) => Self::Busy,
            (_, false) => Self::Stands,
        }
    }
}
