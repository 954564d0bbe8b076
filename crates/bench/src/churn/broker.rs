//! A broker in a process of its own, and clients that ask it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use hsmux_token::{Error, Kind, Result};
use serde_json::json;

use super::child::Child;
use super::meanwhile::meanwhile;
use super::store::LABEL;
use super::{Options, Serves};
use crate::http::{self, Service};
use crate::{Load, Measurement};

/// How long it may take to serve the key.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker, and clients that keep their connections.
pub struct Broker {
    service: Service,
    asked: http::Options,
    child: Child,
}

impl Broker {
    /// Waits until the key is served.
    pub(super) fn start(mut child: Child, socket: &Path, options: &Options) -> Result<Self> {
        let asked = Self::asked(socket, options);
        let give_up = Instant::now() + PATIENCE;
        loop {
            match Service::open(&asked) {
                Ok(service) => {
                    return Ok(Self {
                        service,
                        asked,
                        child,
                    });
                }
                Err(error) if Instant::now() > give_up || !child.is_running() => {
                    return Err(error.at("the broker does not serve"));
                }
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Raw CBC by the key that another program has made, as the brokers did that this one replaces.
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

    /// What asks it for other things: with these changes to what is usual.
    pub fn asked_for(&self, change: impl FnOnce(&mut http::Options)) -> Result<Service> {
        let mut asked = self.asked.clone();
        change(&mut asked);
        Service::open(&asked)
    }

    /// Its process id; its workers descend from it.
    pub fn id(&self) -> u32 {
        self.child.id()
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
