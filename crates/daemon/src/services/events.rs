//! Events that a service records on the daemon's trail.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hsmux_audit::{Event, Trail};
use hsmux_token::{Error, Kind, Result};
use hsmux_wire::{RecordKind, ServiceLink, ToService};

use super::BROKER;

/// The pause between two warnings about events that cannot be read.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// The hint to a service whose events wait for the disk.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The events of one process of a service. Dropping it waits for the acts that are done, and drops announced ones.
pub struct ServiceEvents {
    shared: Arc<EventContext>,
    /// Writes events that the service waits for. It starts with the first of them.
    waiting: Option<(SyncSender<PendingEvent>, JoinHandle<()>)>,
    warned: Option<Instant>,
    has_refused: bool,
}

/// Shared with the thread of the events that the service waits for.
struct EventContext {
    service: &'static str,
    link: Arc<ServiceLink>,
    trail: Arc<Trail>,
    /// The service has ended.
    has_ended: AtomicBool,
}

/// Refusals and lost lines of one packet that count.
const MOST_COUNTED: u64 = 1 << 32;

/// An event that the service waits for.
struct PendingEvent {
    event: Event,
    number: u64,
    is_announcement: bool,
}

impl ServiceEvents {
    /// No events yet.
    pub fn new(service: &'static str, link: &Arc<ServiceLink>, trail: &Arc<Trail>) -> Self {
        Self {
            shared: Arc::new(EventContext {
                service,
                link: Arc::clone(link),
                trail: Arc::clone(trail),
                has_ended: AtomicBool::new(false),
            }),
            waiting: None,
            warned: None,
            has_refused: false,
        }
    }

    /// Records an event as the service has sent it. Never waits.
    pub fn record(&mut self, event: &[u8], kind: RecordKind) {
        let service = self.shared.service;
        if service != BROKER {
            if !mem::replace(&mut self.has_refused, true) {
                tracing::error!("the {service} may not record on the audit trail, and is ignored");
            }
            return;
        }
        let answered = match kind {
            RecordKind::Event => None,
            RecordKind::Announce(number) => Some((number, true)),
            RecordKind::Commit(number) => Some((number, false)),
            RecordKind::Refusals(acts) => {
                let trail = &self.shared.trail;
                let why = trail.obstacle();
                let why = why.unwrap_or_else(|| "lines come faster than they are taken".into());
                return trail.refuse(&why, acts.min(MOST_COUNTED));
            }
            RecordKind::Lost(lines) => {
                let why = format!("the {service} has lost events");
                return self.shared.trail.lose(&why, lines.min(MOST_COUNTED));
            }
        };
        let event = match Event::of_service(service, event) {
            Ok(event) => event,
            Err(error) => return self.refuse(kind, error),
        };
        let Some((number, is_announcement)) = answered else {
            return self.shared.trail.record(event);
        };
        let pending = PendingEvent {
            event,
            number,
            is_announcement,
        };
        if let Err(refused) = self.submit(pending) {
            let (pending, error) = *refused;
            if !pending.is_announcement {
                // The act is done: its line has to come, though nobody waits for it.
                self.shared.trail.record(pending.event);
            }
            self.shared.answer(number, Err(error));
        }
    }

    fn submit(
        &mut self,
        pending: PendingEvent,
    ) -> std::result::Result<(), Box<(PendingEvent, Error)>> {
        let to = match &self.waiting {
            Some((to, _)) => to,
            None => match self.shared.start() {
                Ok(thread) => &self.waiting.insert(thread).0,
                Err(error) => return Err(Box::new((pending, error))),
            },
        };
        to.try_send(pending).map_err(|error| match error {
            TrySendError::Full(pending) | TrySendError::Disconnected(pending) => {
                let busy = Error::busy(ServiceLink::MOST_UNRECORDED, RETRY_AFTER);
                Box::new((pending, busy))
            }
        })
    }

    fn refuse(&mut self, kind: RecordKind, error: Error) {
        let is_due = |warned: Instant| warned.elapsed() >= WARNING_PAUSE;
        if self.warned.is_none_or(is_due) {
            self.warned = Some(Instant::now());
            tracing::warn!(%error, "the {} has sent an event that is not recorded", self.shared.service);
        }
        if let RecordKind::Announce(number) | RecordKind::Commit(number) = kind {
            self.shared.trail.refuse(&error.to_string(), 1);
            self.shared.answer(number, Err(error));
        }
    }
}

impl Drop for ServiceEvents {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        if let Some((to, thread)) = self.waiting.take() {
            drop(to);
            let _ = thread.join();
        }
    }
}

impl EventContext {
    fn start(self: &Arc<Self>) -> Result<(SyncSender<PendingEvent>, JoinHandle<()>)> {
        let (to, events) = sync_channel(ServiceLink::MOST_UNRECORDED);
        let context = Arc::clone(self);
        let thread = thread::Builder::new()
            .name(format!("hsmux-{}-log", self.service))
            .spawn(move || context.write(&events))
            .map_err(|e| Error::pool(Kind::Environment, format!("no thread for events: {e}")))?;
        Ok((to, thread))
    }

    fn write(&self, events: &Receiver<PendingEvent>) {
        for pending in events {
            let result = if !pending.is_announcement {
                self.trail.commit(pending.event)
            } else if self.has_ended.load(Ordering::Relaxed) {
                // Nobody does it.
                continue;
            } else {
                self.trail.announce(pending.event)
            };
            self.answer(pending.number, result);
        }
    }

