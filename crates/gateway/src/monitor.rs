//! Serves `/metrics` and `/health`, on a port of their own without TLS.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::app_state::AppState;
use crate::phase::Phase;

/// Time limit for a request: clients are near.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections at once. For another one, the oldest is closed.
const CONNECTIONS: usize = 64;

/// Limit of a request's head in bytes, the least that hyper allows.
const HEAD: usize = 8 << 10;

/// Serves until the runtime ends, also while the gateway drains: `/health` then says so.
pub async fn serve(app: Arc<AppState>, listener: TcpListener) {
    let mut open = VecDeque::with_capacity(CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|one: &AbortHandle| !one.is_finished());
                if open.len() >= CONNECTIONS {
                    let oldest = open.pop_front();
                    oldest.inspect(AbortHandle::abort);
                }
                let one = tokio::spawn(serve_connection(Arc::clone(&app), stream));
                open.push_back(one.abort_handle());
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn serve_connection(app: Arc<AppState>, stream: TcpStream) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (status, text) = app.respond(request.uri().path());
        let mut answer = Response::new(Full::<Bytes>::from(text));
        *answer.status_mut() = status;
        if app.is_handed_over() {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD);
    // It does not matter whether the client has read the answer.
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl AppState {
    fn respond(&self, path: &str) -> (StatusCode, String) {
        match path {
            "/metrics" => (
                StatusCode::OK,
                self.metrics
                    .page(&self.sites.load(), &self.files, &self.memory),
            ),
            "/health" => match self.health_problem() {
                None => (StatusCode::OK, "ok\n".into()),
                Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            },
            _ => (
                StatusCode::NOT_FOUND,
                "/metrics and /health are here\n".into(),
            ),
        }
    }

    /// Why balancers should send no new clients.
    fn health_problem(&self) -> Option<Cow<'static, str>> {
        if self.phases.is_at(Phase::Leaving) && !self.is_handed_over() {
            return Some("the gateway ends".into());
        }
        if let Some(why) = self.daemon.trouble() {
            return Some(why.to_string().into());
        }
        let catalogue = self.pool.catalogue();
        let sites = self.sites.load();
        let signed = |key| catalogue.get(key).is_some_and(|entry| entry.is_served());
        (!sites.keys.iter().all(|(key, _)| signed(key)))
            .then(|| "a key has no token in service that can sign with it".into())
    }
}
