//! What HTTP costs: requests against a constant, batches against single items, memory of many connections.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hsmux_bench::churn::Broker;
use hsmux_bench::compare::{Bound, Goal, Report, Variant};
use hsmux_bench::http::{Service, allow_connections};
use hsmux_bench::{Control, Load, Measurement, Until};
use hsmux_token::{Error, Kind, Result};
use tempfile::TempDir;

use super::{folder, store, usual, workers};
use crate::Effort;
use crate::fact::Fact;
use crate::footprint::peak_memory;
use crate::progress::{Turns, preparing};

/// A broker over one SoftHSM token, on a unix socket.
fn broker(folder: &TempDir) -> Result<Broker> {
    preparing("a SoftHSM token and a broker of it");
    let store = store(folder, "token")?;
    // It has made the key.
    drop(store.keys()?);
    store.broker(workers(), &usual())
}

fn ask(service: &Service, time: Duration) -> Result<Measurement> {
    let control = Control {
        stop: &AtomicBool::new(false),
        progress: &|_| {},
    };
    service.measure(Until::Elapsed(time), Duration::from_millis(200), control)
}

/// Requests that use the token against the same server answering a constant (`/v1/sys/health`).
pub fn requests(effort: Effort) -> Result<Report> {
    let folder = folder()?;
    let broker = broker(&folder)?;
    let constant = broker.asked_for(|asked| {
        asked.mix = "health".parse().expect("a mix");
    })?;
    let working = broker.asked_for(|_| {})?;
    let (name, against) = ("encrypt and decrypt", "a constant");
    let variants = vec![
        Variant::new(against, || ask(&constant, effort.turn)),
        Variant::new(name, || ask(&working, effort.turn)),
    ];
    let goal = |against: &str, bound| Goal {
        of: name.into(),
        against: against.into(),
        bound,
    };
    let goals = [
        goal(against, Bound::RateRatioAtLeast(0.5)),
        goal(name, Bound::TailAtMost(5.0)),
    ];
    let title = "The broker over HTTP, one SoftHSM token: 16 clients that keep their connections, AES-256-CBC of 256 \
                 bytes, half and half, against the same server answering a constant";
    effort.compare(title, variants, &goals)
}

/// Items of a batch.
const ITEMS: u32 = 100;

/// Items in batches of a hundred against single ones.
pub fn batches(effort: Effort) -> Result<Report> {
    let folder = folder()?;
    let broker = broker(&folder)?;
    let single = broker.asked_for(|_| {})?;
    let batch = broker.asked_for(|asked| asked.batch = ITEMS as usize)?;
    let items = || {
        let requests = ask(&batch, effort.turn)?;
        Ok(Measurement {
            ops: requests.ops * u64::from(ITEMS),
            per_second: requests.per_second * f64::from(ITEMS),
            ..requests
        })
    };
    let variants = vec![
        Variant::new("single items", || ask(&single, effort.turn)),
        Variant::new("items in batches of 100", items),
    ];
    let goal = Goal {
        of: "items in batches of 100".into(),
        against: "single items".into(),
        bound: Bound::RateRatioAtLeast(5.0),
    };
    let title = "The broker over HTTP: items for each second in batches, 16 clients";
    effort.compare(title, variants, &[goal])
}

/// Clients at the same time.
const CONNECTIONS: usize = 1000;
/// Their server holds no more, in MB.
const MOST_MEMORY: f64 = 150.0;

/// A thousand clients that work all at once.
pub fn many_connections(effort: Effort) -> Result<Vec<Fact>> {
    allow_connections();
    let folder = folder()?;
    let broker = broker(&folder)?;
    Turns::new([effort.turn]).next(&format!("{CONNECTIONS} connections"));
    let service = broker.asked_for(|asked| {
        asked.load = Load::Closed {
            workers: CONNECTIONS,
        };
    })?;
    let measured = ask(&service, effort.turn)?;
    if measured.ops == 0 {
        let why = measured.faults.first().map(|fault| fault.message.clone());
        return Err(Error::pool(Kind::Lost, why.unwrap_or_default()));
    }
    let with = format!("{CONNECTIONS} connections to the broker");
    let peak = peak_memory(broker.id()) as f64 / 1e6;
    Ok(vec![
        Fact::new(format!("peak memory with {with}"), peak, "MB").at_most(MOST_MEMORY),
        Fact::new(
            format!("failed, {with}"),
            measured.failed as f64,
            "requests",
        )
        .at_most(0.0),
    ])
}
