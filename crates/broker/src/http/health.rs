//! Liveness, readiness, and `lookup-self`.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use super::{ApiCall, Broker, reply};
use crate::auth::Lifetime;
use crate::refusal::Refusal;
use crate::store::now;
use crate::transit::{Reply, time};

/// `/healthz`: the process answers.
pub fn alive() -> Response {
    reply::body(StatusCode::OK, &json!({ "alive": true }))
}

/// `/readyz`: a member serves.
pub async fn ready(broker: &Arc<Broker>) -> Response {
    if broker.is_served().await {
        return reply::body(StatusCode::OK, &json!({ "ready": true }));
    }
    reply::refused(&Refusal::later("no member of the pool is in service", None))
}

/// `sys/health`, as the dialect's clients ask it: always unsealed.
pub fn dialect() -> Response {
    let health = json!({
        "initialized": true,
        "sealed": false,
        "standby": false,
        "version": env!("CARGO_PKG_VERSION"),
        "cluster_name": "hsmux",
    });
    reply::body(StatusCode::OK, &health)
}

/// `auth/token/lookup-self`: who the client is.
pub fn lookup_self(call: &ApiCall) -> Result<Reply, Refusal> {
    if !call.client().is_known() {
        return Err(Refusal::denied());
    }
    let Lifetime { created, expires } = call.client().token().unwrap_or_default();
    // 0 means a token that does not expire, as in the dialect.
    let seconds = |since: u64| expires.map_or(0, |expires| expires.saturating_sub(since));
    Ok(Reply::ok([
        ("id", "".into()),
        ("display_name", call.client().to_string().into()),
        ("policies", json!([])),
        ("creation_time", created.into()),
        ("creation_ttl", created.map(seconds).into()),
        ("issue_time", created.map(time).into()),
        ("expire_time", expires.map(time).into()),
        ("explicit_max_ttl", 0.into()),
        ("num_uses", 0.into()),
        ("renewable", false.into()),
        ("ttl", seconds(now()).into()),
        ("type", "service".into()),
    ]))
}
