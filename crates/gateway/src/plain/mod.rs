//! HTTP without TLS, for ACME's challenges and redirects to https alone.
//!
//! | file | one idea |
//! |---|---|
//! | `challenge` | answers to ACME's challenges |
//! | `redirect` | redirects to https |

mod challenge;
mod redirect;

pub use challenge::ReportedErrors;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hsmux_config::{Acme, GatewaySection};
use hsmux_edge::access_log::RecordedBody;
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{copy, sink};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;

use crate::acceptor::Accepted;
use crate::access::{self, AccessClient};
use crate::app_state::AppState;
use crate::http::{Answer, HTTP, Host, text};
use crate::metrics::{PlainAnswer, RefusalReason};

/// Limit of a request's head in bytes. Browsers send cookies here as well.
const BUFFER: usize = 16 << 10;

/// How long the rest of a request is read after its answer. If unread bytes were left, closing would discard the
/// answer.
const LINGER: Duration = Duration::from_secs(2);

/// Checks that the folders for challenges exist.
pub fn check(section: &GatewaySection) -> Result<(), String> {
    let sites = section.sites.iter().filter_map(|site| site.acme.as_ref());
    let missing = section
        .acme
        .iter()
        .chain(sites)
        .find_map(|acme| match acme {
            Acme::Folder(folder) if !folder.is_dir() => Some(folder),
            _ => None,
        });
    missing.map_or(Ok(()), |folder| Err(format!(
            "{} is no folder: make it, for the ACME client to write into (certbot -w, lego --http.webroot)",
            folder.display()
        )))
}

/// Answers the one request of a connection.
pub async fn serve(app: &AppState, accepted: Accepted) -> Result<(), RefusalReason> {
    let Accepted {
        stream,
        from,
        guard,
    } = accepted;
    let client = Arc::new(AccessClient::of(from));
    let patience = app.section.idle_timeout;
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(patience));
    let mut stream = Box::pin(stream);
    let asked = AtomicBool::new(false);
    let service = service_fn(|request| {
        asked.store(true, Ordering::Relaxed);
        guard.activity.mark_busy();
        let record = access::of_request(app, &client, &request);
        async move {
            let answer = answer(app, request).await;
            Ok::<_, Infallible>(RecordedBody::answer(answer, record))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(BUFFER)
        .keep_alive(false)
        .serve_connection(TokioIo::new(&mut stream), service);
    let ended = {
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = guard.activity.evicted() => return Ok(()),
            () = app.connections_end() => {
                if !asked.load(Ordering::Relaxed) {
                    return Ok(());
                }
                connection.await
            }
        }
    };
    if ended.is_err_and(|error| error.is_timeout()) {
        return Err(RefusalReason::Slow);
    }
    // It does not matter how a client ends its connection.
    let _ = timeout(LINGER, copy(&mut stream, &mut sink())).await;
    Ok(())
}

async fn answer(app: &AppState, request: Request<Incoming>) -> Answer {
    let host = Host::of(&request, HTTP);
    let token = challenge::token(request.uri().path());
    let (kind, answer) = match (host, token) {
        _ if request.method() == Method::CONNECT => {
            let why = "this is no proxy for other servers";
            (
                PlainAnswer::Refused,
                text(StatusCode::METHOD_NOT_ALLOWED, why),
            )
        }
        (Err(why), _) => (PlainAnswer::Refused, text(StatusCode::BAD_REQUEST, why)),
        (Ok(host), token) => match token.zip(acme(app, &host)) {
            Some((token, acme)) => challenge_for(app, &acme, token, &host, &request).await,
            None => redirect::answer(app, &host, &request),
        },
    };
    app.metrics.plain(kind);
    answer
}

/// The source of challenges for a host: that of its site, or else that of the gateway.
fn acme(app: &AppState, host: &Host) -> Option<Acme> {
    let site = app.sites.load().find(Some(host.name()));
    let own = site.and_then(|served| served.site.acme.clone());
    own.or_else(|| app.section.acme.clone())
}

/// Answers a challenge. Any host will do: the challenge may be for another server's certificate.
async fn challenge_for(
    app: &AppState,
    acme: &Acme,
    token: &str,
    host: &Host,
    request: &Request<Incoming>,
) -> (PlainAnswer, Answer) {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut answer = text(
            StatusCode::METHOD_NOT_ALLOWED,
            "a challenge is read, by GET or HEAD",
        );
        let allowed = HeaderValue::from_static("GET, HEAD");
        answer.headers_mut().insert(ALLOW, allowed);
        return (PlainAnswer::Refused, answer);
    }
    let fetched = challenge::fetch(&app.reads, acme, token, host).await;
    app.challenge_errors.report(acme, fetched.as_ref().err());
    match fetched {
        Ok(Some(authorization)) => (PlainAnswer::Challenge, challenge::page(authorization)),
        Ok(None) => {
            let answer = text(StatusCode::NOT_FOUND, "there is no such challenge");
            (PlainAnswer::NoChallenge, answer)
        }
        Err(why) => {
            tracing::debug!("ACME's challenge {token} has no answer: {why}");
            let answer = text(
                StatusCode::BAD_GATEWAY,
                "the challenge cannot be asked for now",
            );
            (PlainAnswer::NoChallenge, answer)
        }
    }
}
