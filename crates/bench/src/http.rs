//! A service that speaks the Transit dialect, asked over HTTP: ours, OpenBao, Vault, or what they replaced.
//!
//! Every caller has a connection and bytes of its own, so that an answer that is another caller's is
//! found out; many callers share a thread, so that the client costs the machine little.

mod act;
mod connection;
mod mix;
mod page;
mod place;
mod requests;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use hsmux_token::{Result, Secret};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{self, Control, Load, Plan, Until};
use crate::{Head, Measurement};

use connection::Client;
pub use mix::Mix;
use place::Place;
use requests::Requests;

/// Who is asked for what, how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// `http://127.0.0.1:8200`, `https://keys.example:8200` or `unix:/run/hsmux/broker.sock`.
    pub url: String,
    /// The root that a server's certificate has to lead to, PEM; needed for `https`.
    pub ca: Option<PathBuf>,
    /// What callers show as X-Vault-Token.
    pub token: Option<Secret>,
    /// The key by its name there.
    pub key: String,
    /// What is asked for.
    pub mix: Mix,
    /// Further members of each item, as in `{"mode": "cbc"}`.
    pub with: Map<String, Value>,
    /// Bytes of a plaintext, or of what is signed.
    pub payload: usize,
    /// Items of a request; with more than one it has a `batch_input`.
    pub batch: usize,
    /// Whether a connection serves more than one request.
    pub keep_alive: bool,
    /// How requests are started; a worker is a client with a connection.
    pub load: Load,
    /// When to end.
    pub until: Until,
    /// The same load before, of which nothing counts.
    pub warm_up: Duration,
    /// How long one request may take.
    pub deadline: Duration,
    /// Processes to account for, each with all that descend from it: the service, where it runs here.
    pub processes: Vec<u32>,
}

impl Options {
    /// What is usual: half encrypt, half decrypt, 256 bytes, 16 clients that keep their connections,
    /// for ten seconds.
    pub fn new(url: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca: None,
            token: None,
            key: key.into(),
            mix: Mix::default(),
            with: Map::new(),
            payload: 256,
            batch: 1,
            keep_alive: true,
            load: Load::Closed { workers: 16 },
            until: Until::Elapsed(Duration::from_secs(10)),
            warm_up: Duration::from_millis(500),
            deadline: Duration::from_secs(30),
            processes: Vec::new(),
        }
    }
}

/// What asking found. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// Who was asked.
    pub url: String,
    /// With which key.
    pub key: String,
    /// For what: `encrypt=1,decrypt=1`.
    pub mix: String,
    /// Bytes of an item.
    pub payload: usize,
    /// Items of a request.
    pub batch: usize,
    /// Whether a connection served more than one request.
    pub keep_alive: bool,
    /// Items that were answered, for each second.
    pub items_per_second: f64,
    /// What was measured: an operation is a request. Errors begin with their status.
    pub measurement: Measurement,
}

/// Measures. Errors of single requests are in the report; an error here means that nothing could be
/// measured: nobody there, or the first request of a kind is refused.
pub fn run(options: &Options, control: Control<'_>) -> Result<Report> {
    let measurement = measure(options, control)?;
    Ok(Report {
        head: Head::now("http"),
        url: options.url.clone(),
        key: options.key.clone(),
        mix: options.mix.to_string(),
        payload: options.payload,
        batch: options.batch,
        keep_alive: options.keep_alive,
        items_per_second: measurement.per_second * options.batch as f64,
        measurement,
    })
}

/// Only the measurement, for those who compare.
pub fn measure(options: &Options, control: Control<'_>) -> Result<Measurement> {
    Service::open(options)?.measure(options.until, options.warm_up, control)
}

/// A service whose callers are ready: it can be measured again and again.
pub struct Service {
    options: Options,
    place: Place,
    requests: Requests,
}

impl Service {
    /// Reads what is needed and makes each caller's requests, which asks the service for the
    /// ciphertexts that are to be deciphered.
    pub fn open(options: &Options) -> Result<Self> {
        allow_connections();
        let place = Place::new(&options.url, options.ca.as_deref())?;
        let requests = Requests::prepare(options, &place)?;
        Ok(Self {
            options: options.clone(),
            place,
            requests,
        })
    }

    /// Measures for so long.
    pub fn measure(
        &self,
        until: Until,
        warm_up: Duration,
        control: Control<'_>,
    ) -> Result<Measurement> {
        let plan = Plan {
            load: self.options.load,
            until,
            warm_up,
            processes: self.options.processes.clone(),
        };
        let caller = |index| -> Box<dyn engine::Caller> {
            let requests = self.requests.of(index);
            Box::new(Client::new(&self.place, &self.options, requests, index))
        };
        let measured = engine::measure_waiting(&plan, control, &caller, engine::Ending::Finish);
        Ok(Measurement {
            // A caller checks each answer as it comes: what is wrong has failed.
            verified: measured.ops,
            ..measured
        })
    }
}

/// Raises this process's limit of open files as far as it may: a connection is one. Processes that it
/// starts have the same limit. Answers what it is.
pub fn allow_connections() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With the limit as it was, connections past it fail, and say so.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
