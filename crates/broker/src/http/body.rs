//! The body of a request, with limits on its length, time and memory.

use std::pin::pin;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::ApiCall;
use super::limits::AdmittedRequest;
use crate::refusal::Refusal;
use crate::traces;

impl ApiCall {
    /// Reads the body. An empty one means an empty object, and so does `null`, which the dialect's own clients send.
    pub async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Refusal> {
        let bytes = match self.body.get_mut().take() {
            Some(body) => traces::timed("body", pin!(self.collect(body))).await?,
            None => Bytes::new(),
        };
        let text = if bytes.is_empty() {
            b"null"
        } else {
            &bytes[..]
        };
        let parsed = match serde_json::from_slice(text) {
            Ok(None) => serde_json::from_slice(b"{}"),
            Ok(Some(whole)) => Ok(whole),
            Err(error) => Err(error),
        };
        parsed.map_err(|e| Refusal::bad(format!("failed to parse JSON input: {e}")))
    }

    async fn collect(&self, body: Body) -> Result<Bytes, Refusal> {
        let usage = self.broker.usage.load_full();
        let limits = usage.limits();
        let own = self.admitted.as_deref().map(AdmittedRequest::max_body);
        let longest = own.unwrap_or(limits.each.max_body);
        let too_long = || {
            let message = format!("a request has at most {longest} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        };
        if body.size_hint().lower() > longest as u64 {
            return Err(too_long());
        }
        let collected = self.gather(Limited::new(body, longest), too_long);
        let collected = tokio::time::timeout(limits.read_timeout, collected).await;
        collected.unwrap_or_else(|_| {
            let message = "the body of the request did not come";
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, message))
        })
    }

    /// Gathers the parts within the memory limit. Each is copied: a part of one byte would keep its whole read
    /// buffer, which is not charged.
    async fn gather(
        &self,
        mut body: Limited<Body>,
        too_long: impl Fn() -> Refusal,
    ) -> Result<Bytes, Refusal> {
        let mut whole = Vec::new();
        while let Some(part) = body.frame().await {
            let part = part.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    too_long()
                } else {
                    Refusal::bad(format!("the body of the request: {error}"))
                }
            });
            let part = part?.into_data().unwrap_or_default();
            let to_come = body.size_hint().upper();
            let more = growth(&whole, part.len(), to_come);
            if let Some(admitted) = &self.admitted {
                admitted.hold(more)?;
            }
            whole.reserve_exact(whole.capacity() - whole.len() + more);
            whole.extend_from_slice(&part);
        }
        Ok(whole.into())
    }
}

/// The capacity to add for a part, in bytes. Capacity doubles, to copy few bytes again, but never exceeds the longest
/// possible body.
fn growth(whole: &Vec<u8>, part: usize, to_come: Option<u64>) -> usize {
    let needed = whole.len() + part;
    if needed <= whole.capacity() {
        return 0;
    }
    let to_come = to_come.and_then(|bytes| usize::try_from(bytes).ok());
    let most = to_come.map_or(needed, |bytes| needed.saturating_add(bytes));
    needed.max(2 * whole.capacity()).min(most) - whole.capacity()
}
