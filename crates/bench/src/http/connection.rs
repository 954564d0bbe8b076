//! One client: a connection with sequential requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hsmux_token::{Error, Kind, Result};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::timeout;

use super::HttpOptions;
use super::address::ServiceAddress;
use super::requests::PreparedRequest;
use crate::engine::{AsyncCaller, CallerFuture};

/// A connection to the service, opened on demand.
pub struct TransitConnection<'a> {
    address: &'a ServiceAddress,
    keep_alive: bool,
    deadline: Duration,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl<'a> TransitConnection<'a> {
    /// A connection that is not open yet.
    pub fn new(address: &'a ServiceAddress, options: &HttpOptions) -> Self {
        Self {
            address,
            keep_alive: options.keep_alive,
            deadline: options.deadline,
            open: None,
        }
    }

    /// Sends a request and returns the body. A status other than 200 is an error that begins with it.
    pub async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Bytes> {
        let asked = timeout(self.deadline, self.answer(request)).await;
        let result = asked.unwrap_or_else(|_| Err(failed("no answer by the deadline")));
        if result.is_err() {
            // The pending request must not be waited for.
            self.open = None;
        }
        let (status, body) = result?;
        if !self.keep_alive {
            self.open = None;
        }
        if status == StatusCode::OK {
            return Ok(body);
        }
        Err(failed(&format!("{status}{}", reason(&body))))
    }

    async fn answer(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes)> {
        self.connect().await?;
        let Some(open) = &mut self.open else {
            return Err(failed("not connected"));
        };
        let answer = open.send_request(request).await;
        let (head, body) = answer.map_err(|e| failed(&because(&e)))?.into_parts();
        let body = body.collect().await.map_err(|e| failed(&because(&e)))?;
        Ok((head.status, body.to_bytes()))
    }

    /// Connects, unless it is open.
    pub async fn connect(&mut self) -> Result<()> {
        if let Some(open) = &mut self.open
            && open.ready().await.is_ok()
        {
            return Ok(());
        }
        let stream = self.address.connect().await;
        let stream = stream.map_err(|e| failed(&format!("not connected: {e}")))?;
        let shaken = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|e| failed(&because(&e)))?;
        // It ends with its sender; the pending request gets its error.
        tokio::spawn(async move { drop(connection.await) });
        self.open = Some(sender);
        Ok(())
    }
}

fn failed(why: &str) -> Error {
    Error::pool(Kind::Invalid, why)
}

/// hyper's error names the action; its cause names the reason.
fn because(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// `: permission denied`: the errors in a Transit answer, or nothing.
fn reason(body: &[u8]) -> String {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    match json["errors"][0].as_str() {
        Some(text) => format!(": {}", text.trim()),
        None => String::new(),
    }
}

/// A client that repeats its requests.
pub struct TransitClient<'a> {
    connection: TransitConnection<'a>,
    requests: Arc<[PreparedRequest]>,
    next: usize,
}

impl<'a> TransitClient<'a> {
    /// The client of this index. Clients start with different requests, so that the mix holds at any moment.
    pub fn new(
        address: &'a ServiceAddress,
        options: &HttpOptions,
        requests: Arc<[PreparedRequest]>,
        index: usize,
    ) -> Self {
        Self {
            connection: TransitConnection::new(address, options),
            requests,
            next: index,
        }
    }
}

impl AsyncCaller for TransitClient<'_> {
    fn prepare(&mut self) -> CallerFuture<'_, ()> {
        // The first request reports the error.
        let deadline = self.connection.deadline;
        Box::pin(async move { drop(timeout(deadline, self.connection.connect()).await) })
    }

    fn call(&mut self) -> CallerFuture<'_, Result<Bytes>> {
        let at = self.next % self.requests.len();
        self.next += 1;
        Box::pin(async move {
            let prepared = &self.requests[at];
            let answer = self.connection.ask(prepared.request()).await?;
            prepared.check(&answer)?;
            // The answer is checked already.
            Ok(Bytes::new())
        })
    }
}
