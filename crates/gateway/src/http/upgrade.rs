//! WebSocket and other upgrades: of a connection of HTTP/1.1 (RFC 9110, section 7.8), or of a stream of HTTP/2 (RFC
//! 8441). The backend gets an upgrade of HTTP/1.1 in both cases. Backends of HTTP/2 get none.

use std::sync::Arc;

use boring::base64::encode_block;
use boring::error::ErrorStack;
use boring::sha::sha1;
use hsmux_edge::access_log::AccessRecord;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE,
};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

use super::{Answer, Call, headers, text};
use crate::backend::ResponseBody;
use crate::relay::relay;

/// A client's request to change the protocol.
pub struct UpgradeRequest {
    protocol: HeaderValue,
    client: OnUpgrade,
    /// The `Sec-WebSocket-Accept` that the backend has to answer, if the client speaks HTTP/2 and does not check it
    /// itself.
    accept: Option<String>,
}

/// The protocol that sites allow by default.
pub const WEBSOCKET: &str = "websocket";

/// RFC 6455, section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether a request opens a WebSocket on a stream of HTTP/2.
pub fn is_websocket<B>(request: &Request<B>) -> bool {
    let protocol = request.extensions().get::<Protocol>();
    request.method() == Method::CONNECT && protocol.is_some_and(|it| it.as_str() == WEBSOCKET)
}

impl UpgradeRequest {
    /// The upgrade of a request, if it has one for an `allowed` protocol. Others are ignored (RFC 9110, section 7.8). A
    /// request of HTTP/2 is rewritten to that of HTTP/1.1.
    pub fn of(
        request: &mut Request<Incoming>,
        allowed: &[String],
    ) -> Result<Option<Self>, ErrorStack> {
        let (protocol, accept) = if is_websocket(request) {
            let mut key = [0; 16];
            boring::rand::rand_bytes(&mut key)?;
            let key = encode_block(&key);
            let accept = encode_block(&sha1(format!("{key}{GUID}").as_bytes()));
            *request.method_mut() = Method::GET;
            if let Ok(key) = HeaderValue::from_str(&key) {
                request.headers_mut().insert(SEC_WEBSOCKET_KEY, key);
            }
            (HeaderValue::from_static(WEBSOCKET), Some(accept))
        } else if let Some(protocol) = headers::upgrade(request, allowed) {
            (protocol, None)
        } else {
            return Ok(None);
        };
        Ok(Some(Self {
            protocol,
            client: hyper::upgrade::on(request),
            accept,
        }))
    }

    /// Adds the fields that ask the backend for the upgrade.
    pub fn add_fields(&self, headers: &mut HeaderMap) {
        ask(headers, self.protocol.clone());
    }

    /// Translates the backend's answer for the client. If the backend agrees, both connections are joined until one
    /// side or the gateway ends.
    pub fn answer(self, call: &Call<'_>, mut answer: Response<ResponseBody>) -> Answer {
        let agrees = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        let accept = answer.headers().get(SEC_WEBSOCKET_ACCEPT);
        let right = self
            .accept
            .as_ref()
            .is_none_or(|right| accept.is_some_and(|it| it == right));
        let spoken = answer.headers().get(UPGRADE);
        let same =
            spoken.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(self.protocol.as_bytes()));
        // On a stream of HTTP/2, any success would tell the client that it is a WebSocket now.
        let astray = self.accept.is_some() && answer.status().is_success();
        if astray || agrees && !(right && same) {
            return text(
                StatusCode::BAD_GATEWAY,
                "the server behind this one does not speak the protocol that it was asked for",
            );
        }
        if !agrees {
            return super::forward::plain(answer);
        }
        let backend = hyper::upgrade::on(&mut answer);
        headers::strip(answer.headers_mut());
        if self.accept.is_some() {
            *answer.status_mut() = StatusCode::OK;
            answer.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
        } else {
            ask(answer.headers_mut(), self.protocol);
        }
        join(call, answer.status(), self.client, backend);
        answer.map(|_| Empty::new().map_err(|never| match never {}).boxed_unsync())
    }
}

/// Sets the fields of an upgrade.
fn ask(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Joins both connections. Meanwhile the client keeps its slot, and is not idle.
fn join(call: &Call<'_>, status: StatusCode, client: OnUpgrade, backend: OnUpgrade) {
    let held = (
        call.guard.clone(),
        call.idle_timer.begin_work(),
        call.request.lock().take(),
    );
    // The request ends with the tunnel.
    let mut record = call.record.lock().take();
    if let Some(record) = &mut record {
        record.answered(status);
    }
    let transfer = record.as_ref().map(|record| Arc::clone(record.transfer()));
    let transfer = transfer.unwrap_or_default();
    let app = Arc::clone(call.app);
    tokio::spawn(async move {
        let held = held;
        let mut record = record;
        if let (Ok(client), Ok(backend)) = (client.await, backend.await) {
            tokio::select! {
                () = relay(&app, TokioIo::new(client), TokioIo::new(backend), &transfer) => {
                    record.iter_mut().for_each(AccessRecord::complete);
                }
                () = held.0.until_refused(&app) => {}
            }
        }
    });
}
