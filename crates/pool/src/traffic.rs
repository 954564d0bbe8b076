//! What the seats do, in numbers alone: cheap enough to be read every second, however many keys there are.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use crate::core::Core;
use crate::record::{LifeState, Record};
use crate::scheduler::Spread;

/// What a pool does now and has done since its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Traffic {
    /// Operations that wait.
    pub waiting: usize,
    /// Changes of token objects that wait for the one under way.
    pub changes: usize,
    /// In the order of the configuration.
    pub seats: Vec<SeatTraffic>,
}

/// The same of a seat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeatTraffic {
    /// `hsm1#2`.
    pub name: String,
    /// `hsm1`.
    pub member: String,
    /// True if it serves.
    pub in_service: bool,
    /// Operations that it runs now.
    pub in_flight: usize,
    /// How many it can run at once.
    pub lanes: usize,
    /// Operations that wait and that it could serve.
    pub waiting: usize,
    /// Operations of callers that it has answered.
    pub served: u64,
    /// Operations that failed because of the token.
    pub failed: u64,
    /// How long those took that it answered on its present connection, without their time in the queue.
    pub spread: Spread,
}

pub(crate) fn of(core: &Core) -> Traffic {
    // A guard within the expression below would be held to its end, and the seats ask again.
    let waiting = core.scheduler.lock().waiting();
    Traffic {
        waiting,
        changes: 0,
        seats: core.records().iter().map(|r| seat(core, r)).collect(),
    }
}

fn seat(core: &Core, record: &Record) -> SeatTraffic {
    let activity = core.scheduler.lock().activity(record.index);
    let activity = activity.unwrap_or_default();
    let life = record.life.lock();
    SeatTraffic {
        name: record.name.to_string(),
        member: record.member.to_string(),
        in_service: matches!(life.state, LifeState::InService),
        in_flight: activity.running,
        lanes: activity.lanes,
        waiting: activity.waiting,
        served: record.served(&life),
        failed: record.failed.load(Ordering::Relaxed),
        spread: activity.spread,
    }
}
