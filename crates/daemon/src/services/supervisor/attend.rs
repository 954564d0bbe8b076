//! What one process of a service asks for over its link.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_config::Config;
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{Admitted, FromService, ServiceClient, ServiceLink, ToService};

use super::super::connections::ServiceConnections;
use super::super::events::ServiceEvents;
use super::super::kept_sockets::KeptSockets;
use super::super::{BROKER, NODE};
use super::state::{ServiceInstance, StartSender};
use super::{START_WITHIN, SupervisedService, silent_for};
use crate::daemon::Running;

/// How often it is looked whether keys are used, though the trail has said nothing.
pub(super) const LOOK: Duration = Duration::from_secs(10);

/// While more lines wait on the trail, the broker's events are not read: a broker that was taken over could fill the
/// trail's queue, and stop the use of all keys.
const MOST_WAITING: usize = 4096;

/// How long they are not read then.
const RELIEF: Duration = Duration::from_millis(5);

impl SupervisedService {
    /// Does what it asks for until its link ends; answers what it says of that.
    pub(super) fn attend(
        &self,
        process: &ServiceInstance,
        sent: &Config,
        started: &mut StartSender,
        has_served: &mut bool,
    ) -> Option<Error> {
        let link = &process.link;
        let (mut said, mut told) = (None, None);
        let mut kept = Some(KeptSockets::default());
        let trail = Arc::clone(&self.running.upgrade()?.shared.audit);
        let mut events = ServiceEvents::new(self.name, link, &trail);
        let mut connections = ServiceConnections::default();
        loop {
            self.tell_trouble(link, &mut told)?;
            let within = match self.time_left(process.number) {
                Ok(within) => within,
                Err(late) => return Some(late),
            };
            if self.name == BROKER && trail.waiting() > MOST_WAITING && self.pause(RELIEF) {
                continue;
            }
            if !link
                .wait(process.trail_changed.as_fd(), within)
                .unwrap_or(true)
            {
                // Whatever changes after this wakes the thread again.
                let _ = rustix::io::read(&*process.trail_changed, &mut [0; 8]);
                continue;
            }
            match link.attend() {
                Ok(FromService::Listens(listening)) => {
                    let added = match &mut kept {
                        Some(kept) => kept.add(listening),
                        None => Err(Error::protocol("it has further sockets while it serves")),
                    };
                    if let Err(error) = added {
                        return Some(error);
                    }
                }
                Ok(FromService::Ready) => {
                    if let Some(kept) = kept.take() {
                        *has_served = true;
                        self.take_over(process, kept);
                        self.running.upgrade()?.service_reads(self.name, sent);
                    }
                    if let Some(started) = started.take() {
                        let _ = started.send(Ok(()));
                    }
                }
                Ok(FromService::Failed(error)) => said = Some(error),
                Ok(FromService::Record { event, kind }) => events.record(&event, kind),
                Ok(
                    FromService::Connect {
                        client: ServiceClient::Host { .. },
                        ..
                    }
                    | FromService::Refused { .. },
                ) if self.name != NODE => {
                    let message = "it speaks for other hosts, as the node alone may";
                    return Some(Error::protocol(message));
                }
                Ok(asked) => self.carry_out(asked, &mut connections)?,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return said,
                Err(error) => {
                    let message = format!("it says what nobody understands: {error}");
                    return Some(Error::protocol(message));
                }
            }
        }
    }

    /// How long its thread may wait for it. An error: it has not served, or not ended, in time.
    fn time_left(&self, number: u64) -> Result<Duration> {
        let now = self.now.lock();
        let Some(process) = now.process(number) else {
            return Ok(LOOK);
        };
        let left = |by: Option<Instant>| by.map(|by| by.saturating_duration_since(Instant::now()));
        let (ready, ends) = (left(process.ready_by), left(process.ends_by));
        if ready.is_some_and(|left| left.is_zero()) {
            return Err(self.cannot_start(&silent_for(START_WITHIN)));
        }
        if ends.is_some_and(|left| left.is_zero()) {
            let why = "it has handed over its sockets, and does not end";
            return Err(Error::lost(why));
        }
        // A wait ends up to a millisecond early.
        let nearest = [ready, ends].into_iter().flatten().min();
        let nearest = nearest.map_or(LOOK, |left| left + Duration::from_millis(1));
        Ok(nearest.min(LOOK))
    }

    /// Waits so long, or until something has changed. False if the service is to end.
    fn pause(&self, within: Duration) -> bool {
        let mut now = self.now.lock();
        if !now.is_ending {
            self.changed.wait_for(&mut now, within);
        }
        !now.is_ending
    }

    /// Tells it where keys are not used, or are used again; `None` when the daemon has gone.
    fn tell_trouble(&self, link: &ServiceLink, told: &mut Option<String>) -> Option<()> {
        let running = self.running.upgrade()?;
        let audit = &running.shared.audit;
        let why = if self.name == BROKER {
            // It refuses by itself what it has to record.
            audit.obstacle()
        } else {
            let stands = audit.wants_uses() && !audit.admits();
            stands.then(|| "keys are not used while the audit trail cannot be written".into())
        };
        if why != *told {
            told.clone_from(&why);
            if let Err(error) = link.tell(&ToService::Trouble(why)) {
                tracing::error!(%error, "the {} hears nothing", self.name);
                link.close();
            }
        }
        Some(())
    }

    /// A connection of its own.
    fn serve(&self, running: &Running, connection: UnixStream) -> Option<Admitted> {
        let taken = match &self.entrance {
            Some(entrance) => entrance
                .take(connection)
                .map_err(|error| Error::token(Kind::Busy, error.to_string())),
            None => Err(Error::request(Kind::Forbidden, "it may not use keys")),
        };
        taken
            .inspect_err(|error| running.shared.refuse_service(self.name, error))
            .ok()
    }

    /// `None` when the daemon has gone.
    fn carry_out(&self, asked: FromService, connections: &mut ServiceConnections) -> Option<()> {
        let running = self.running.upgrade()?;
        let peers = running.peers();
        let admitted = match asked {
            FromService::Connect {
                client: ServiceClient::Host { name, from },
                connection,
            } => peers.serve_from(&running, &name, &from, connection),
            FromService::Connect {
                client: ServiceClient::Service,
                connection,
            } => self.serve(&running, connection),
            FromService::Refused {
                from,
                problem,
                advice,
            } => {
                peers.refuse(&from, &problem, &advice);
                None
            }
            FromService::Listens(_)
            | FromService::Ready
            | FromService::Failed(_)
            | FromService::Record { .. } => None,
        };
        if let Some(admitted) = admitted {
            connections.add(admitted);
        }
        Some(())
    }
}
