//! Tokens with 100 ms per signature: the rate of new connections, and the effect on existing ones.

use std::cell::RefCell;
use std::time::Duration;

use hsmux_bench::Measurement;
use hsmux_bench::compare::{Bound, CompareReport, Goal, Variant};
use hsmux_suite::gateway::{Gateway, certify_public, configure};
use hsmux_token::Result;

use super::nginx::Nginx;
use super::request_latencies::RequestLatencies;
use super::{burst, measure, with_page};
use crate::Effort;
use crate::fact::Fact;
use crate::progress::preparing;

const TOKENS: usize = 8;
const USERS: usize = 256;
const SIGNATURE: Duration = Duration::from_millis(100);
/// Their maximum rate per second.
const MOST: f64 = TOKENS as f64 / 0.1;

/// Long compared with a client's wait of 3.2 s, and with the common start.
const SHORTEST: Duration = Duration::from_secs(30);
/// Until the queue is full.
const WARM_UP: Duration = Duration::from_secs(4);

/// The gateway, and nginx with two workers through the module, over the same tokens.
pub fn slow_tokens(mut effort: Effort) -> Result<(CompareReport, Vec<Fact>)> {
    effort.turn = effort.turn.max(SHORTEST);
    preparing("eight tokens that take 100 ms, a gateway and nginx");
    let mut rig = with_page(0);
    let labels: Vec<_> = (0..TOKENS).map(|n| format!("m{n}")).collect();
    let labels: Vec<_> = labels.iter().map(String::as_str).collect();
    let mut module = rig.stand_in("vendor", &labels);
    let time = SIGNATURE.as_micros();
    module.set_all(&format!("service_time_us = {time}\nfast_sign = true"));
    rig.start();
    certify_public(&rig, "ec");
    rig.stop();
    let site = "[[site]]\ncertificates = [\"ec.pem\"]\nroot = \"www\"";
    configure(&mut rig, "sign_timeout = \"120s\"", site);
    let gateway = Gateway::start_by(rig, hsmux_suite::Rig::start);
    let rig = &gateway.rig;
    let pin = rig.path("pool.pin");
    let key = format!(
        "engine:pkcs11:pkcs11:token=web;object=ec;type=private;pin-source=file:{}",
        pin.display()
    );
    let nginx = Nginx::start(rig, "nginx", &[("ec", key)], Some(&rig.module()));

    let (ours, theirs) = (RefCell::new(None), RefCell::new(None));
    let turn = |address: &str, felt: &RefCell<Option<RequestLatencies>>| {
        let mut options = burst(address, USERS, effort.turn);
        options.warm_up = WARM_UP;
        let work = || Ok(measure(&options)?.measurement);
        let (measured, latencies) = RequestLatencies::during(address, work)?;
        let before = felt.take();
        felt.replace(Some(match before {
            Some(before) => latencies.and(before),
            None => latencies,
        }));
        Ok(measured)
    };
    let (bound, of) = ("what the tokens can sign", "gateway");
    // An upper bound without a measurement.
    let ideal = Measurement::elsewhere(0, effort.turn.as_secs_f64(), MOST);
    let report = effort.compare(
        "8 tokens that take 100 ms for each signature, 256 clients, a new connection for each hit",
        vec![
            Variant::new(bound, || Ok(ideal.clone())),
            Variant::new("nginx, engine, 2 workers", || turn(&nginx.address, &theirs)),
            Variant::new(of, || turn(&gateway.address, &ours)),
        ],
        &[Goal {
            of: of.into(),
            against: bound.into(),
            bound: Bound::RateRatioAtLeast(0.97),
        }],
    )?;
    let mut facts = Vec::new();
    for (server, felt) in [("gateway", ours), ("nginx, engine, 2 workers", theirs)] {
        let felt = felt.take().expect("at least one turn");
        for (name, share) in [("p50", 500), ("p99", 990), ("longest", 1000)] {
            let name = format!("{server}, {USERS} clients in handshakes: a request's {name}");
            facts.push(Fact::new(name, felt.permille(share), "ms"));
        }
    }
    let p99 = facts.swap_remove(1).at_most(5.0);
    facts.insert(0, p99);
    Ok((report, facts))
}
