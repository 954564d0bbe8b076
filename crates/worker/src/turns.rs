//! Starts of workers take turns, module by module: SoftHSM fails when two of its processes start together. A start
//! that takes longer than others need holds up nobody.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use hsmux_token::sync::{Condvar, Mutex};

/// So long others wait for one start. SoftHSM needs some milliseconds, or a second on a busy machine.
const COURTESY: Duration = Duration::from_secs(5);

/// The turn of one start, until it is dropped.
pub(super) struct StartTurn {
    starts: Arc<Starts>,
    number: u64,
}

#[derive(Default)]
struct Starts {
    state: Mutex<TurnState>,
    over: Condvar,
}

#[derive(Default)]
struct TurnState {
    last: u64,
    /// The one whose turn it is, and since when.
    current: Option<(u64, Instant)>,
}

impl StartTurn {
    /// Waits for the turn of a worker with this module.
    pub fn take(module: &Path) -> Self {
        static ALL: LazyLock<Mutex<HashMap<PathBuf, Arc<Starts>>>> = LazyLock::new(Mutex::default);
        let starts = Arc::clone(ALL.lock().entry(module.to_owned()).or_default());
        Self::of(starts, COURTESY)
    }

    fn of(starts: Arc<Starts>, courtesy: Duration) -> Self {
        let mut state = starts.state.lock();
        while let Some((_, since)) = state.current {
            let until = since + courtesy;
            if Instant::now() >= until {
                break;
            }
            starts.over.wait_until(&mut state, until);
        }
        state.last += 1;
        let number = state.last;
        // The next waits for this one alone.
        state.current = Some((number, Instant::now()));
        drop(state);
        Self { starts, number }
    }
}

impl Drop for StartTurn {
    fn drop(&mut self) {
        let mut state = self.starts.state.lock();
        if state
            .current
            .is_some_and(|(number, _)| number == self.number)
        {
            state.current = None;
            self.starts.over.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_takes_too_long_is_passed_and_does_not_let_two_others_start_together() {
        let starts = Arc::new(Starts::default());
        let take = |courtesy| StartTurn::of(Arc::clone(&starts), courtesy);
        let current = || starts.state.lock().current.map(|(number, _)| number);
        let hung = take(Duration::ZERO);
        let next = take(Duration::ZERO);
        assert_eq!(current(), Some(next.number));
        drop(hung);
        assert_eq!(current(), Some(next.number), "it has lost its turn");
        let third = std::thread::scope(|scope| {
            let waits = scope.spawn(|| take(Duration::from_secs(600)));
            drop(next);
            waits.join().unwrap()
        });
        assert_eq!(current(), Some(third.number));
        drop(third);
        assert_eq!(current(), None);
    }
}
