//! Time. In a simulation it follows from the seed.

use std::time::{Instant, SystemTime};

#[cfg(test)]
use crate::simulation;

pub fn now() -> Instant {
    #[cfg(test)]
    if let Some(now) = simulation::now() {
        return now;
    }
    Instant::now()
}

/// The time of day.
pub fn wall() -> SystemTime {
    #[cfg(test)]
    if let Some(wall) = simulation::wall() {
        return wall;
    }
    SystemTime::now()
}
