//! A request to a backend, and its answer.

use std::error::Error;
use std::time::Duration;

use hsmux_pool::config::Behind;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, StatusCode, Uri, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;

use super::{Answer, Call, headers, text, upgrade};

/// Connections to backends.
pub struct Forward(Client<HttpConnector, Incoming>);

/// A backend that is there takes a connection at once.
const CONNECT: Duration = Duration::from_secs(5);

/// Less than what common servers wait for the next request: who closes first loses one.
const IDLE: Duration = Duration::from_secs(4);

impl Forward {
    /// None is open yet.
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            // A request whose idle connection turns out closed before a byte of it was sent is sent again
            // on another one; no other ever is.
            .retry_canceled_requests(true)
            .build(connector);
        Self(client)
    }

    /// Passes a request on.
    pub async fn pass_on(&self, call: &Call<'_>, mut request: Request<Incoming>) -> Answer {
        let Behind::Http(at) = &call.site.behind else {
            return text(StatusCode::NOT_FOUND, "nothing is here");
        };
        let wanted = headers::upgrade(&request);
        let switch = wanted.is_some().then(|| hyper::upgrade::on(&mut request));
        if address(&mut request, at, call).is_none() {
            return text(StatusCode::BAD_REQUEST, "this is no address of a page");
        }
        if let Some(protocol) = wanted {
            upgrade::ask(request.headers_mut(), protocol);
        }
        let mut answer = match timeout(call.site.backend_timeout, self.0.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let why = error.source().map_or(String::new(), ToString::to_string);
                tracing::warn!("http://{at} has not answered: {error}: {why}");
                return text(
                    StatusCode::BAD_GATEWAY,
                    "the server behind this one does not answer",
                );
            }
            Err(_) => {
                tracing::warn!("http://{at} has not answered in time");
                return text(
                    StatusCode::GATEWAY_TIMEOUT,
                    "the server behind this one takes too long",
                );
            }
        };
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return match switch {
                Some(client) => upgrade::join(call.house, client, answer),
                None => text(
                    StatusCode::BAD_GATEWAY,
                    "the server behind this one speaks out of turn",
                ),
            };
        }
        headers::strip(answer.headers_mut());
        answer.map(|body| body.map_err(Into::into).boxed_unsync())
    }
}

/// Makes the request one of the backend's; `None`: its address is none.
fn address(request: &mut Request<Incoming>, at: &str, call: &Call<'_>) -> Option<()> {
    let host = headers::host(request);
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let uri: Uri = format!("http://{at}{path}").parse().ok()?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    headers::strip(request.headers_mut());
    if let Some(host) = &host {
        let value = HeaderValue::from_str(host).ok()?;
        request.headers_mut().insert(HOST, value);
    }
    headers::introduce(request.headers_mut(), call.from, host.as_deref());
    Some(())
}
