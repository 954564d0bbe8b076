//! Members with a fixed service time: what a second and a sixty-fourth member add, and whether a
//! slow one holds a fast one up. Worker processes, the daemon and the module, 128 callers.

use hsmux_bench::Measurement;
use hsmux_bench::compare::{self, Bound, Goal, Report, Variant};
use hsmux_suite::{Rig, Setup, StandIn};
use hsmux_token::Result;

use crate::client::Client;
use crate::turn;

const CALLERS: usize = 128;

/// How long a turn takes, about.
const TURN_MS: u64 = 4000;

/// A daemon whose members take so many milliseconds for each signature.
struct Cluster {
    rig: Rig,
    /// Signatures in a turn.
    count: u64,
    _module: StandIn,
}

impl Cluster {
    fn start(service_ms: &[u64]) -> Self {
        let mut rig = Rig::prepare(Setup::Daemon, 0);
        let labels: Vec<_> = (0..service_ms.len()).map(|n| format!("m{n:02}")).collect();
        let labels: Vec<_> = labels.iter().map(String::as_str).collect();
        let mut module = rig.stand_in("vendor", &labels);
        for (label, ms) in labels.iter().zip(service_ms) {
            module.set(
                label,
                &format!("service_time_us = {}\nfast_sign = true", ms * 1000),
            );
        }
        for member in &mut rig.config.members {
            *member = member.clone().with("sessions = 1");
        }
        rig.start();
        let count = service_ms.iter().map(|ms| TURN_MS / ms).sum();
        Self {
            rig,
            count,
            _module: module,
        }
    }

    /// Signs for some seconds with all callers.
    fn sign(&self) -> Result<Measurement> {
        Client::of(&self.rig).sign(CALLERS, self.count)
    }
}

/// 64 members against one.
pub fn many_members(rounds: usize) -> Result<Report> {
    let (one, many) = (Cluster::start(&[5]), Cluster::start(&[5; 64]));
    compare::run(
        "Members that take 5 ms for each signature, 128 callers",
        vec![
            Variant::new("1 member", || one.sign()),
            Variant::new("64 members", || many.sign()),
        ],
        &[Goal {
            of: "64 members".into(),
            against: "1 member".into(),
            bound: Bound::RateRatioAtLeast(62.0),
        }],
        rounds,
        turn,
    )
}

/// 5 ms and 20 ms in one pool, against the sum of what each does alone.
pub fn unequal_members(rounds: usize) -> Result<Report> {
    let (fast, slow) = (Cluster::start(&[5]), Cluster::start(&[20]));
    let both = Cluster::start(&[5, 20]);
    compare::run(
        "A member that takes 5 ms and one that takes 20 ms, 128 callers",
        vec![
            Variant::new("each alone, added", || {
                let mut sum = fast.sign()?;
                let slow = slow.sign()?;
                sum.per_second += slow.per_second;
                sum.failed += slow.failed;
                Ok(sum)
            }),
            Variant::new("both in one pool", || both.sign()),
        ],
        &[Goal {
            of: "both in one pool".into(),
            against: "each alone, added".into(),
            bound: Bound::RateRatioAtLeast(0.97),
        }],
        rounds,
        turn,
    )
}
