//! The broker: key changes and the cost of HTTP, with SoftHSM tokens in temporary folders.

mod churn;
mod engine;
mod http;

use std::time::Duration;

use hsmux_bench::churn::{ChurnOptions, Programs, SoftHsmStore};
use hsmux_suite::{Program, SOFTHSM, built};
use hsmux_token::{Error, Kind, Result};
use tempfile::TempDir;

pub use churn::{foreign_churn, over_the_stand_in};
pub use engine::below_http;
pub use http::{batches, many_connections, requests};

/// The usual load of the figures and the published table: 16 callers, 256 bytes.
fn usual() -> ChurnOptions {
    ChurnOptions {
        runs: Vec::new(),
        callers: 16,
        payload: 256,
        settle: Duration::from_secs(2),
        time: Duration::from_secs(2),
    }
}

/// Worker processes of a broker on this machine.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("hsmux-").tempdir();
    folder.map_err(|e| Error::pool(Kind::Environment, e.to_string()))
}

fn store(folder: &TempDir, name: &str) -> Result<SoftHsmStore> {
    let folder = folder.path().join(name);
    SoftHsmStore::new(&folder, &programs(), SOFTHSM.as_ref(), None)
}

fn programs() -> Programs {
    Programs {
        hsmux: built(Program::Hsmux),
        lab: built(Program::Lab),
    }
}
