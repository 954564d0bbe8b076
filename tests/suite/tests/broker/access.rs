//! Who is let in, and who is not.

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::rig::Broker;

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

/// A client that may not use a key cannot find out whether the key exists.
#[test]
fn a_forbidden_key_looks_like_one_that_is_not_there() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let broker = Broker::of(
        rig,
        r#"
[broker]
listen = ["127.0.0.1:0"]

[[policy]]
clients = ["token:app"]
keys = ["app-*"]
allow = ["encrypt", "create"]

[[policy]]
clients = ["token:admin"]
keys = ["*"]
allow = ["*"]
"#,
    );
    let admin = broker.rig.hsmux("token-auth create admin").ok();
    let admin = admin.out.trim();
    let body = r#"{"type": "aes256-gcm96"}"#;
    let (status, json) = broker.ask_as(admin, "POST", "keys/secret", body);
    assert!([200, 204].contains(&status), "{status} {json}");
    for (method, path) in [
        ("POST", "encrypt"),
        ("POST", "decrypt"),
        ("GET", "keys"),
        ("DELETE", "keys"),
    ] {
        let there = broker.ask(method, &format!("{path}/secret"), TEXT);
        let absent = broker.ask(method, &format!("{path}/nothing"), TEXT);
        assert_eq!(there.0, 403, "{method} {path}: {there:?}");
        assert_eq!(there, absent, "{method} {path}");
    }
    broker.good("POST", "keys/app-own", body);
    broker.good("POST", "encrypt/app-own", TEXT);
    broker.refused("GET", "keys/app-own", "", 403, "permission denied");
}

