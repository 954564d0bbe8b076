//! The token as a device with service times and ordered faults.

use std::cell::Cell;
use std::time::Duration;

use hsmux_token::ck::*;
use parking_lot::Mutex;
use rustix::thread::{ClockId, clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{Timespec, clock_gettime};

use crate::churn::Churn;
use crate::control::{ControlFile, TokenControl};

/// The work of one token so far, in this process.
#[derive(Default)]
pub struct Device {
    /// The number of operations, and the end of the device's work, in nanoseconds of the monotonic clock.
    work: Mutex<(u64, u64)>,
    /// The cost of key changes by other processes.
    pub churn: Churn,
}

impl Device {
    /// Runs one operation: the faults, then the work, then the remaining service time.
    /// `work` gets the operation's number, from 1.
    pub fn serve<T>(
        &self,
        slot: CK_SLOT_ID,
        control: &TokenControl,
        work: impl FnOnce(u64) -> Result<T, CK_RV>,
    ) -> Result<T, CK_RV> {
        let mut service = control.service_time_us * 1000;
        if let Some(cost) = &control.churn {
            service += self.churn.cost(cost);
        }
        if control.leak > 0 {
            // Written to, so that it takes memory.
            std::mem::forget(vec![1_u8; control.leak]);
        }
        let (number, end) = {
            let mut work = self.work.lock();
            let start = if control.parallel {
                now()
            } else {
                now().max(work.1)
            };
            work.0 += 1;
            work.1 = start + service;
            *work
        };
        if control.crash_after.is_some_and(|n| number > n) {
            std::process::abort();
        }
        let hangs = |c: &TokenControl| c.hang_in_sign || c.hang_after.is_some_and(|n| number > n);
        if hangs(control) {
            hang_while(slot, hangs);
        }
        let done = match control.sign_error {
            CKR_OK => work(number),
            code => Err(code),
        };
        if service > 0 {
            sleep_until(end);
        }
        done
    }
}

/// Hangs while the control file says so; records that in `STATE/LABEL.hang`.
pub fn hang_while(slot: CK_SLOT_ID, says_so: impl Fn(&TokenControl) -> bool) {
    let mut told = false;
    while let Ok(control) = ControlFile::now()
        && let Ok(token) = control.token(slot)
        && says_so(token)
    {
        if !std::mem::replace(&mut told, true) {
            let thread = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
            token.tell(
                "hang",
                &format!("{} {}\n", std::process::id(), thread.trim_end()),
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * NANOS + now.tv_nsec.cast_unsigned()
}

const NANOS: u64 = 1_000_000_000;

/// By default the kernel wakes a thread up to 50 microseconds late, to save power.
fn sleep_until(end: u64) {
    thread_local!(static PRECISE: Cell<bool> = const { Cell::new(false) });
    if !PRECISE.replace(true) {
        // If that fails, the clock is a little late, which the measurement shows.
        let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    }
    let end = Timespec {
        tv_sec: (end / NANOS).cast_signed(),
        tv_nsec: (end % NANOS).cast_signed(),
    };
    // A signal interrupts the sleep, which is then repeated.
    while clock_nanosleep_absolute(ClockId::Monotonic, &end).is_err() {}
}
