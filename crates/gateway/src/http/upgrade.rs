//! WebSocket and its like: a connection of HTTP/1.1 that becomes another protocol's (RFC 9110, section 7.8), or a
//! stream of HTTP/2 that becomes a WebSocket (RFC 8441). Towards the backend both are the former,
//! and one of HTTP/2 has neither.

use std::sync::Arc;

use boring::base64::encode_block;
use boring::error::ErrorStack;
use boring::sha::sha1;
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
use crate::backend::Answered;
use crate::joined;

/// What a client wants to speak from now on, and where.
pub struct Wish {
    protocol: HeaderValue,
    client: OnUpgrade,
    /// What the backend has to answer, where the client speaks HTTP/2 and has no part in this.
    accept: Option<String>,
}

/// The protocol that sites allow unless they say otherwise.
pub const WEBSOCKET: &str = "websocket";

/// RFC 6455, section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether a request opens a WebSocket on a stream of HTTP/2.
pub fn is_websocket<B>(request: &Request<B>) -> bool {
    let protocol = request.extensions().get::<Protocol>();
    request.method() == Method::CONNECT && protocol.is_some_and(|it| it.as_str() == WEBSOCKET)
}

impl Wish {
    /// That of a request, if it has one for a protocol that is `allowed`: any other is ignored (RFC 9110, section 7.8).
    /// One of HTTP/2 becomes what HTTP/1.1 asks in its place.
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

    /// Tells the backend.
    pub fn tell(&self, headers: &mut HeaderMap) {
        ask(headers, self.protocol.clone());
    }

    /// What the backend's answer is for the client. Where it agrees everything passes as it is from now on, until one
    /// side ends, or the gateway.
    pub fn answer(self, call: &Call<'_>, mut answer: Response<Answered>) -> Answer {
        let agrees = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        let accept = answer.headers().get(SEC_WEBSOCKET_ACCEPT);
        let right = self
            .accept
            .as_ref()
            .is_none_or(|right| accept.is_some_and(|it| it == right));
        let spoken = answer.headers().get(UPGRADE);
        let same =
            spoken.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(self.protocol.as_bytes()));
        // On a stream of HTTP/2 success says that it is a WebSocket now.
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
        join(call, self.client, backend);
        answer.map(|_| Empty::new().map_err(|never| match never {}).boxed_unsync())
    }
}

/// Asks for a protocol, on this connection.
fn ask(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// As long as both go on the client keeps its place, and is not idle.
fn join(call: &Call<'_>, client: OnUpgrade, backend: OnUpgrade) {
    let held = (
        call.place.clone(),
        call.pace.owe(),
        call.request.lock().take(),
    );
    let house = Arc::clone(call.house);
    tokio::spawn(async move {
        let held = held;
        if let (Ok(client), Ok(backend)) = (client.await, backend.await) {
            tokio::select! {
                () = joined::join(&house, TokioIo::new(client), TokioIo::new(backend)) => {}
                () = held.0.refused(&house) => {}
            }
        }
    });
}
