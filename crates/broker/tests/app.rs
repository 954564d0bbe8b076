//! The service without a socket, over a token in memory.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::request::Builder;
use axum::http::{Request, StatusCode};
use hsmux_audit::{OnFailure, Settings, Trail};
use hsmux_broker::engine::Engine;
use hsmux_broker::http::Peer;
use hsmux_broker::policy::Policy;
use hsmux_broker::store::Store;
use hsmux_broker::{Broker, app, auth};
use hsmux_config::{Action, Allowance, Limits, Rule};
use hsmux_pool::{Options, Owner, Pool, Seat};
use hsmux_service::Readings;
use hsmux_token::Token;
use hsmux_token::fake::FakeToken;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

const MAX_BODY: usize = 4096;

struct Rig {
    app: Router,
    token: Arc<FakeToken>,
    secret: String,
    _folder: tempfile::TempDir,
}

/// `app` may get random bytes and use keys `app-*`.
fn rig() -> Rig {
    rig_with(Limits::default().stranger_rate)
}

fn rig_with(stranger_rate: NonZeroU32) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let token = FakeToken::builder("one").build();
    let connected = Arc::clone(&token);
    let seat = Seat {
        name: "one".into(),
        member: "one".into(),
        weight: 1,
        timeout: Duration::from_secs(20),
        connector: Arc::new(move || Ok(Arc::clone(&connected) as Arc<dyn Token>)),
    };
    let pool = Pool::start(Options::default(), vec![seat]).unwrap();
    let store = Arc::new(Store::open(&folder.path().join("broker.sqlite")).unwrap());
    let new = auth::issue("app", None).unwrap();
    store.put_token(&new.kept).unwrap();
    let rule = Rule {
        clients: vec!["token:app".into()],
        keys: vec!["app-*".into()],
        allow: vec![Action::Encrypt, Action::Random, Action::Read],
    };
    let trail = Trail::open(&Settings {
        file: folder.path().join("audit.log"),
        state: folder.path().to_owned(),
        uses: true,
        on_failure: OnFailure::Stop,
        checkpoint: Duration::from_secs(60),
    });
    let trail = Arc::new(trail.unwrap());
    let submit = {
        let pool = Arc::clone(&pool);
        move |request| Box::new(pool.submit_claimed(request, Owner::Service, None)) as Box<dyn Send>
    };
    let engine = Engine::start(Arc::clone(&pool), Box::new(submit), store, trail.clone()).unwrap();
    let policy = Policy::new(vec![rule], false);
    let limits = Limits {
        each: Allowance {
            max_body: MAX_BODY,
            ..Allowance::default()
        },
        stranger_rate,
        ..Limits::default()
    };
    let readings = {
        let trail = Arc::clone(&trail);
        move || {
            Ok(Readings {
                is_served: pool.catalogue().is_served(),
                traffic: pool.traffic(),
                audit: trail.status(),
                spans: None,
            })
        }
    };
    let traces = Arc::default();
    let broker = Broker::new(engine, policy, trail, limits, traces, Arc::new(readings)).unwrap();
    Rig {
        app: app(broker),
        token,
        secret: String::from_utf8(new.secret.expose().to_vec()).unwrap(),
        _folder: folder,
    }
}

impl Rig {
    /// A request with an unknown token, over a connection with this identity.
    async fn ask_stale(&self, identities: &[String]) -> StatusCode {
        let peer = Peer {
            identities: identities.to_vec(),
            ..Peer::default()
        };
        let request = Request::builder()
            .method("POST")
            .uri("/v1/transit/random/16")
            .header("X-Vault-Token", "hsmb.stale")
            .extension(Arc::new(peer))
            .body(Body::empty())
            .unwrap();
        self.app.clone().oneshot(request).await.unwrap().status()
    }

    async fn ask(&self, method: &str, path: &str, secret: &str, body: &str) -> (StatusCode, Value) {
        let bearer = format!("Bearer {secret}");
        let headers = [("Authorization", &bearer[..])];
        self.ask_with(&headers, method, path, body).await
    }

    async fn ask_with(
        &self,
        headers: &[(&str, &str)],
        method: &str,
        path: &str,
        body: &str,
    ) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path);
        let with = |request: Builder, (name, value): &(&str, &str)| request.header(*name, *value);
        let request = headers.iter().fold(request, with);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.app.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}

