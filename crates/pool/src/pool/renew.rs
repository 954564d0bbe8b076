//! Reconnects a member on purpose.

use std::sync::Arc;
use std::time::Duration;

use hsmux_token::{Error, Result};

use super::Pool;
use crate::clock;
use crate::core::Core;
use crate::record::{LifeState, Record};

/// The longest wait for the member. It may come back later.
const BACK_WITHIN: Duration = Duration::from_secs(30);

impl Pool {
    /// Reconnects a member, because its module has not seen a change of its token. Running operations end or time out
    /// first. Returns when the member serves again, or cannot now. Requests that only it can serve wait meanwhile.
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
            let is_ours = matches!(life.state, LifeState::Draining);
            drop(life);
            if let Some(connection) = connection.filter(|_| is_ours) {
                let reason = Error::lost("the member is connected anew");
                self.core.close(&connection, &reason);
            }
            let ours = |state: &LifeState| matches!(state, LifeState::Draining);
            self.core.begin(record, ours);
        }
        let connecting = |record: &Arc<Record>| {
            let life = record.life.lock();
            matches!(life.state, LifeState::Connecting)
        };
        self.wait_until(clock::now() + BACK_WITHIN, |_| {
            !records.iter().any(connecting)
        });
        Ok(())
    }
}

impl Core {
    /// Gives a seat no new requests until it is back. Its running operations go on.
    fn pause(self: &Arc<Self>, record: &Arc<Record>) {
        let mut life = record.life.lock();
        let Some(connection) = life.connection.clone() else {
            return;
        };
        record.enter(&mut life, LifeState::Draining, self.base);
        record.expect(Some(0));
        drop(life);
        let index = record.index;
        self.scheduler.lock().drain(index, connection.generation);
        self.publish(|registry| registry.away(index, connection.generation));
    }
}
