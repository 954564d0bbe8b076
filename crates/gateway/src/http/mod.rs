//! HTTP inside TLS: reverse proxy, or files of a folder.
//!
//! | file | one idea |
//! |---|---|
//! | `blocking_reads` | blocking work on files |
//! | `client_stream` | a client's stream, with interim answers |
//! | `file_cache` | cache of short files |
//! | `file_reader` | a long file, read part by part |
//! | `folder` | a folder in place of a backend |
//! | `folder_backend` | files of a folder, opened and read |
//! | `forward` | a request to a backend, and its answer |
//! | `headers` | fields that are removed and added |
//! | `host` | the host that a request names |
//! | `if_range` | the condition If-Range |
//! | `interim` | interim answers |
//! | `linger` | the rest of a body that is not needed |
//! | `tracked_body` | bodies, charged to the memory budget |
//! | `upgrade` | WebSocket: a connection or a stream that becomes another protocol's |

mod blocking_reads;
mod client_stream;
mod file_cache;
mod file_reader;
mod folder;
mod folder_backend;
mod forward;
mod headers;
mod host;
mod if_range;
mod interim;
mod linger;
mod tracked_body;
mod upgrade;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hsmux_config::SiteBackends;
use hsmux_edge::access_log::RecordedBody;
use hsmux_edge::{FloodGuard, HeadLimit, LONGEST_HEAD};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, RETRY_AFTER, STRICT_TRANSPORT_SECURITY};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;

use crate::access::{self, Access};
use crate::app_state::{AppState, ConnectionGuard};
use crate::connection::TlsClient;
use crate::idle_timer::IdleTimer;
use crate::memory::{Admission, Charge, MemoryAccount};
use crate::metrics::CloseReason;
use crate::phase::Phase;
use crate::sites::ServedSite;

use client_stream::ClientStream;
use interim::Interim;
use tracked_body::{BodyContext, ReadAhead, TrackedBody};
use upgrade::is_websocket;

pub use blocking_reads::BlockingReads;
pub use file_cache::FileCache;
pub use headers::{has_other_coding, remove_ours};
pub use host::{HTTP, HTTPS, Host};
pub use linger::{linger, linger_holding};

/// The answer to a client.
pub type Answer = Response<UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>>;

/// Why a request is refused.
type Refusal = (StatusCode, &'static str);

/// Requests of one client at once: what servers should allow (RFC 9113, section 6.5.2).
const STREAMS: u32 = 100;

/// Approximate bytes of a request besides its bodies: a task, a stream, buffers of a connection to a back end.
const REQUEST: usize = 16 << 10;

/// Bytes that one request may send before the back end takes them, and all requests of a connection together.
pub const UPLOAD: u32 = 64 << 10;
pub const UPLOADS: u32 = 4 * UPLOAD;

/// Bytes that are read at once from a file or a back end.
pub const PART: usize = 32 << 10;

/// Serves requests until the client, its limits or the gateway end the connection.
pub async fn serve(app: &Arc<AppState>, client: TlsClient, guard: Arc<ConnectionGuard>) {
    let TlsClient {
        stream,
        served,
        from,
        access,
    } = client;
    let h2 = stream.get_ref().is_http2();
    let shared = Arc::clone(app);
    let idle_timer = IdleTimer::new();
    let timer = Arc::clone(&idle_timer);
    let last = stream.get_ref().get_ref().last_write();
    let account = app.memory.account();
    let activity = Arc::clone(&guard.activity);
    activity.set_account(&account);
    let forwards = !matches!(served.site.backends, SiteBackends::Folder(_));
    let interim = (forwards && !h2).then(Arc::<Interim>::default);
    let stream = ClientStream {
        stream,
        interim: interim.clone(),
        account: Arc::clone(&account),
    };
    let metrics = Arc::clone(&app.metrics);
    let stream = FloodGuard::for_client(stream, move || metrics.closed(CloseReason::Flood));
    let stream = stream.with_heads(head_limit(app, &account));
    let holder = Arc::clone(&account);
    let client = Arc::clone(&access);
    let service = service_fn(move |request| {
        let record = access::of_request(&shared, &client, &request);
        let pending = timer.begin_work();
        let version = request.version();
        let ends = matches!(served.site.backends, SiteBackends::Folder(_)) && is_last(&request);
        let last = ends.then(|| last.clone());
        let (app, served) = (Arc::clone(&shared), Arc::clone(&served));
        let (timer, guard) = (Arc::clone(&timer), Arc::clone(&guard));
        let (account, interim) = (Arc::clone(&holder), interim.clone());
        // Charged before its body is read.
        let asked = account.request(REQUEST + headers::size(&request));
        async move {
            let call = Call {
                app: &app,
                served: &served,
                from,
                guard: &guard,
                idle_timer: &timer,
                account: &account,
                interim,
                request: Mutex::new(asked),
                ahead: Mutex::default(),
                record: Mutex::new(record),
            };
            let mut answer = call.answer(request).await;
            if version == Version::HTTP_11 && app.phases.is_at(Phase::LastAnswers) {
                end_connection(&mut answer);
            }
            let of = BodyContext {
                request: call.request.into_inner(),
                ahead: call.ahead.into_inner(),
                reads: match &served.site.backends {
                    SiteBackends::Folder(_) => ReadAhead::Part,
                    backends if backends.is_http2() => ReadAhead::Window,
                    _ => ReadAhead::Last,
                },
                is_http2: h2,
                idle_timer: Arc::clone(&timer),
                account: Arc::clone(&account),
            };
            app.metrics.request(answer.status().as_u16());
            let record = call.record.into_inner();
            drop(pending);
            if let Some(last) = last {
                last.set();
            }
            let tracked = answer.map(|body| TrackedBody::new(body, of));
            Ok::<_, Infallible>(RecordedBody::answer(tracked, record))
        }
    });
    let patience = app.section.idle_timeout;
    let builder = builder(h2, patience);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // For HTTP/1.1, hyper and the stream's own limit measure idle time.
    tokio::select! {
        ended = connection.as_mut() => return access::of_end(app, &access, ended),
        () = app.connections_end() => {}
        () = idle_timer.idle(patience), if h2 => {}
        () = account.ended() => return,
        // Without a request there is no answer to end with.
        () = activity.evicted() => if !h2 && account.requests().begun == 0 { return },
    }
    // Requests under way are answered, as long as the client takes the answers.
    connection.as_mut().graceful_shutdown();
    idle_timer.touch();
    tokio::select! {
        _ = connection => {}
        () = idle_timer.idle(patience), if h2 => {}
        () = account.ended() => {}
        () = activity.grace_ended(), if activity.is_evicted() => {}
    }
}

/// The limit for a connection's heads of HTTP/1.1.
fn head_limit(app: &AppState, account: &Arc<MemoryAccount>) -> HeadLimit {
    let (account, metrics) = (Arc::clone(account), Arc::clone(&app.metrics));
    let heads = Arc::clone(app.memory.heads());
    HeadLimit::new(
        heads,
        move || account.requests(),
        move || metrics.closed(CloseReason::Memory),
    )
}

/// Makes this the last answer of the connection, unless the protocol changes.
fn end_connection(answer: &mut Answer) {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
}

/// Whether this is the client's last request on this connection.
fn is_last(request: &Request<Incoming>) -> bool {
    let options = request.headers().get_all(CONNECTION).iter();
    let mut options = options.filter_map(|value| value.to_str().ok());
    request.version() == Version::HTTP_11
        && options.any(|options| {
            let mut options = options.split(',');
            options.any(|option| option.trim().eq_ignore_ascii_case("close"))
        })
}

/// A server for the protocol that the client has chosen. The time limit for a head then begins with the connection. A
/// server that detects the protocol would wait for the first bytes for ever.
fn builder(h2: bool, patience: Duration) -> auto::Builder<TokioExecutor> {
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = if h2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    };
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(LONGEST_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(UPLOAD)
        .initial_connection_window_size(UPLOADS)
        .max_send_buf_size(PART)
        // RFC 8441: WebSocket.
        .enable_connect_protocol()
        // Finds clients that have gone while they wait for an answer. Idle connections end before that.
        .keep_alive_interval(patience.saturating_mul(2));
    builder
}

/// A request and its connection.
pub struct Call<'a> {
    pub app: &'a Arc<AppState>,
    pub served: &'a ServedSite,
    pub from: std::net::SocketAddr,
    /// What its connection holds, and its idle timer.
    pub guard: &'a Arc<ConnectionGuard>,
    pub idle_timer: &'a Arc<IdleTimer>,
    /// Memory of its connection, of the request itself, and of what a back end may send before the client takes it.
    pub account: &'a Arc<MemoryAccount>,
    /// Interim answers, if the client accepts them.
    pub interim: Option<Arc<Interim>>,
    pub request: Mutex<Option<Admission>>,
    pub ahead: Mutex<Option<Charge>>,
    pub record: Mutex<Access>,
}

