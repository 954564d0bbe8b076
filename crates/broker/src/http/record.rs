//! The record of a request: metrics and the audit trail.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use hsmux_audit::{Event, Recorder};
use hsmux_config::Action;
use hsmux_token::{ObjectId, ck};

use super::{AdmittedRequest, ApiCall};
use crate::audited_change;
use crate::engine::{for_client, spelling};
use crate::metrics::{self, KeySeries, Reason, RunningOperation};
use crate::refusal::Refusal;
use crate::traces;
use crate::transit::Data;

/// Details of a key's use, for its line on the trail.
#[derive(Default)]
pub struct UseDetails {
    /// 0: nothing yet, or a key that has no versions.
    version: AtomicU32,
    mechanism: OnceLock<&'static str>,
}

impl UseDetails {
    /// It uses this version of the key.
    pub fn version(&self, number: u32) {
        self.version.store(number, Ordering::Relaxed);
    }

    /// It does what a policy has to allow by name, by this mechanism.
    pub fn mechanism(&self, name: &'static str) {
        let _ = self.mechanism.set(name);
    }
}

impl ApiCall {
    /// Runs a use of the key, with its metrics and its line on the trail, also if the client goes away meanwhile. The
    /// work is pinned where it is made: passing a future on copies it.
    pub async fn using<T>(
        &self,
        call: &'static str,
        used: &UseDetails,
        work: Pin<&mut impl Future<Output = Result<T, Refusal>>>,
    ) -> Result<T, Refusal> {
        let mut running = self.series().begin(call);
        let audit = &self.broker().audit;
        let result = if audit.wants_uses() {
            match audit.admit() {
                Ok(()) => {
                    let mut line = UseLine {
                        audit: &**audit,
                        event: Some(self.use_of_key(call)),
                        used,
                        running: &running,
                        outcome: Some("given up: the client has gone".into()),
                    };
                    let result = work.await;
                    line.outcome = result.as_ref().err().map(Refusal::brief);
                    result
                }
                Err(error) => Err(error.into()),
            }
        } else {
            work.await
        };
        running.outcome = result.as_ref().map(drop).map_err(Reason::of);
        result
    }

    /// A refused attempt has a line on the trail. Repeated attempts could fill it: they get the first line and a
    /// count.
    pub(super) fn denied(&self, action: Action, refusal: &Refusal) {
        let (broker, audit) = (self.broker(), &self.broker().audit);
        if !audit.wants_uses() {
            return;
        }
        if broker.denials.has_line(self.client(), self.peer().ip) {
            audit.record(self.use_of_key(action.word()).outcome(refusal.brief()));
        }
    }

    fn use_of_key(&self, call: &'static str) -> Event {
        let event = match self.object.get() {
            None => Event::key_use(self.actor(), call, spelling(self.key())),
            Some(id) => {
                let catalogue = self.engine().pool().catalogue();
                let object = catalogue.get(id).map(|entry| &entry.object.attributes);
                let label = object.and_then(|object| object.text(ck::CKA_LABEL));
                Event::key_use(self.actor(), call, id.to_string()).label(label)
            }
        };
        event.request(self.id())
    }

    /// Notes the external key of the request: metrics and trail name it by its object, however the client names it.
    pub fn means(&self, object: ObjectId) {
        let key = metrics::external(&object);
        if let Some(trace) = &self.trace {
            trace.say("hsmux.key", key.clone());
        }
        self.series
            .get_or_init(|| self.broker().metrics.of_key(&key));
        let _ = self.object.set(object);
    }

    fn series(&self) -> &KeySeries {
        self.series
            .get_or_init(|| self.broker().metrics.of_key(self.key()))
    }

    /// Changes keys, with a line on the trail before and after. It continues if the client goes away.
    pub async fn act<T: Send + 'static>(
        &self,
        act: &'static str,
        mut fields: Data,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        fields.add("key", spelling(self.key()));
        let event = Event::act(self.actor(), act, fields.into()).request(self.id());
        let audit = Arc::clone(&self.broker().audit);
        let admitted = self.admitted.clone();
        let client = admitted.as_deref().map_or(0, AdmittedRequest::client);
        let deed = async move {
            // The change outlives its call, and counts for the client until it ends.
            let _admitted = admitted;
            audited_change::carry_out(&audit, event, work).await
        };
        let done = traces::follow(self.trace.clone(), for_client(client, deed));
        tokio::spawn(done).await.unwrap_or_else(|e| {
            Err(Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                e.to_string(),
            ))
        })
    }
}

/// A use of a key on its way to the trail.
struct UseLine<'a> {
    audit: &'a dyn Recorder,
    event: Option<Event>,
    used: &'a UseDetails,
    running: &'a RunningOperation<'a>,
    outcome: Option<String>,
}

impl Drop for UseLine<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            let took = self.running.begun.elapsed().as_micros();
            let version = self.used.version.load(Ordering::Relaxed);
            let event = event
                .took(u64::try_from(took).unwrap_or(u64::MAX))
                .version((version > 0).then_some(version))
                .mechanism(self.used.mechanism.get().map(|name| (*name).to_owned()));
            self.audit.record(match self.outcome.take() {
                Some(outcome) => event.outcome(outcome),
                None => event,
            });
        }
    }
}
