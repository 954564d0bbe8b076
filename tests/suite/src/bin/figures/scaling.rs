//! Members with a fixed service time: the gain of a second and a sixty-fourth member, and the effect of a slow one
//! on a fast one. Worker processes, the daemon and the module, 128 callers.

use hsmux_bench::Measurement;
use hsmux_bench::compare::{Bound, CompareReport, Goal, Variant};
use hsmux_suite::{Rig, Setup, StandIn};
use hsmux_token::Result;

use crate::Effort;
use crate::client::BenchClient;

const CALLERS: usize = 128;

/// A daemon whose members take a fixed number of milliseconds per signature.
struct Cluster {
    rig: Rig,
    effort: Effort,
    _module: StandIn,
}

impl Cluster {
    fn start(service_ms: &[u64], effort: Effort) -> Self {
        let mut rig = Rig::prepare(Setup::Daemon, 0);
        let labels: Vec<_> = (0..service_ms.len()).map(|n| format!("m{n:02}")).collect();
        let labels: Vec<_> = labels.iter().map(String::as_str).collect();
        let mut module = rig.stand_in("vendor", &labels);
        for (label, ms) in labels.iter().zip(service_ms) {
            let micros = ms * 1000;
            // A fast signature leaves the CPU to the measured programs.
            module.set(
                label,
                &format!("service_time_us = {micros}\nfast_sign = true"),
            );
        }
        module.set_module("settled = true");
        rig.start();
        Self {
            rig,
            effort,
            _module: module,
        }
    }

    /// Signs with all callers.
    fn sign(&self) -> Result<Measurement> {
        BenchClient::of(&self.rig).sign(CALLERS, self.effort.turn)
    }
}

/// 64 members against one.
pub fn many_members(effort: Effort) -> Result<CompareReport> {
    let one = Cluster::start(&[5], effort);
    let many = Cluster::start(&[5; 64], effort);
    effort.compare(
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
    )
}

/// 5 ms and 20 ms in one pool, against the sum of their single rates.
pub fn unequal_members(effort: Effort) -> Result<CompareReport> {
    let fast = Cluster::start(&[5], effort);
    let slow = Cluster::start(&[20], effort);
    let both = Cluster::start(&[5, 20], effort);
    effort.compare(
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
    )
}