impl Call<'_> {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let has_room = self.request.lock().is_some();
        let mut answer = match (self.accept(&request), &self.served.site.backends) {
            _ if !has_room => {
                linger(request.into_body());
                busy()
            }
            (Err((status, why)), _) => {
                linger(request.into_body());
                text(status, why)
            }
            (Ok(_), SiteBackends::Folder(root)) => folder::answer(self.app, root, request).await,
            (Ok(host), _) => forward::pass_on(self, &host, request).await,
        };
        if let Some(value) = &self.served.hsts {
            let hsts = answer.headers_mut().entry(STRICT_TRANSPORT_SECURITY);
            hsts.or_insert_with(|| value.clone());
        }
        answer
    }

    /// Checks a request, and returns its host.
    fn accept(&self, request: &Request<Incoming>) -> Result<Host, Refusal> {
        if request.method() == Method::CONNECT && !is_websocket(request) {
            let why = "this is no proxy for other servers";
            return Err((StatusCode::METHOD_NOT_ALLOWED, why));
        }
        if has_other_coding(request.headers()) {
            let why = "no transfer coding but chunked is known here";
            return Err((StatusCode::NOT_IMPLEMENTED, why));
        }
        self.host(request)
    }

    /// The host of a request. It has to belong to the site that the connection was opened for.
    fn host(&self, request: &Request<Incoming>) -> Result<Host, Refusal> {
        let host = Host::of(request, HTTPS).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let sites = self.app.sites.load();
        if sites.is_of(&self.served.site, host.name()) {
            return Ok(host);
        }
        // Browsers reuse a connection of HTTP/2 for other names of its certificate. After 421 they open another one
        // (RFC 9110, section 15.5.20). They name the host in `:authority`.
        let is_reuse = request.version() == Version::HTTP_2 && request.uri().authority().is_some();
        let status = if is_reuse && sites.find(Some(host.name())).is_some() {
            StatusCode::MISDIRECTED_REQUEST
        } else {
            StatusCode::BAD_REQUEST
        };
        Err((status, "this connection is for another site"))
    }
}

/// The answer if no memory is left for a request. It has no body, which would need some.
pub fn busy() -> Answer {
    let mut answer = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let soon = HeaderValue::from_static("1");
    answer.headers_mut().insert(RETRY_AFTER, soon);
    answer
}

/// An answer of the gateway's own.
pub fn text(status: StatusCode, message: &str) -> Answer {
    let body = Full::from(format!("{message}\n"))
        .map_err(|never| match never {})
        .boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, plain);
    answer
}
