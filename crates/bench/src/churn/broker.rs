//! A broker in a process of its own, and its clients.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Kind, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::child::{end, is_running};
use super::load_during::load_during;
use super::store::LABEL;
use super::{ChurnOptions, LoadedService};
use crate::http::{self, HttpBenchmark};
use crate::{LoadModel, Measurement};

/// How long it may take until it serves the key.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A broker, and clients with persistent connections.
pub struct LoadedBroker {
    service: HttpBenchmark,
    http_options: http::HttpOptions,
    process: BrokerProcess,
}

/// The broker's process, which ends on drop.
struct BrokerProcess(Child);

impl LoadedBroker {
    /// Starts it, and waits until it serves the key.
    pub(super) fn start(
        command: &mut Command,
        socket: &Path,
        options: &ChurnOptions,
    ) -> Result<Self> {
        let mut process = BrokerProcess::start(command)?;
        let http_options = Self::http_options(socket, options);
        let give_up = Instant::now() + START_TIMEOUT;
        loop {
            match HttpBenchmark::open(&http_options) {
                Ok(service) => {
                    return Ok(Self {
                        service,
                        http_options,
                        process,
                    });
                }
                Err(error) if Instant::now() > give_up || !is_running(&mut process.0) => {
                    return Err(error.at("the broker does not serve"));
                }
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Raw CBC with a key that another program has created, as in the replaced brokers.
    fn http_options(socket: &Path, options: &ChurnOptions) -> http::HttpOptions {
        let mut http_options = http::HttpOptions::new(
            format!("unix:{}", socket.display()),
            format!("label:{LABEL}"),
        );
        http_options.payload = options.payload;
        http_options.with.insert("mode".into(), json!("cbc"));
        http_options.load = LoadModel::Closed {
            workers: options.callers,
        };
        http_options
    }

    /// Clients with changed options.
    pub fn with_options(
        &self,
        change: impl FnOnce(&mut http::HttpOptions),
    ) -> Result<HttpBenchmark> {
        let mut http_options = self.http_options.clone();
        change(&mut http_options);
        HttpBenchmark::open(&http_options)
    }

    /// Its process id; its workers are descendants.
    pub fn id(&self) -> u32 {
        self.process.0.id()
    }
}

impl BrokerProcess {
    fn start(command: &mut Command) -> Result<Self> {
        let started = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Ctrl+C is for the measuring process.
            .process_group(0)
            .spawn();
        started.map(Self).map_err(|error| {
            let program = command.get_program().display();
            Error::pool(Kind::Environment, format!("{program}: {error}"))
        })
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        // After a wait, the process id may belong to another process.
        if is_running(&mut self.0) {
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        }
        end(&mut self.0);
    }
}

impl LoadedService for LoadedBroker {
    /// A broker needs none.
    fn restart(&mut self) -> Result<()> {
        Err(Error::pool(
            Kind::Unsupported,
            "a broker is not started anew",
        ))
    }

    fn load(&mut self, during: &mut dyn FnMut() -> Result<()>) -> Result<Measurement> {
        let service = &self.service;
        load_during(during, |until, control| {
            service.measure(until, Duration::ZERO, control)
        })
    }
}
