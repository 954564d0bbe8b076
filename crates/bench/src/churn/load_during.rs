//! Load during another action.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use hsmux_token::{Error, Kind, Result};

use crate::{Measurement, RunControl, Until};

/// Effectively without end.
const FOREVER: Duration = Duration::from_secs(1 << 32);

/// Measures until `during` returns, which does not count as an interruption.
pub(super) fn load_during(
    during: &mut dyn FnMut() -> Result<()>,
    measure: impl FnOnce(Until, RunControl<'_>) -> Result<Measurement> + Send,
) -> Result<Measurement> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let measuring = scope.spawn(|| measure(Until::Elapsed(FOREVER), RunControl::unseen(&stop)));
        let done = during();
        stop.store(true, Relaxed);
        let measured = measuring.join();
        let lost = |_| Err(Error::pool(Kind::Lost, "the callers have panicked"));
        let measured = measured.unwrap_or_else(lost);
        done.and(measured.map(|measured| Measurement {
            interrupted: false,
            ..measured
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_ends_with_what_it_was_for_is_whole() {
        let measured = load_during(&mut || Ok(()), |_, control| {
            while !control.stop.load(Relaxed) {
                thread::yield_now();
            }
            Ok(Measurement {
                interrupted: true,
                ..Measurement::elsewhere(7, 1.0, 7.0)
            })
        });
        let measured = measured.unwrap();
        assert!(!measured.interrupted);
        assert_eq!(measured.ops, 7);
        let failed = || Err(Error::pool(Kind::Lost, "no more keys"));
        let measured = load_during(&mut { failed }, |_, _| {
            Ok(Measurement::elsewhere(7, 1.0, 7.0))
        });
        assert!(measured.is_err());
    }
}