/// The store has no token that a reader of it, or of a copy, could use.
#[test]
fn a_token_is_not_in_the_store_that_knows_it() {
    let mut broker = Broker::start(1);
    broker.good("POST", "keys/app-own", r#"{"type": "aes256-gcm96"}"#);
    // What is still in the log of the database goes into it.
    broker.rig.stop();
    let files = std::fs::read_dir(broker.rig.path("state")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let store: Vec<u8> = files
        .filter(|path| path.to_string_lossy().contains("broker.sqlite"))
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect();
    let holds = |text: &str| {
        store
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(holds("app-own"), "it is the store");
    let secret = broker.token.trim();
    let secret = secret.rsplit('.').next().expect("a token");
    assert!(secret.len() >= 20, "{secret}");
    assert!(!holds(secret));
    broker.start_again();
    broker.good("GET", "keys/app-own", "");
}

#[test]
fn a_list_has_the_keys_that_a_client_may_do_something_with() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let broker = Broker::of(
        rig,
        r#"
[broker]
listen = ["127.0.0.1:0"]

[[policy]]
clients = ["token:app"]
keys = ["app-*"]
allow = ["*"]

[[policy]]
clients = ["token:app"]
keys = ["shared-*"]
allow = ["verify"]

[[policy]]
clients = ["token:admin"]
keys = ["*"]
allow = ["create", "list"]

[[policy]]
clients = ["token:other"]
keys = ["other-*"]
allow = ["*"]
"#,
    );
    let token = |name: &str| {
        let made = broker.rig.hsmux(&format!("token-auth create {name}")).ok();
        made.out.trim().to_owned()
    };
    let (admin, other) = (token("admin"), token("other"));
    for name in ["app-1", "app-2", "billing", "shared-log"] {
        let made = broker.ask_as(&admin, "POST", &format!("keys/{name}"), "");
        assert!([200, 204].contains(&made.0), "{made:?}");
    }
    let names =
        |token: &str, path: &str| broker.ask_as(token, "LIST", path, "").1["data"]["keys"].clone();
    let all = json!(["app-1", "app-2", "billing", "shared-log"]);
    assert_eq!(names(&admin, "keys"), all);
    assert_eq!(
        names(&broker.token, "keys"),
        json!(["app-1", "app-2", "shared-log"])
    );
    assert_eq!(
        names(&broker.token, "keys?limit=1&after=app-2"),
        json!(["shared-log"])
    );
    assert_eq!(broker.ask_as(&other, "LIST", "keys", "").0, 404);
}

#[test]
fn a_revoked_token_is_refused_soon_and_a_new_one_taken_at_once() {
    let broker = Broker::start(1);
    broker.refused("GET", "keys/app-none", "", 404, "");
    // Each is known to be unknown before the next one is made.
    for n in 0..5 {
        assert_eq!(
            broker
                .ask_as(&format!("hsmb.{n}"), "GET", "keys/app-none", "")
                .0,
            403
        );
        let new = broker.rig.hsmux("token-auth create app").ok();
        let (status, json) = broker.ask_as(new.out.trim(), "GET", "keys/app-none", "");
        assert_eq!(status, 404, "{json}");
    }
    broker.rig.hsmux("token-auth revoke app").ok();
    until("the token is refused", PATIENCE, || {
        let (status, _) = broker.ask("GET", "keys/app-none", "");
        (status == 403).then_some(())
    });
}

#[test]
fn lookup_self_says_how_long_a_token_is_valid() {
    let broker = Broker::start(1);
    let made = broker.rig.hsmux("token-auth create app --expires 1h").ok();
    let lookup = |token: &str| {
        let mut connection = Connection::tcp(&broker.url);
        let answer = connection.ask("GET", "/v1/auth/token/lookup-self", token, "");
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        let json: Value = serde_json::from_str(&answer.body).expect("JSON");
        json["data"].clone()
    };
    let data = lookup(made.out.trim());
    assert_eq!(data["creation_ttl"], 3600, "{data}");
    let ttl = data["ttl"].as_u64().expect("seconds");
    assert!((3500..=3600).contains(&ttl), "{data}");
    let time = |name: &str| humantime::parse_rfc3339(data[name].as_str().expect("a time"));
    let issued = time("issue_time").expect("RFC 3339");
    let expires = time("expire_time").expect("RFC 3339");
    assert_eq!(
        expires.duration_since(issued).expect("later").as_secs(),
        3600
    );
    let data = lookup(&broker.token);
    let never = (&data["ttl"], &data["creation_ttl"], &data["expire_time"]);
    assert_eq!(never, (&json!(0), &json!(0), &Value::Null), "{data}");
}

#[test]
fn on_a_unix_socket_the_client_is_its_user() {
    let user = rustix::process::getuid().as_raw();
    let rig = Rig::empty(Setup::Daemon, 1);
    let broker = Broker::of(
        rig,
        &format!(
            r#"
[broker]
listen = ["127.0.0.1:0"]
socket = "broker.sock"

[[policy]]
clients = ["uid:{user}"]
keys = ["mine"]
allow = ["*"]

[[policy]]
clients = ["uid:{}"]
keys = ["theirs"]
allow = ["*"]
"#,
            user + 1
        ),
    );
    let socket = broker.rig.path("broker.sock");
    let mut connection = Connection::unix(&socket);
    let mut ask = |path: &str| {
        let answer = connection.ask("GET", path, "", "").expect("an answer");
        (answer.status, answer.body)
    };
    assert_eq!(ask("/v1/transit/keys/mine").0, 404);
    assert_eq!(ask("/v1/transit/keys/theirs").0, 403);
    let (status, body) = ask("/v1/auth/token/lookup-self");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains(&format!("uid:{user}")), "{body}");
    // Over TCP nobody is a user.
    let mut tcp = Connection::tcp(&broker.url);
    let answer = tcp
        .ask("GET", "/v1/transit/keys/mine", "", "")
        .expect("an answer");
    assert_eq!(answer.status, 403, "{answer:?}");
}

#[test]
fn dev_mode_is_loud_and_for_loopback_only() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let mut broker = Broker::of(rig, "[broker]\nlisten = [\"127.0.0.1:0\"]\ndev = true\n");
    let log = broker.rig.daemon.as_ref().expect("a daemon").log();
    let loud = log
        .lines()
        .find(|line| line.contains("DEV MODE"))
        .unwrap_or_default();
    assert!(loud.contains("WARN"), "{log}");
    let (status, json) = broker.ask_as("", "POST", "keys/any", r#"{"type": "aes256-gcm96"}"#);
    assert!([200, 204].contains(&status), "{status} {json}");
    assert_eq!(broker.ask_as("", "POST", "encrypt/any", TEXT).0, 200);
    let page = "--header Origin:http://attacker.example --write-out %{http_code}";
    let refused = broker.curl("", "POST", "encrypt/any", TEXT, page);
    assert!(refused.ends_with("403"), "{refused}");
    broker.rig.stop();
    for lines in [
        "listen = [\"0.0.0.0:0\"]",
        "listen = [\"127.0.0.1:0\", \"[::]:0\"]",
        "socket = \"broker.sock\"",
    ] {
        broker.rig.config.module = format!("mode = \"daemon\"\n[broker]\ndev = true\n{lines}\n");
        broker.rig.write_config();
        for command in ["config check", "broker"] {
            let refused = broker.rig.hsmux(command).fails();
            refused.says("loopback only");
        }
    }
}
