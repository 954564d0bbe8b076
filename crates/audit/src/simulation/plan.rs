//! What a seed decides beforehand.

use std::time::Duration;

use hsmux_token::fake::Random;

/// How often something happens: once in so many steps.
pub struct SimulationPlan {
    pub faults: u64,
    pub repairs: u64,
    pub deaths: u64,
    pub stops: u64,
    pub rotations: u64,
    pub settings: u64,
    pub floods: u64,
    /// The most uses of keys that run at once.
    pub uses: usize,
    pub checkpoint: Duration,
}

impl SimulationPlan {
    pub fn new(random: &mut Random) -> Self {
        Self {
            faults: *random.pick(&[15, 60, 300]),
            repairs: *random.pick(&[10, 40]),
            deaths: *random.pick(&[50, 300, 3000]),
            stops: *random.pick(&[100, 1000]),
            rotations: *random.pick(&[40, 300]),
            settings: *random.pick(&[30, 300]),
            floods: *random.pick(&[100, 1000]),
            uses: *random.pick(&[2, 10]),
            checkpoint: Duration::from_millis(*random.pick(&[20, 1_000, 60_000])),
        }
    }
}
