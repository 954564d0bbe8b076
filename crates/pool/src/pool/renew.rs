//! A member that is connected anew on purpose.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Result};

use super::Pool;
use crate::core::Core;
use crate::record::{Record, State};

/// How long a member may take to come back: after that it comes when it can.
const BACK_WITHIN: Duration = Duration::from_secs(30);

impl Pool {
    /// Connects a member anew after what runs there has ended or timed out, because its module has not
    /// seen what came to its token; returns when it serves again, or cannot now. Requests that only it
    /// can serve wait meanwhile.
    pub fn connect_anew(&self, name: &str) -> Result<()> {
        let records = self.named(name)?;
        for record in &records {
            self.core.pause(record);
        }
        self.until_idle(&records);
        for record in &records {
            let life = record.life.lock();
            let connection = life.connection.clone();
            // Not one that was parked or removed meanwhile.
            let is_ours = matches!(life.state, State::Draining);
            drop(life);
            if let Some(connection) = connection.filter(|_| is_ours) {
                let reason = Error::lost("the member is connected anew");
                self.core.close(&connection, &reason);
            }
            let ours = |state: &State| matches!(state, State::Draining);
            self.core.begin(record, ours);
        }
        let connecting = |record: &Arc<Record>| {
            let life = record.life.lock();
            matches!(life.state, State::Connecting)
        };
        self.wait_until(Instant::now() + BACK_WITHIN, |_| {
            !records.iter().any(connecting)
        });
        Ok(())
    }
}

impl Core {
    /// No new requests for a seat, which is soon back; what runs there goes on.
    fn pause(self: &Arc<Self>, record: &Arc<Record>) {
        let mut life = record.life.lock();
        let Some(connection) = life.connection.clone() else {
            return;
        };
        record.enter(&mut life, State::Draining, self.base);
        record.expect(Some(0));
        drop(life);
        let index = record.index;
        self.scheduler.lock().drain(index, connection.generation);
        self.publish(|registry| registry.away(index, connection.generation));
    }
}
