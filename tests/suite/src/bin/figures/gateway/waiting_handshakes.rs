//! Ten thousand concurrent handshakes that wait for a token.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use hsmux_bench::http::allow_connections;
use hsmux_bench::{RunControl, tls};
use hsmux_suite::gateway::{Gateway, certify_public, configure};
use hsmux_suite::{Rig, until};
use hsmux_token::{Error, Kind, Result};

use super::{burst, with_page};
use crate::Effort;
use crate::fact::Fact;
use crate::footprint::{peak_memory, threads};
use crate::progress::{Turns, preparing};

const CLIENTS: usize = 10_000;
/// Those being served, and connections that still close.
const SPARE: usize = 64;
/// The time for all to arrive.
const PATIENCE: Duration = Duration::from_secs(120);

/// Their cost for the gateway's process.
pub fn ten_thousand(_: Effort) -> Result<Vec<Fact>> {
    // The gateway uses three quarters of its file limit for clients' connections, one file each.
    let room = usize::try_from(allow_connections() / 4 * 3).unwrap_or(usize::MAX);
    let clients = (CLIENTS + SPARE).min(room.saturating_sub(SPARE));
    preparing("a gateway over a token that takes two seconds");
    let mut rig = with_page(0);
    let mut module = rig.stand_in("vendor", &["slow"]);
    rig.start();
    certify_public(&rig, "ec");
    rig.stop();
    // Waiting behind others on the token counts for its time-out as well.
    let member = &mut rig.config.members[0];
    *member = member.clone().with("timeout = \"120s\"");
    rig.config.pool = "queue = 20000\ndeadline = \"600s\"".into();
    // The last one would wait six hours, and must not be refused for that.
    let lines = "connections = 20000\nhandshakes = 20000\nsign_timeout = \"24h\"\nhandshake_timeout = \"300s\"";
    let site = "[[site]]\ncertificates = [\"ec.pem\"]\nroot = \"www\"";
    configure(&mut rig, lines, site);
    let gateway = Gateway::start_by(rig, Rig::start);
    module.set("slow", "service_time_us = 2000000\nfast_sign = true");

    Turns::new([PATIENCE]).next(&format!("{clients} clients, until all of them wait"));
    let options = burst(&gateway.address, clients, PATIENCE * 2);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let control = RunControl {
                stop: &stop,
                progress: &|_| {},
            };
            tls::run(&options, control)
        });
        let waiting = until("all of them wait", PATIENCE, || {
            let waiting = gateway.metric("hsmux_gateway_signatures_waiting");
            let all = waiting as usize + SPARE / 2 >= clients;
            (all || load.is_finished()).then_some(waiting)
        });
        let (memory, threads) = (peak_memory(gateway.process()), threads(gateway.process()));
        stop.store(true, Relaxed);
        let load = load.join().expect("a thread")?;
        if let Some(fault) = load.measurement.faults.first() {
            let refused = [
                "connections",
                "handshakes",
                "files",
                "slow",
                "busy",
                "tls",
                "unsigned",
            ]
            .map(|reason| {
                let name = format!("hsmux_gateway_refused_total{{reason=\"{reason}\"}}");
                format!("{reason} {}", gateway.metric(&name))
            });
            let message = format!(
                "{} of {waiting} clients and more: {}; refused: {}",
                fault.count,
                fault.message,
                refused.join(", ")
            );
            return Err(Error::pool(Kind::Lost, message));
        }
        let with = format!("with {waiting} handshakes waiting");
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
