//! One thread that keeps deadlines, ends what hangs and connects again what was lost. It sleeps
//! until the next of these is due: an idle pool costs nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hsmux_token::Error;

use crate::core::Core;
use crate::job::Work;

impl Core {
    /// Runs until the pool stops.
    pub fn keep(self: &Arc<Self>) {
        while !self.stopping.load(Ordering::Acquire) {
            self.alarm.reset();
            let now = Instant::now();
            self.keep_deadlines(now);
            let connect = self.reconnect_due(now);
            let prove = self.reprove_due(now);
            let nearest = self.scheduler.lock().nearest();
            let all = [nearest, connect, prove];
            self.alarm.sleep(all.into_iter().flatten().min());
        }
    }

    /// Answers what is overdue, and ends the connections that hang.
    pub fn keep_deadlines(self: &Arc<Self>, now: Instant) {
        let overdue = self.scheduler.lock().overdue(now);
        for work in overdue.waiting {
            let error = work.with(|need, attempt, _| self.too_late(need, attempt));
            // A caller that waits looks at the clock by itself; this only comes first.
            work.fail(error);
        }
        for work in overdue.running {
            if let Work::Job(job) = work {
                let message = format!("{}: the token has not answered in time", job.need.call);
                job.complete(Err(Error::pool(hsmux_token::Kind::Deadline, message)));
            }
        }
        for (connection, _) in overdue.hung {
            let timeout = connection.record.seat.timeout;
            let message = format!("no answer within {timeout:?}: the connection was ended");
            self.down(&connection, &Error::lost(message));
        }
    }
}
