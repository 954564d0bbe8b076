//! An operation of the pool as a future: ten thousand may wait without a thread.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use hsmux_pool::Owner;
use hsmux_service::request_number;
use hsmux_token::{
    Behalf, Blob, Done, Error, Kind, Mechanism, ObjectId, Operation, Outcome, Request, Result,
    Scope, Token, Uses, Verb, ck, entry,
};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::bulky::BULKY;
use super::{CHANGE, Engine};
use crate::traces;

tokio::task_local! {
    /// The client of the current request.
    static CLIENT: u64;
}

/// Runs work for the client of this number: the scheduler gives each client's operations a turn of their own. Pin
/// large futures where they are made, since passing them on copies them.
pub(crate) fn for_client<T>(client: u64, work: impl Future<Output = T>) -> impl Future<Output = T> {
    CLIENT.scope(client, work)
}

impl Engine {
    /// Runs an operation with the pool's deadline.
    pub(crate) fn run(&self, operation: Operation) -> impl Future<Output = Result<Outcome>> {
        self.run_within(operation, self.pool.options().deadline)
    }

    /// Runs a change of token objects, which may take minutes.
    pub(super) fn change(&self, operation: Operation) -> impl Future<Output = Result<Outcome>> {
        self.run_within(operation, CHANGE)
    }

    /// Uses a key.
    pub(super) fn with_key(
        &self,
        verb: Verb,
        key: ObjectId,
        mechanism: Mechanism,
        data: impl Into<Blob>,
    ) -> impl Future<Output = Result<Bytes>> {
        let operation = Operation::Use {
            verb,
            key: key.into(),
            mechanism,
            data: data.into(),
        };
        self.run(operation).map(|outcome| outcome?.into_bytes())
    }

    /// Submits it now, unless it is bulky: the waiting future does not carry the operation, or each nested future would
    /// keep a copy.
    fn run_within(
        &self,
        operation: Operation,
        patience: Duration,
    ) -> impl Future<Output = Result<Outcome>> {
        let mechanism = operation.mechanism().map(|mechanism| mechanism.kind);
        let (tell, told) = oneshot::channel();
        // The caller may have gone away; then the answer is dropped.
        let done = Done::new(move |result| drop(tell.send(result)));
        let changes = operation.changes_token();
        // The daemon makes the spans of other operations.
        let traced = changes.then(|| traces::operation(&operation)).flatten();
        let number = CLIENT.try_with(|client| *client).unwrap_or(0);
        let behalf = Behalf {
            client: None,
            number,
            request: request_number(),
            trace: traces::current()
                .filter(|_| !changes)
                .and_then(|trace| trace.for_operation()),
        };
        let bytes = operation.bytes().saturating_add(operation.answer_bytes());
        let is_bulky = !changes && bytes > BULKY;
        let call = operation.call();
        let deadline = Instant::now() + patience;
        let request = Request {
            behalf: Some(behalf.into()),
            operation,
            deadline,
            done,
        };
        let begun = if is_bulky {
            // Boxed, because futures of requests are kept small.
            Err(async move {
                let turn = timeout_at(deadline.into(), self.bulky.take(number)).await;
                let turn = turn.map_err(|_| too_late(call))?;
                let submitted = Box::new((turn, (self.submit)(request))) as Box<dyn Send + '_>;
                Ok(submitted)
            }
            .boxed())
        } else if changes {
            let owner = Owner::Broker(number);
            let claim = self.pool.submit_claimed(request, owner, None);
            Ok(Box::new(claim) as Box<dyn Send + '_>)
        } else {
            Ok((self.submit)(request) as Box<dyn Send + '_>)
        };
        async move {
            let submitted: Result<_> = match begun {
                Ok(submitted) => Ok(submitted),
                Err(waits) => waits.await,
            };
            let result = match &submitted {
                Ok(_) => told
                    .await
                    .unwrap_or_else(|_| Err(Error::lost("the pool has stopped"))),
                Err(error) => Err(error.clone()),
            };
            if let Some(traced) = traced {
                traced.ended(result.as_ref().err());
            }
            result.map_err(|error| match (mechanism, error.kind()) {
                (Some(kind), Kind::NoMechanism) => self.with_choice(error, kind),
                // The token itself reports that when a key is made.
                (Some(kind), Kind::Vendor(ck::CKR_MECHANISM_INVALID))
                    if error.scope() == Scope::Request =>
                {
                    let name = Mechanism::plain(kind).name();
                    self.with_choice(format_args!("{error}: there is no {name}"), kind)
                }
                _ => error,
            })
        }
    }

    /// A hint: the alternatives that the tokens have to a missing mechanism.
    pub(super) fn with_choice(&self, error: impl fmt::Display, lacking: u64) -> Error {
        let wanted = entry(lacking);
        let related = |kind: u64| {
            let (wanted, offered) = (wanted?, entry(kind)?);
            let same = offered.key == wanted.key || wanted.uses.intersects(Uses::MAKES);
            let same = same && offered.uses.intersects(wanted.uses) && kind != lacking;
            same.then_some(offered.name)
        };
        let info = self.pool.info();
        let offered: Vec<_> = info
            .mechanisms
            .iter()
            .filter_map(|m| related(m.kind))
            .collect();
        let choice = if offered.is_empty() {
            "nothing of the kind".into()
        } else {
            offered.join(", ")
        };
        Error::request(Kind::NoMechanism, format!("{error}; there is {choice}"))
    }
}

fn too_late(call: &str) -> Error {
    let message = format!("{call}: other operations with long data took until the deadline");
    Error::pool(Kind::Deadline, message)
}
