//! The cost of HTTP: requests against a constant, batches against single items, memory of many connections.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hsmux_bench::churn::LoadedBroker;
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
fn broker(folder: &TempDir) -> Result<LoadedBroker> {
    preparing("a SoftHSM token and a broker of it");
    let store = store(folder, "token")?;
    // It has created the key.
    drop(store.keys()?);
    store.broker(workers(), &usual())
}

fn ask(service: &HttpBenchmark, time: Duration) -> Result<Measurement> {
    let control = RunControl {
        stop: &AtomicBool::new(false),
        progress: &|_| {},
    };
    service.measure(Until::Elapsed(time), Duration::from_millis(200), control)
}

/// Requests with the token against a constant of the same server (`/v1/sys/health`).
pub fn requests(effort: Effort) -> Result<CompareReport> {
    let folder = folder()?;
    let broker = broker(&folder)?;
    let constant = broker.with_options(|asked| {
        asked.mix = "health".parse().expect("a mix");
    })?;
    let by_token = broker.with_options(|_| {})?;
    let [of, against] = ["broker", "a constant"];
    let variants = vec![
        Variant::new(against, move || ask(&constant, effort.turn)),
        Variant::new(of, move || ask(&by_token, effort.turn)),
    ];
    let goal = |against: &str, bound| Goal {
        of: of.into(),
        against: against.into(),
        bound,
    };
    let goals = [
        goal(against, Bound::RateRatioAtLeast(0.5)),
        goal(of, Bound::TailAtMost(5.0)),
    ];
    let title = "The broker over HTTP, one SoftHSM token: 16 clients that keep their connections, AES-256-CBC of 256 \
                 bytes, half and half, against the same server answering a constant";
    effort.compare(title, variants, &goals)
}

/// Items of a batch.
const ITEMS: u32 = 100;

/// Items in batches of a hundred against single ones.
pub fn batches(effort: Effort) -> Result<CompareReport> {
    let folder = folder()?;
    let broker = broker(&folder)?;
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
    let [of, against] = ["batches of 100", "single items"];
    let variants = vec![
        Variant::new(against, move || ask(&single, effort.turn)),
        Variant::new(of, items),
    ];
    let goals = [Goal {
        of: of.into(),
        against: against.into(),
        bound: Bound::RateRatioAtLeast(5.0),
    }];
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
    let broker = broker(&folder)?;
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
