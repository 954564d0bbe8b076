//! Changes of keys with two lines on the audit trail: one before the change begins, one after it has ended.

use std::future::Future;
use std::sync::Arc;

use axum::http::StatusCode;
use hsmux_audit::{Event, Recorder};

use crate::refusal::Refusal;
use crate::traces;

/// Runs a change with a line on the trail before and after it.
pub async fn carry_out<T>(
    audit: &Arc<dyn Recorder>,
    event: Event,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let (trail, begun) = (Arc::clone(audit), event.clone().outcome("begun"));
    traces::timed("audit", blocking(move || trail.announce(begun))).await?;
    let result = work.await;
    let event = match &result {
        Ok(_) => event,
        Err(refusal) => event.outcome(refusal.brief()),
    };
    // The change is done either way; the trail tries the line again.
    let trail = Arc::clone(audit);
    let kept = traces::timed("audit", blocking(move || trail.commit(event))).await;
    if let Err(refusal) = kept {
        tracing::error!("an act is not on the audit trail yet: {}", refusal.text());
    }
    result
}

/// Runs blocking work on a thread for that.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> hsmux_token::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    Ok(done?)
}
