//! Every path, once.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use axum::Router;
use axum::body::HttpBody;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};

use super::limits::AdmittedRequest;
use super::{ApiCall, Broker, health, reply};
use crate::engine::for_client;
use crate::refusal::Refusal;
use crate::transit::{Reply, certificate, crypt, hmac, keys, plain, sign};
use crate::{metrics, openapi, traces};

/// The whole service; tests call it without a socket.
pub fn app(broker: Arc<Broker>) -> Router {
    Router::new()
        .route("/v1/transit/keys", all_keys())
        .route("/v1/transit/keys/", all_keys())
        .route("/v1/transit/keys/{name}", one_key())
        .route("/v1/transit/keys/{name}/config", on(keys::config))
        .route("/v1/transit/keys/{name}/rotate", on(keys::rotate))
        .route("/v1/transit/keys/{name}/trim", on(keys::trim))
        .route("/v1/transit/keys/{name}/csr", on(certificate::csr))
        .route(
            "/v1/transit/keys/{name}/set-certificate",
            on(certificate::set_certificate),
        )
        .route("/v1/transit/encrypt/{name}", on(crypt::encrypt))
        .route("/v1/transit/decrypt/{name}", on(crypt::decrypt))
        .route("/v1/transit/rewrap/{name}", on(crypt::rewrap))
        .route("/v1/transit/datakey/{variant}/{name}", on(crypt::datakey))
        .route("/v1/transit/sign/{name}", on(sign::sign))
        .route("/v1/transit/sign/{name}/{variant}", on(sign::sign))
        .route("/v1/transit/verify/{name}", on(sign::verify))
        .route("/v1/transit/verify/{name}/{variant}", on(sign::verify))
        .route("/v1/transit/hmac/{name}", on(hmac::hmac))
        .route("/v1/transit/hmac/{name}/{variant}", on(hmac::hmac))
        .route("/v1/transit/random", on(plain::random))
        .route("/v1/transit/random/{variant}", on(plain::random))
        .route("/v1/transit/random/{source}/{variant}", on(plain::random))
        .route("/v1/transit/hash", on(plain::hash))
        .route("/v1/transit/hash/{variant}", on(plain::hash))
        .route(
            "/v1/auth/token/lookup-self",
            get(act(|call| async move { health::lookup_self(&call) })),
        )
        .route("/v1/sys/health", get(|| async { health::dialect() }))
        .route("/healthz", get(|| async { health::alive() }))
        .route(
            "/readyz",
            get(|State(broker): State<Arc<Broker>>| async move { health::ready(&broker).await }),
        )
        .route("/v1/openapi.json", get(|| async { openapi::page() }))
        .route("/metrics", get(readings))
        .fallback(|State(broker): State<Arc<Broker>>, uri: Uri| async move {
            reply::counted(&broker, &reply::no_route(&uri))
        })
        .method_not_allowed_fallback(|State(broker): State<Arc<Broker>>| async move {
            reply::counted(&broker, &reply::unsupported())
        })
        .with_state(broker)
}

/// A route for POST and PUT: the dialect's clients use both.
fn on<Answer>(
    handler: impl Fn(ApiCall) -> Answer + Clone + Send + Sync + 'static,
) -> MethodRouter<Arc<Broker>>
where
    Answer: Future<Output = Result<Reply, Refusal>> + Send + 'static,
{
    let handler = act(handler);
    post(handler.clone()).put(handler)
}

/// An answer on its way.
type Answered = Pin<Box<dyn Future<Output = Response> + Send>>;

/// An axum handler for a call.
fn act<Answer>(
    handler: impl Fn(ApiCall) -> Answer + Clone + Send + Sync + 'static,
) -> impl Fn(ApiCall) -> Answered + Clone + Send + Sync + 'static
where
    Answer: Future<Output = Result<Reply, Refusal>> + Send + 'static,
{
    move |call: ApiCall| {
        let handler = handler.clone();
        Box::pin(async move {
            let (id, broker) = (call.id().to_owned(), Arc::clone(call.broker()));
            let (trace, admitted) = (call.trace.clone(), call.admitted.clone());
            let _in_flight = broker.metrics.request();
            // Pinned here: passing it on would copy it.
            let answer = pin!(handler(call));
            let client = admitted.as_deref().map_or(0, AdmittedRequest::client);
            let answer = traces::follow(trace.clone(), for_client(client, answer));
            let mut answer = match answer.await {
                Ok(reply) => reply::write(&id, reply),
                Err(refusal) => reply::counted(&broker, &refusal),
            };
            if let Some(admitted) = admitted {
                answer = held(&broker, admitted, answer);
            }
            reply::traced(trace.as_deref(), answer)
        })
    }
}

async fn readings(call: ApiCall) -> Response {
    let (broker, trace) = (Arc::clone(call.broker()), call.trace.clone());
    let admitted = match call.admitted.clone() {
        Some(admitted) => Ok(admitted),
        None => broker
            .usage
            .load()
            .admit_nobody(call.peer().ip)
            .map(Arc::new),
    };
    let page = metrics::page(call).await;
    let answer = match page.and_then(|page| Ok((admitted?, page))) {
        Ok((admitted, page)) => held(&broker, admitted, page),
        Err(refusal) => reply::counted(&broker, &refusal),
    };
    reply::traced(trace.as_deref(), answer)
}

/// An answer that holds its request and its memory until the client has taken it. Without memory for it a refusal
/// takes its place.
fn held(broker: &Broker, admitted: Arc<AdmittedRequest>, mut answer: Response) -> Response {
    let bytes = answer.body().size_hint().lower();
    if let Err(refusal) = admitted.hold_answer(usize::try_from(bytes).unwrap_or(usize::MAX)) {
        answer = reply::counted(broker, &refusal);
    }
    answer.extensions_mut().insert(admitted);
    answer
}

/// The router does not know the method LIST; the fallback handles it.
fn all_keys() -> MethodRouter<Arc<Broker>> {
    let list = act(|call: ApiCall| async move {
        let asked = match call.method().as_str() {
            "LIST" => true,
            "GET" => call.query("list") == Some("true"),
            _ => false,
        };
        if asked {
            return keys::list(&call);
        }
        Err(reply::unsupported())
    });
    get(list.clone()).fallback(list)
}

fn one_key() -> MethodRouter<Arc<Broker>> {
    on(keys::create)
        .get(act(|call| async move { keys::read(&call) }))
        .delete(act(keys::delete))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<Answer>(_: impl Fn(ApiCall) -> Answer) -> usize {
        size_of::<Answer>()
    }

    /// Each request allocates and copies the future. A future that is passed on by value doubles the size of each
    /// future that waits for it.
    #[test]
    fn what_is_asked_for_again_and_again_waits_in_little_room() {
        let sizes = [
            ("encrypt", size(crypt::encrypt)),
            ("decrypt", size(crypt::decrypt)),
            ("rewrap", size(crypt::rewrap)),
            ("datakey", size(crypt::datakey)),
            ("sign", size(sign::sign)),
            ("verify", size(sign::verify)),
            ("hmac", size(hmac::hmac)),
        ];
        for (what, size) in sizes {
            assert!(size <= 4096, "{what}: {size} bytes");
        }
    }
}
