//! One connection: its requests, until the client, its limits or the service end it.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use hsmux_edge::access_log::RecordedBody;
use hsmux_edge::{FloodGuard, HeadLimit, LONGEST_HEAD, Requests};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tower::ServiceExt;

use super::answer_body::AnswerBody;
use super::connections::ConnectionSlot;
use super::limits::AdmittedRequest;
use super::timeout_stream::TimeoutStream;
use super::{Broker, Peer, access, unread_body};

/// Requests of one HTTP/2 connection at once.
const STREAMS: u32 = 256;

/// Unread bytes of one request's body, and of all bodies of a connection: once read, they count as memory of the
/// request.
const UPLOAD: u32 = 128 << 10;
const UPLOADS: u32 = 2 * UPLOAD;

/// The time for the last bytes of an idle connection that is to close.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Serves the connection. `closing` becomes true when the service ends: then the running requests are the last.
pub async fn serve(
    app: Router,
    broker: &Arc<Broker>,
    stream: TimeoutStream<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
    peer: Peer,
    slot: &ConnectionSlot,
    mut closing: watch::Receiver<bool>,
) {
    let (peer, activity) = (Arc::new(peer), Arc::clone(slot.activity()));
    let leaving = slot.leaving();
    let access_log = Arc::clone(&broker.access_log);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let running = activity.begin();
        let record = access::begin(&access_log, &peer, &mut request);
        let (one_by_one, leaving) = (request.version() < Version::HTTP_2, Arc::clone(&leaving));
        request.extensions_mut().insert(Arc::clone(&peer));
        let transfer = record.as_ref().map(|record| Arc::clone(record.transfer()));
        let (request, rest) = unread_body::lend(request, transfer);
        let answer = app.clone().oneshot(request);
        async move {
            let Ok(mut answer) = answer.await;
            // HTTP/2 also needs this: clients take a stream for broken that is reset before its answer.
            let whole = rest.read_out().await;
            let last = one_by_one && (leaving.load(Ordering::Acquire) || !whole);
            if last {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(header::CONNECTION, close);
            }
            let admitted = answer.extensions_mut().remove::<Arc<AdmittedRequest>>();
            let answer = answer.map(|body| AnswerBody::new(body, running, admitted));
            Ok::<_, Infallible>(RecordedBody::answer(answer, record))
        }
    });
    let builder = builder();
    let heads = head_limit(broker, slot);
    let broker = Arc::clone(broker);
    let stream = FloodGuard::for_client(stream, move || broker.metrics.flooded()).with_heads(heads);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut ending = false;
    loop {
        tokio::select! {
            // A client may close its connection at any time.
            _ = connection.as_mut() => return,
            () = slot.evicted() => if slot.activity().is_quiet() { return },
            () = wait_until_set(&mut closing), if !ending => {}
            () = tokio::time::sleep(CLOSE_GRACE), if ending => {
                if slot.activity().is_quiet() { return }
            }
        }
        ending = true;
        connection.as_mut().graceful_shutdown();
    }
}

/// The memory of the connection for heads of HTTP/1.1.
fn head_limit(broker: &Arc<Broker>, slot: &ConnectionSlot) -> HeadLimit {
    let heads = Arc::clone(broker.usage.load().heads());
    let (activity, broker) = (Arc::clone(slot.activity()), Arc::clone(broker));
    let requests = move || Requests {
        begun: activity.requests(),
        is_under_way: !activity.is_quiet(),
    };
    HeadLimit::new(heads, requests, move || broker.metrics.no_memory())
}

/// Waits until the flag is set, or its sender is gone.
pub async fn wait_until_set(word: &mut watch::Receiver<bool>) {
    let _ = word.wait_for(|said| *said).await;
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The stream limits the time of a head.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(LONGEST_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(UPLOAD)
        .initial_connection_window_size(UPLOADS);
    builder
}
