//! One thread that enforces deadlines, ends connections that hang, and reconnects lost ones. It sleeps until the next
//! of these is due, so an idle pool costs nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hsmux_token::Error;

use crate::clock;
use crate::core::Core;
use crate::job::ScheduledWork;
use crate::panics::{one_round, or_panicked};

impl Core {
    /// Runs until the pool stops.
    pub fn keep(self: &Arc<Self>) {
        while !self.stopping.load(Ordering::Acquire) {
            self.alarm.reset();
            let now = clock::now();
            let duties: [&dyn Fn() -> Option<Instant>; 3] = [
                &|| {
                    self.keep_deadlines(now);
                    self.scheduler.lock().nearest()
                },
                &|| self.reconnect_due(now),
                &|| self.reprove_due(now),
            ];
            // A duty that panics is due again. The others go on.
            let due = duties.map(|duty| one_round("the keeper", duty).unwrap_or(Some(now)));
            self.alarm.sleep(due.into_iter().flatten().min());
        }
    }

    /// Answers what is overdue, and ends the connections that hang.
    pub fn keep_deadlines(self: &Arc<Self>, now: Instant) {
        let overdue = self.scheduler.lock().overdue(now);
        for work in overdue.waiting {
            each(|| {
                let error = work.with(|need, attempt, _| self.too_late(need, attempt));
                // A caller that waits checks the deadline itself. This only comes first.
                work.fail(error);
            });
        }
        for work in overdue.running {
            if let ScheduledWork::Job(job) = work {
                let message = format!("{}: the token has not answered in time", job.need.call);
                let late = Error::pool(hsmux_token::Kind::Deadline, message);
                each(|| job.complete(Err(late)));
            }
        }
        for (connection, _) in overdue.hung {
            let timeout = connection.record.seat.timeout;
            let message = format!("no answer within {timeout:?}: the connection was ended");
            each(|| self.down(&connection, &Error::lost(message)));
        }
    }
}

/// Ends one of several overdue requests. A panic does not keep the others waiting, because none is listed twice.
fn each(end: impl FnOnce()) {
    let ended = or_panicked(|| {
        end();
        Ok(())
    });
    if let Err(error) = ended {
        tracing::error!(%error, "an overdue request was not ended");
    }
}
