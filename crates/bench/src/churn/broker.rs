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
use super::meanwhile::meanwhile;
use super::store::LABEL;
use super::{Options, Serves};
use crate::http::{self, Service};
use crate::{Load, Measurement};

/// How long it may take until it serves the key.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker, and clients with persistent connections.
pub struct Broker {
    service: Service,
    asked: http::Options,
    process: BrokerProcess,
}

/// The broker's process, which ends on drop.
struct BrokerProcess(Child);

impl Broker {
    /// Starts it, and waits until it serves the key.
    pub(super) fn start(command: &mut Command, socket: &Path, options: &Options) -> Result<Self> {
        let mut process = BrokerProcess::start(command)?;
        let asked = Self::asked(socket, options);
        let give_up = Instant::now() + PATIENCE;
        loop {
            match Service::open(&asked) {
                Ok(service) => {
                    return Ok(Self {
                        service,
                        asked,
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
    fn asked(socket: &Path, options: &Options) -> http::Options {
        let mut asked = http::Options::new(
            format!("unix:{}", socket.display()),
            format!("label:{LABEL}"),
        );
        asked.payload = options.payload;
        asked.with.insert("mode".into(), json!("cbc"));
        asked.load = Load::Closed {
            workers: options.callers,
        };
        asked
    }

    /// Clients with changed options.
    pub fn asked_for(&self, change: impl FnOnce(&mut http::Options)) -> Result<Service> {
        let mut asked = self.asked.clone();
        change(&mut asked);
        Service::open(&asked)
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

impl Serves for Broker {
    /// A broker needs none.
    fn restart(&mut self) -> Result<()> {
        Err(Error::pool(
            Kind::Unsupported,
            "a broker is not started anew",
        ))
    }

    fn load(&mut self, during: &mut dyn FnMut() -> Result<()>) -> Result<Measurement> {
        let service = &self.service;
        meanwhile(during, |until, control| {
            service.measure(until, Duration::ZERO, control)
        })
    }
}
