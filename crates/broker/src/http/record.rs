//! What becomes of a request: counted, and on the audit trail.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use axum::http::StatusCode;
use hsmux_audit::{Event, Trail};
use hsmux_pool::config::Action;

use super::Call;
use crate::deed;
use crate::metrics::{Reason, Running, Series};
use crate::refusal::Refusal;
use crate::traces;
use crate::transit::Data;

impl Call {
    /// Uses the key: counted, and on the trail; also where the client goes away meanwhile.
    pub async fn using<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        // In one place, however it is waited for: a future that is passed on is copied, and made room for
        // again.
        let work = pin!(work);
        let mut running = self.series().begin(call);
        let audit = &self.broker().audit;
        let result = if audit.wants_uses() {
            match audit.admit() {
                Ok(()) => self.on_trail(call, &running, work).await,
                Err(error) => Err(error.into()),
            }
        } else {
            work.await
        };
        running.outcome = result.as_ref().map(drop).map_err(Reason::of);
        result
    }

    async fn on_trail<T>(
        &self,
        call: &'static str,
        running: &Running<'_>,
        work: Pin<&mut impl Future<Output = Result<T, Refusal>>>,
    ) -> Result<T, Refusal> {
        let mut line = Line {
            audit: &self.broker().audit,
            event: Some(self.use_of_key(call)),
            running,
            outcome: Some("given up: the client has gone".into()),
        };
        let result = work.await;
        line.outcome = result
            .as_ref()
            .err()
            .map(|refusal| refusal.text().to_owned());
        result
    }

    /// What no policy allows is on the trail as what was tried.
    pub(super) fn denied(&self, action: Action, refusal: &Refusal) {
        let audit = &self.broker().audit;
        if audit.wants_uses() {
            audit.record(self.use_of_key(action.word()).outcome(refusal.text()));
        }
    }

    fn use_of_key(&self, call: &'static str) -> Event {
        Event::key_use(&self.actor, call, self.key()).request(self.id())
    }

    /// Uses are counted under this name, and not under the one that the client has given.
    pub fn count_as(&self, key: &str) {
        if let Some(trace) = &self.trace {
            trace.say("hsmux.key", key.to_owned());
        }
        self.series
            .get_or_init(|| self.broker().metrics.of_key(key));
    }

    fn series(&self) -> &Series {
        self.series
            .get_or_init(|| self.broker().metrics.of_key(self.key()))
    }

    /// Changes keys, with a line on the trail before and after. It goes on where the client goes away.
    pub async fn act<T: Send + 'static>(
        &self,
        act: &'static str,
        mut fields: Data,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        fields.add("key", self.key());
        let event = Event::act(&self.actor, act, fields.into()).request(self.id());
        let audit = Arc::clone(&self.broker().audit);
        let admitted = self.admitted.clone();
        let deed = async move {
            // It runs on without its call, and is one of the client's requests until it ends.
            let _admitted = admitted;
            deed::carry_out(&audit, event, work).await
        };
        let done = traces::follow(self.trace.clone(), deed);
        tokio::spawn(done).await.unwrap_or_else(|e| {
            Err(Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                e.to_string(),
            ))
        })
    }
}

/// A use of a key on its way to the trail.
struct Line<'a> {
    audit: &'a Trail,
    event: Option<Event>,
    running: &'a Running<'a>,
    outcome: Option<String>,
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            let took = self.running.begun.elapsed().as_micros();
            let event = event.took(u64::try_from(took).unwrap_or(u64::MAX));
            self.audit.record(match self.outcome.take() {
                Some(outcome) => event.outcome(outcome),
                None => event,
            });
        }
    }
}
