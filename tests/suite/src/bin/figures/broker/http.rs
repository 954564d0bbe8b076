//! The cost of HTTP: requests against a constant, batches against single items, memory of many connections.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hsmux_bench::churn::{BrokerIsolation, LoadedBroker};
use hsmux_bench::compare::{Bound, CompareReport, Goal, Variant};
use hsmux_bench::http::{HttpBenchmark, allow_connections};
use hsmux_bench::{LoadModel, Measurement, RunControl, Until};
use hsmux_token::{Error, Kind, Result};
use tempfile::TempDir;

use super::{folder, store, usual, workers};
use crate::Effort;
use crate::fact::Fact;
use crate::progress::{Turns, preparing};

/// A broker over one SoftHSM token, on a unix socket.
fn broker(folder: &TempDir, isolation: BrokerIsolation) -> Result<LoadedBroker> {
    preparing("a SoftHSM token and a broker of it");
    let name = match isolation {
        BrokerIsolation::Workers(_) => "workers",
        BrokerIsolation::Thread => "thread",
    };
    let store = store(folder, name)?;
    // It has created the key.
    drop(store.keys()?);
    store.broker(isolation, &usual())
}

fn ask(service: &HttpBenchmark, time: Duration) -> Result<Measurement> {
    let control = RunControl {
        stop: &AtomicBool::new(false),
        progress: &|_| {},
    };
    service.measure(Until::Elapsed(time), Duration::from_millis(200), control)
}

/// Requests with the token against a constant of the same server (`/v1/sys/health`): with SoftHSM in the server's
/// process, as recommended for software tokens, and in worker processes.
pub fn requests(effort: Effort) -> Result<CompareReport> {
    let folder = folder()?;
    let broker_here = broker(&folder, BrokerIsolation::Thread)?;
    let broker_beside = broker(&folder, workers())?;
    let (mut variants, mut goals) = (Vec::new(), Vec::new());
    for (broker, isolation) in [(&broker_here, "thread"), (&broker_beside, "process")] {
        let constant = broker.with_options(|asked| {
            asked.mix = "health".parse().expect("a mix");
        })?;
        let by_token = broker.with_options(|_| {})?;
        let of = format!("isolation = {isolation}");
        let against = format!("a constant, isolation = {isolation}");
        variants.push(Variant::new(&against, move || ask(&constant, effort.turn)));
        variants.push(Variant::new(&of, move || ask(&by_token, effort.turn)));
        let goal = |against: &str, bound| Goal {
            of: of.clone(),
            against: against.into(),
            bound,
        };
        if isolation == "thread" {
            goals.push(goal(&against, Bound::RateRatioAtLeast(0.5)));
        }
        goals.push(goal(&of, Bound::TailAtMost(5.0)));
    }
    let title = "The broker over HTTP, one SoftHSM token: 16 clients that keep their connections, AES-256-CBC of 256 \
                 bytes, half and half, against the same server answering a constant";
    effort.compare(title, variants, &goals)
}

/// Items of a batch.
const ITEMS: u32 = 100;

/// Items in batches of a hundred against single ones: with SoftHSM in worker processes, and in the server's process.
pub fn batches(effort: Effort) -> Result<CompareReport> {
    let folder = folder()?;
    let (beside, here) = (
        broker(&folder, workers())?,
        broker(&folder, BrokerIsolation::Thread)?,
    );
    let (mut variants, mut goals) = (Vec::new(), Vec::new());
    for (broker, isolation) in [(&beside, "process"), (&here, "thread")] {
        let single = broker.with_options(|_| {})?;
        let batch = broker.with_options(|asked| asked.batch = ITEMS as usize)?;
        let items = move || {
            let requests = ask(&batch, effort.turn)?;
            Ok(Measurement {
                ops: requests.ops * u64::from(ITEMS),
                per_second: requests.per_second * f64::from(ITEMS),
                ..requests
            })
        };
        let of = format!("batches of 100, isolation = {isolation}");
        let against = format!("single items, isolation = {isolation}");
        variants.push(Variant::new(&against, move || ask(&single, effort.turn)));
        variants.push(Variant::new(&of, items));
        let bound = Bound::RateRatioAtLeast(5.0);
        goals.push(Goal { of, against, bound });
    }
    let title = "The broker over HTTP: items for each second in batches, 16 clients";
    effort.compare(title, variants, &goals)
}

/// Concurrent clients.
const CONNECTIONS: usize = 1000;
/// The memory limit of their server, in MB.
const MOST_MEMORY: f64 = 150.0;

/// A thousand clients that work at the same time.
pub fn many_connections(effort: Effort) -> Result<Vec<Fact>> {
    allow_connections();
    let folder = folder()?;
    let broker = broker(&folder, BrokerIsolation::Thread)?;
    Turns::new([effort.turn]).next(&format!("{CONNECTIONS} connections"));
    let service = broker.with_options(|asked| {
        asked.load = LoadModel::Closed {
            workers: CONNECTIONS,
        };
        asked.processes = vec![broker.id()];
    })?;
    let measured = ask(&service, effort.turn)?;
    if measured.ops == 0 {
        let why = measured.faults.first().map(|fault| fault.message.clone());
        return Err(Error::pool(Kind::Lost, why.unwrap_or_default()));
    }
    let with = format!("{CONNECTIONS} connections to the broker");
    let own = std::process::id();
    let theirs = measured.processes.iter().filter(|one| one.pid != own);
    let peak = theirs.map(|one| one.peak_memory_bytes).sum::<u64>() as f64 / 1e6;
    Ok(vec![
        Fact::new(
            format!("peak memory, {with}, the process that watches its token counted"),
            peak,
            "MB",
        )
        .at_most(MOST_MEMORY),
        Fact::new(
            format!("failed, {with}"),
            measured.failed as f64,
            "requests",
        )
        .at_most(0.0),
    ])
}