    /// A service that does not read its answers is ended.
    fn answer(&self, number: u64, result: Result<()>) {
        if let Err(error) = self.link.tell(&ToService::Recorded { number, result }) {
            if !self.has_ended.load(Ordering::Relaxed) {
                tracing::error!(%error, "the {} hears nothing", self.service);
            }
            self.link.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use hsmux_audit::{Actor, OnFailure, Settings};
    use hsmux_wire::FromService;
    use serde_json::{Map, Value};

    use super::*;

    struct Rig {
        events: ServiceEvents,
        trail: Arc<Trail>,
        service: ServiceLink,
        folder: tempfile::TempDir,
    }

    impl Rig {
        fn new(name: &'static str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let trail = Trail::open(&Settings {
                file: folder.path().join("audit.log"),
                state: folder.path().to_owned(),
                uses: true,
                on_failure: OnFailure::Stop,
                checkpoint: Duration::from_secs(3600),
            });
            let trail = Arc::new(trail.unwrap());
            let (link, service) = ServiceLink::pair().unwrap();
            Self {
                events: ServiceEvents::new(name, &Arc::new(link), &trail),
                trail,
                service: ServiceLink::of_service(service),
                folder,
            }
        }

        fn recorded(&self) -> (u64, Result<()>) {
            match self.service.hear().unwrap() {
                ToService::Recorded { number, result } => (number, result),
                other => panic!("{other:?}"),
            }
        }

        fn fill_the_disk(&self) {
            let file = self.folder.path().join("audit.log");
            fs::rename(&file, self.folder.path().join("audit.log.1")).unwrap();
            symlink("/dev/full", &file).unwrap();
            self.trail.reopen().unwrap_err();
        }

        /// The acts on the trail.
        fn acts(self) -> Vec<String> {
            drop(self.events);
            self.trail.close();
            let text = fs::read_to_string(self.folder.path().join("audit.log")).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
            let acts = lines.filter(|line: &Value| line.get("act").is_some());
            acts.map(|line| format!("{} {}", line["act"].as_str().unwrap(), line["service"]))
                .collect()
        }
    }

    fn act(name: &str) -> Vec<u8> {
        Event::act(&Arc::new(Actor::default()), name, Map::new()).to_bytes()
    }

    #[test]
    fn what_the_broker_has_refused_and_lost_is_counted() {
        let mut rig = Rig::new(BROKER);
        rig.events.record(&[], RecordKind::Refusals(3));
        rig.events.record(&[], RecordKind::Lost(u64::MAX));
        let status = rig.trail.status();
        assert_eq!((status.refused, status.lost), (3, MOST_COUNTED));
    }

    #[test]
    fn events_of_the_broker_are_on_the_trail_in_order_with_its_mark() {
        let mut rig = Rig::new(BROKER);
        rig.events.record(&act("one"), RecordKind::Event);
        rig.events.record(&act("two"), RecordKind::Announce(5));
        rig.events.record(&act("three"), RecordKind::Commit(6));
        for number in [5, 6] {
            let (answered, result) = rig.recorded();
            result.unwrap();
            assert_eq!(answered, number);
        }
        rig.events.record(&act("four"), RecordKind::Event);
        let expected = ["one", "two", "three", "four"].map(|act| format!("{act} \"broker\""));
        assert_eq!(rig.acts(), expected);
    }

    #[test]
    fn another_service_records_nothing() {
        let mut rig = Rig::new(super::super::GATEWAY);
        rig.events.record(&act("one"), RecordKind::Event);
        rig.events.record(&act("two"), RecordKind::Commit(1));
        assert!(rig.acts().is_empty());
    }

    #[test]
    fn an_event_that_cannot_be_read_is_refused_and_counted() {
        let mut rig = Rig::new(BROKER);
        rig.events.record(b"{}", RecordKind::Event);
        rig.events.record(b"\xff", RecordKind::Announce(1));
        rig.events.record(b"{}", RecordKind::Commit(2));
        for number in [1, 2] {
            let (answered, result) = rig.recorded();
            assert_eq!(result.unwrap_err().kind(), Kind::Protocol);
            assert_eq!(answered, number);
        }
        assert_eq!(rig.trail.status().refused, 2);
        assert!(rig.acts().is_empty());
    }

    #[test]
    fn the_error_of_the_trail_is_the_answer() {
        let mut rig = Rig::new(BROKER);
        rig.fill_the_disk();
        rig.events.record(&act("one"), RecordKind::Announce(1));
        let (_, result) = rig.recorded();
        let error = result.unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
    }

    #[test]
    fn too_many_events_that_wait_are_refused_at_once_and_done_acts_have_their_line() {
        let mut rig = Rig::new(BROKER);
        let (stuck, never) = sync_channel(ServiceLink::MOST_UNRECORDED);
        rig.events.waiting = Some((stuck, thread::spawn(|| ())));
        for number in 0..=ServiceLink::MOST_UNRECORDED as u64 {
            rig.events
                .record(&act("more"), RecordKind::Announce(number));
        }
        rig.events.record(&act("done"), RecordKind::Commit(1000));
        for number in [ServiceLink::MOST_UNRECORDED as u64, 1000] {
            let (answered, result) = rig.recorded();
            assert_eq!(result.unwrap_err().kind(), Kind::Busy);
            assert_eq!(answered, number);
        }
        drop(never);
        assert_eq!(rig.acts(), ["done \"broker\""]);
    }

    #[test]
    fn a_service_that_reads_no_answers_is_ended() {
        let mut rig = Rig::new(BROKER);
        for number in 0..1_000_000 {
            rig.events.record(b"{}", RecordKind::Commit(number));
            if rig.service.report(FromService::Ready).is_err() {
                return;
            }
        }
        panic!("its link is open");
    }
}
