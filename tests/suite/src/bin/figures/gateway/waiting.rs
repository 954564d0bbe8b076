//! Ten thousand handshakes that wait for a token at once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use hsmux_bench::http::allow_connections;
use hsmux_bench::{Control, tls};
use hsmux_suite::gateway::{Gateway, certify_public, configure};
use hsmux_suite::{Rig, until};
use hsmux_token::{Error, Kind, Result};

use super::{burst, daemon, with_page};
use crate::Effort;
use crate::fact::Fact;
use crate::footprint::{peak_memory, threads};
use crate::progress::{Turns, preparing};

const CLIENTS: usize = 10_000;
/// Those of the probe, and the few that are being served.
const SPARE: usize = 16;
/// For all to arrive.
const PATIENCE: Duration = Duration::from_secs(120);

/// What they cost the gateway's process.
pub fn ten_thousand(_: Effort) -> Result<Vec<Fact>> {
    allow_connections();
    preparing("a gateway over a token that takes two seconds");
    let mut rig = with_page(0);
    let mut module = rig.stand_in("vendor", &["slow"]);
    rig.start();
    certify_public(&rig, "ec");
    rig.stop();
    rig.config.pool = "queue = 20000\ndeadline = \"600s\"".into();
    let lines = "connections = 20000\nhandshakes = 20000\nsign_timeout = \"600s\"\nhandshake_timeout = \"300s\"";
    let site = "[[site]]\ncertificates = [\"ec.pem\"]\nroot = \"www\"";
    configure(&mut rig, lines, site);
    let gateway = Gateway::start_by(rig, Rig::start);
    module.set("slow", "service_time_us = 2000000\nfast_sign = true");

    Turns::new([PATIENCE]).next(&format!("{CLIENTS} clients, until all of them wait"));
    let options = burst(&gateway.address, CLIENTS + SPARE, PATIENCE * 2);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let control = Control {
                stop: &stop,
                progress: &|_| {},
            };
            tls::run(&options, control)
        });
        let waiting = until("all of them wait", PATIENCE, || {
            let waiting = gateway.metric("hsmux_gateway_signatures_waiting");
            (waiting as usize >= CLIENTS || load.is_finished()).then_some(waiting)
        });
        let (memory, threads) = (peak_memory(daemon(&gateway)), threads(daemon(&gateway)));
        stop.store(true, Relaxed);
        let load = load.join().expect("a thread")?;
        if load.measurement.failed > 0 {
            let why = load
                .measurement
                .faults
                .first()
                .map(|fault| fault.message.clone());
            return Err(Error::pool(Kind::Lost, why.unwrap_or_default()));
        }
        let with = format!("with {CLIENTS} handshakes waiting");
        Ok(vec![
            Fact::new(
                "handshakes that waited at once",
                waiting as f64,
                "connections",
            )
            .at_least(CLIENTS as f64),
            Fact::new(
                format!("peak memory of the gateway {with}"),
                memory as f64 / 1e6,
                "MB",
            )
            .at_most(400.0),
            Fact::new(
                format!("threads of the gateway {with}"),
                threads as f64,
                "threads",
            )
            .at_most(64.0),
        ])
    })
}
