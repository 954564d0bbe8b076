//! The request of the current task, as a task-local value.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use hsmux_traces::{ChildSpan, OperationSpans, Trace};

use crate::metrics::Reason;
use crate::refusal::Refusal;

tokio::task_local! {
    static CURRENT: Arc<Trace>;
}

/// The trace of the current request, if it has one.
pub fn current() -> Option<Arc<Trace>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Runs work for a request: spans of the work are within its own. Pin large work where it is made, since passing it
/// on copies it.
pub async fn follow<T>(trace: Option<Arc<Trace>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| match &trace {
        None => work.as_mut().poll(context),
        Some(trace) => CURRENT.sync_scope(Arc::clone(trace), || work.as_mut().poll(context)),
    })
    .await
}

/// A span of the current request, until it is dropped.
pub fn span(name: &'static str) -> Option<ChildSpan> {
    current()?.child(name)
}

/// The span of a change of token objects that starts now.
pub fn operation(of: &hsmux_token::Operation) -> Option<OperationSpans> {
    Some(OperationSpans::begin(current()?, of))
}

/// A span around some work, with the reason of a refusal.
pub async fn timed<T>(
    name: &'static str,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let span = span(name);
    let result = work.await;
    if let (Some(mut span), Err(refusal)) = (span, &result) {
        span.failed(Reason::of(refusal).word());
    }
    result
}
