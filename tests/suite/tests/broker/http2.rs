//! HTTP/2, over TLS and with prior knowledge, as curl speaks it.

use hsmux_suite::{PATIENCE, Process, Rig, Setup, until};
use serde_json::{Value, json};

use crate::rig::Broker;
use hsmux_suite::pki::{ALWAYS, Authority};

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

/// A broker whose client `app` may do everything.
fn start(secure: bool) -> Broker {
    let rig = Rig::empty(Setup::Daemon, 1);
    let mut tls = "";
    if secure {
        let servers = Authority::new(&rig, "servers");
        servers.issue(&rig, "server", "IP:127.0.0.1", ALWAYS);
        tls = "certificate = \"server.pem\"\nkey = \"server.key\"";
    }
    let mut broker = Broker::of(
        rig,
        &format!(
            r#"
[broker]
listen = ["127.0.0.1:0"]
{tls}

[[policy]]
clients = ["token:app"]
keys = ["app-*"]
allow = ["*"]
"#
        ),
    );
    if secure {
        broker.url = broker.url.replace("http:", "https:");
    }
    broker
}

/// What curl needs to speak it with this broker.
fn options(broker: &Broker) -> &'static str {
    if broker.url.starts_with("https:") {
        "--http2 --cacert servers.pem"
    } else {
        "--http2-prior-knowledge"
    }
}

/// A request, answered in HTTP/2.
fn ask(broker: &Broker, method: &str, path: &str, body: &str) -> (u16, Value) {
    let more = format!(
        "{} --write-out \\n%{{http_version}}\\n%{{http_code}}",
        options(broker)
    );
    let done = broker.curl(&broker.token, method, path, body, &more);
    let mut parts = done.rsplitn(3, '\n');
    let (status, version) = (
        parts.next().expect("a status"),
        parts.next().expect("a version"),
    );
    assert_eq!(version, "2", "{done}");
    let json = serde_json::from_str(parts.next().unwrap_or_default()).unwrap_or_default();
    (status.trim().parse().expect("a status"), json)
}

/// A request, a batch and what is refused.
fn serves(secure: bool) -> Broker {
    let broker = start(secure);
    until("the client is known", PATIENCE, || {
        (ask(&broker, "GET", "keys/app-none", "").0 == 404).then_some(())
    });
    assert_eq!(ask(&broker, "POST", "keys/app-gcm", "").0, 200);
    let items: Vec<Value> = (0..100).map(|_| json!({"plaintext": "c2VjcmV0"})).collect();
    let (status, sealed) = ask(
        &broker,
        "POST",
        "encrypt/app-gcm",
        &json!({"batch_input": items}).to_string(),
    );
    assert_eq!(status, 200, "{sealed}");
    let sealed = &sealed["data"]["batch_results"];
    let (status, opened) = ask(
        &broker,
        "POST",
        "decrypt/app-gcm",
        &json!({"batch_input": sealed}).to_string(),
    );
    let opened = opened["data"]["batch_results"]
        .as_array()
        .expect("results")
        .clone();
    assert!(status == 200 && opened.len() == 100, "{status}");
    assert!(
        opened.iter().all(|item| item["plaintext"] == "c2VjcmV0"),
        "{opened:?}"
    );
    assert_eq!(ask(&broker, "POST", "encrypt/other", TEXT).0, 403);
    broker
}

/// One connection, asked all the time, lives through a reload, and at the end no request of it is lost.
fn lasts(mut broker: Broker) {
    let client = broker.rig.run("curl");
    let client = client.args("--silent --show-error --fail --fail-early --output /dev/null");
    let client = client
        .args(options(&broker))
        .arg("--header")
        .arg(format!("X-Vault-Token: {}", broker.token))
        .args("--write-out %{http_code}:%{num_connects}\\n")
        .arg(format!(
            "{}/v1/transit/keys/app-gcm?[1-1000000]",
            broker.url
        ));
    let mut client = Process::start("curl", &broker.rig.path("."), client);
    client.wait_for("200:0");
    let module = broker.rig.config.module.clone();
    broker.rig.config.module = module.replace("app-*", "app-g*");
    broker.rig.reload();
    let before = client.log().len();
    until("it goes on", PATIENCE, || {
        (client.log().len() > before).then_some(())
    });
    broker.rig.stop();
    client.wait();
    // curl writes the message about its last attempt at once and its output later: the message may be within a line.
    let log = client.log();
    let (before, said) = log.split_once("curl: ").expect("why it has ended");
    let (said, after) = said.split_once('\n').expect("a line");
    assert!(said.contains("(7) Failed to connect"), "{said}");
    let answers = format!("{before}{after}");
    let answers: Vec<_> = answers.lines().collect();
    let of = |wanted: &str| answers.iter().filter(|line| **line == wanted).count();
    let counts = [of("200:1"), of("000:0"), answers.len() - of("200:0")];
    assert_eq!(counts, [1, 1, 2], "{answers:?}");
}

#[test]
fn it_is_spoken_over_tls() {
    lasts(serves(true));
}

/// Without what lasts: curl 7.88 does not ask twice on such a connection.
#[test]
fn it_is_spoken_in_clear_to_who_knows() {
    serves(false);
}