#[tokio::test]
async fn who_is_known_is_no_stranger_for_a_stale_token() {
    let rig = rig_with(const { NonZeroU32::new(1).unwrap() });
    let mut tries = 0..10_000;
    while rig.ask_stale(&[]).await != StatusCode::TOO_MANY_REQUESTS {
        assert!(tries.next().is_some(), "strangers are never refused");
    }
    let known = ["uid:7".to_owned()];
    assert_eq!(rig.ask_stale(&known).await, StatusCode::FORBIDDEN);
    while rig.ask_stale(&known).await != StatusCode::TOO_MANY_REQUESTS {
        assert!(tries.next().is_some(), "wrong tokens are never refused");
    }
    let other = ["uid:8".to_owned()];
    assert_eq!(rig.ask_stale(&other).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_client_gets_what_its_policy_allows() {
    let rig = rig();
    let path = "/v1/transit/random/16";
    let (status, json) = rig.ask("POST", path, &rig.secret, "").await;
    assert_eq!(status, StatusCode::OK, "{json}");
    assert_eq!(json["data"]["random_bytes"], "AAAAAAAAAAAAAAAAAAAAAA==");
    assert_eq!(json["request_id"].as_str().map(str::len), Some(36));
    assert_eq!(rig.token.calls(), 1);
}

#[tokio::test]
async fn what_is_refused_costs_the_token_nothing() {
    let rig = rig();
    let long = " ".repeat(MAX_BODY + 1);
    for (method, path, secret, body, expected) in [
        ("POST", "random", "hsmb.wrong", "", 403),
        ("POST", "random", "", "", 403),
        ("POST", "random", &rig.secret, &long, 413),
        ("POST", "random", &rig.secret, "{", 400),
        ("POST", "random/999999", &rig.secret, "", 400),
        ("POST", "encrypt/app-x", &rig.secret, "{}", 404),
        ("POST", "encrypt/other", &rig.secret, "{}", 403),
        ("POST", "decrypt/app-x", &rig.secret, "{}", 403),
        ("DELETE", "keys/app-x", &rig.secret, "", 403),
        ("GET", "keys/app-x", &rig.secret, "", 404),
        ("POST", "keys", &rig.secret, "", 405),
        ("GET", "random", &rig.secret, "", 405),
        ("POST", "wrap", &rig.secret, "", 404),
    ] {
        let path = format!("/v1/transit/{path}");
        let (status, json) = rig.ask(method, &path, secret, body).await;
        assert_eq!(status.as_u16(), expected, "{method} {path}: {json}");
        assert!(json["errors"].is_array(), "{method} {path}: {json}");
    }
    assert_eq!(rig.token.calls(), 0);
}

/// A request for a wrapped answer wants secrecy in transit, and a namespace names another key.
#[tokio::test]
async fn what_is_not_here_is_refused_and_not_left_out() {
    let rig = rig();
    let path = "/v1/transit/random/16";
    for (name, value, expected) in [
        ("X-Vault-Wrap-TTL", "60s", 400),
        ("X-Vault-Wrap-TTL", "1", 400),
        ("X-Vault-Wrap-TTL", "x", 400),
        ("X-Vault-Wrap-TTL", "0", 200),
        ("X-Vault-Wrap-TTL", "", 200),
        ("X-Vault-Namespace", "team/", 400),
        ("X-Vault-Namespace", "root", 200),
        ("X-Vault-Namespace", "", 200),
    ] {
        let headers = [("X-Vault-Token", &rig.secret[..]), (name, value)];
        let (status, json) = rig.ask_with(&headers, "POST", path, "").await;
        assert_eq!(status.as_u16(), expected, "{name}: {value}: {json}");
        let refused = json["errors"].to_string().contains(name);
        assert_eq!(refused, expected == 400, "{name}: {value}: {json}");
    }
    assert_eq!(rig.token.calls(), 4);
}

#[tokio::test]
async fn health_needs_no_token() {
    let rig = rig();
    for path in ["/healthz", "/readyz", "/v1/sys/health"] {
        let (status, json) = rig.ask("GET", path, "", "").await;
        assert_eq!(status, StatusCode::OK, "{path}: {json}");
    }
    rig.token.lose("on order");
    let (status, _) = rig.ask("GET", "/healthz", "", "").await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_client_learns_who_it_is() {
    let rig = rig();
    let path = "/v1/auth/token/lookup-self";
    let (status, json) = rig.ask("GET", path, &rig.secret, "").await;
    assert_eq!(
        (status, json["data"]["display_name"].as_str()),
        (StatusCode::OK, Some("token:app"))
    );
    let (status, _) = rig.ask("GET", path, "hsmb.other", "").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}
