//! Load on a service with the Transit API over HTTP: hsmux, OpenBao, Vault or their predecessors.
//! Every caller has a connection and different bytes, to detect mixed-up answers; many callers share a thread.

mod address;
mod connection;
mod mix;
mod page;
mod request_kind;
mod requests;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use hsmux_token::{Result, Secret};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{self, LoadModel, Plan, RunControl, Until};
use crate::{Head, Measurement};

use address::ServiceAddress;
use connection::TransitClient;
pub use mix::Mix;
use requests::Requests;

/// Options of the load.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// `http://127.0.0.1:8200`, `https://keys.example:8200` or `unix:/run/hsmux/broker.sock`.
    pub url: String,
    /// The root for the server's certificate, PEM; needed for `https`.
    pub ca: Option<PathBuf>,
    /// The X-Vault-Token of the callers.
    pub token: Option<Secret>,
    /// The key's name in the service.
    pub key: String,
    /// The operations.
    pub mix: Mix,
    /// Additional fields of each item, as in `{"mode": "cbc"}`.
    pub with: Map<String, Value>,
    /// Length of a plaintext, or of signed data, in bytes.
    pub payload: usize,
    /// Items of a request; several are sent as `batch_input`.
    pub batch: usize,
    /// Whether a connection serves several requests.
    pub keep_alive: bool,
    /// The start of requests; a worker is a client with a connection.
    pub load: LoadModel,
    /// The end of the measurement.
    pub until: Until,
    /// The duration of the same load before the measurement.
    pub warm_up: Duration,
    /// The deadline of a request.
    pub deadline: Duration,
    /// Processes to account for, with their descendants: the service, if it is local.
    pub processes: Vec<u32>,
}

impl HttpOptions {
    /// Defaults: half encryption, half decryption, 256 bytes, 16 clients with persistent connections, ten seconds.
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
            load: LoadModel::Closed { workers: 16 },
            until: Until::Elapsed(Duration::from_secs(10)),
            warm_up: Duration::from_millis(500),
            deadline: Duration::from_secs(30),
            processes: Vec::new(),
        }
    }
}

/// The result. Its JSON is described by `docs/bench-schema.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HttpReport {
    /// Command, time and machine.
    #[serde(flatten)]
    pub head: Head,
    /// The service.
    pub url: String,
    /// The key.
    pub key: String,
    /// The operations: `encrypt=1,decrypt=1`.
    pub mix: String,
    /// Length of an item in bytes.
    pub payload: usize,
    /// Items of a request.
    pub batch: usize,
    /// Whether a connection served several requests.
    pub keep_alive: bool,
    /// Answered items per second.
    pub items_per_second: f64,
    /// The measurement: an operation is a request. Errors begin with their status.
    pub measurement: Measurement,
}

/// Measures. Errors of single requests are in the report. An error here means that nothing could be measured:
/// the service is down, or refuses the first request of a kind.
pub fn run(options: &HttpOptions, control: RunControl<'_>) -> Result<HttpReport> {
    let measurement = measure(options, control)?;
    Ok(HttpReport {
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

/// Only the measurement, for comparisons.
pub fn measure(options: &HttpOptions, control: RunControl<'_>) -> Result<Measurement> {
    HttpBenchmark::open(options)?.measure(options.until, options.warm_up, control)
}

/// A service with prepared callers, for repeated measurements.
pub struct HttpBenchmark {
    options: HttpOptions,
    address: ServiceAddress,
    requests: Requests,
}

impl HttpBenchmark {
    /// Reads the files and prepares each caller's requests; gets the ciphertexts for decryption from the service.
    pub fn open(options: &HttpOptions) -> Result<Self> {
        allow_connections();
        let address = ServiceAddress::new(&options.url, options.ca.as_deref())?;
        let requests = Requests::prepare(options, &address)?;
        Ok(Self {
            options: options.clone(),
            address,
            requests,
        })
    }

    /// Measures for this time.
    pub fn measure(
        &self,
        until: Until,
        warm_up: Duration,
        control: RunControl<'_>,
    ) -> Result<Measurement> {
        let plan = Plan {
            load: self.options.load,
            until,
            warm_up,
            processes: self.options.processes.clone(),
        };
        let caller = |index| -> Box<dyn engine::AsyncCaller> {
            let requests = self.requests.of(index);
            Box::new(TransitClient::new(
                &self.address,
                &self.options,
                requests,
                index,
            ))
        };
        let measured = engine::measure_waiting(&plan, control, &caller, engine::Ending::Finish);
        Ok(Measurement {
            // A caller checks each answer itself: a wrong one has failed.
            verified: measured.ops,
            ..measured
        })
    }
}

/// Raises this process's limit of open files, for one connection each; child processes inherit it. Returns the limit.
pub fn allow_connections() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the limit remains, further connections fail with that error.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
