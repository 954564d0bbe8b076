//! Spans of requests, as a collector gets them.

use std::net::TcpListener;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hsmux_suite::{PATIENCE, Rig, Setup, hex, until};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::Value;

use crate::collector::{Collector, SERVER, text};
use crate::rig::{Broker, METERED};
use hsmux_suite::pki::{ALWAYS, Authority};

const CALLER: &str = "00f067aa0ba902b7";

/// A request whose caller has decided; the answer.
pub fn ask(broker: &Broker, trace: &str, sampled: bool, path: &str, body: &str) -> Value {
    let flags = u8::from(sampled);
    let header = format!("--header traceparent:00-{trace}-{CALLER}-0{flags}");
    let answer = broker.curl(&broker.token, "POST", path, body, &header);
    serde_json::from_str(&answer).unwrap_or_default()
}

/// The number of a trace, as the wire has it.
pub fn id(number: u8) -> String {
    hex(&[number; 16])
}

/// The span of the request itself.
pub fn server(spans: &[Span]) -> &Span {
    spans
        .iter()
        .find(|span| span.kind == SERVER)
        .expect("the request's span")
}

pub fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// All others are parts of the request.
pub fn stand_within(spans: &[Span], request: &Span) {
    for span in spans.iter().filter(|span| span.kind != SERVER) {
        assert_eq!(span.parent_span_id, request.span_id, "{span:?}");
        let times = [
            request.start_time_unix_nano,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            request.end_time_unix_nano,
        ];
        assert!(times.is_sorted(), "{span:?}");
    }
}

pub fn of(span: &Span, attribute: &str) -> String {
    text(&span.attributes, attribute).unwrap_or_default()
}

/// A number of `/metrics`.
pub fn number(broker: &Broker, name: &str) -> Option<f64> {
    let page = broker.rig.run("curl").args("--silent --fail");
    let page = page.arg(format!("{}/metrics", broker.url)).ok();
    let line = page.out.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

#[test]
fn a_traced_request_says_where_its_time_went_and_nothing_that_is_secret() {
    let rig = Rig::empty(Setup::Daemon, 2);
    let authority = Authority::new(&rig, "ca");
    authority.issue(&rig, "collector", "IP:127.0.0.1", ALWAYS);
    let own = |end: &str| rig.path(&format!("collector.{end}"));
    let collector = Collector::start_with(&own("pem"), &own("key"));
    let traces = format!(
        "[traces]\nendpoint = \"{}/otlp/\"\nca = \"ca.pem\"\n",
        collector.url
    );
    let mut broker = Broker::of(rig, &format!("{METERED}{traces}"));

    ask(
        &broker,
        &id(1),
        true,
        "keys/app-cbc",
        r#"{"type": "aes256-cbc"}"#,
    );
    let secret = "a very secret text";
    let plaintext = STANDARD.encode(secret);
    let body = format!(r#"{{"plaintext": "{plaintext}"}}"#);
    let answer = ask(&broker, &id(2), true, "encrypt/app-cbc", &body);
    let sealed = answer["data"]["ciphertext"].as_str().expect("a ciphertext");
    ask(&broker, &id(3), true, "encrypt/other", &body);
    let undecided = ask(&broker, &id(4), false, "encrypt/app-cbc", &body);
    assert!(undecided["data"]["ciphertext"].is_string(), "{undecided}");
    let items = vec![body.as_str(); 100].join(",");
    let batch = format!(r#"{{"batch_input": [{items}]}}"#);
    ask(&broker, &id(5), true, "encrypt/app-cbc", &batch);
    // Of a PKCS#11 URI nothing is shown: people write PINs into them.
    ask(
        &broker,
        &id(6),
        true,
        "encrypt/pkcs11:object=x%3Fpin-value=hunter2",
        &body,
    );

    let number = answer["request_id"].as_str().expect("an id");
    an_enciphering(&collector.whole_trace(&id(2), 7), number);

    let made = collector.trace(&id(1));
    assert_eq!(named(&made, "audit").len(), 2, "{made:?}");
    assert!(!named(&made, "C_GenerateKey").is_empty(), "{made:?}");
    assert!(!named(&made, "store").is_empty(), "{made:?}");

    let denied = collector.trace(&id(3));
    assert_eq!(of(server(&denied), "http.response.status_code"), "403");
    assert!(named(&denied, "queue").is_empty(), "{denied:?}");

    let many = collector.whole_trace(&id(5), 129);
    assert_eq!(many.len(), 129);
    let left_out: usize = of(server(&many), "hsmux.spans_left_out")
        .parse()
        .expect("a number");
    assert!(left_out > 200, "{left_out}");

    let foreign = collector.trace(&id(6));
    assert_eq!(of(server(&foreign), "hsmux.key"), "");

    // The end waits for what is on its way.
    ask(&broker, &id(7), true, "random/8", "");
    broker.rig.stop();
    assert!(!collector.trace(&id(7)).is_empty());
    assert!(collector.spans_of(&id(4)).is_empty());
    assert!(collector.services().iter().all(|name| name == "hsmux"));
    let heads = collector.heads();
    assert!(
        heads
            .iter()
            .all(|head| head.starts_with("post /otlp/v1/traces ")),
        "{heads:?}"
    );
    for secret in [secret, &plaintext, sealed, &broker.token, "hunter2"] {
        assert!(!collector.has_seen(secret.as_bytes()), "{secret}");
    }
}

/// The spans of one request that enciphers by a key that authenticates as well.
fn an_enciphering(spans: &[Span], id: &str) {
    let request = server(spans);
    assert_eq!(request.name, "POST /v1/transit/encrypt/{name}");
    assert_eq!(hex(&request.parent_span_id), CALLER);
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/v1/transit/encrypt/{name}"),
        ("http.response.status_code", "200"),
        ("url.scheme", "http"),
        ("network.protocol.version", "1.1"),
        ("client.address", "127.0.0.1"),
        ("hsmux.key", "app-cbc"),
        ("hsmux.request_id", id),
        ("error.type", ""),
    ] {
        assert_eq!(of(request, name), value, "{name}: {request:?}");
    }
    // Enciphered, then authenticated.
    let mut names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    names.sort_unstable();
    let within = ["C_Encrypt", "C_Sign", "POST /v1/transit/encrypt/{name}"];
    let before = ["authorise", "body", "queue", "queue"];
    assert_eq!(names, [&within[..], &before].concat());
    stand_within(spans, request);
    let [work] = named(spans, "C_Encrypt")[..] else {
        panic!("{spans:?}")
    };
    assert!(
        of(work, "hsmux.mechanism").starts_with("CKM_AES_CBC"),
        "{work:?}"
    );
    assert!(of(work, "hsmux.token").starts_with("hsm"), "{work:?}");
    assert!(of(work, "hsmux.worker").starts_with("hsm"), "{work:?}");
}

#[test]
fn requests_are_traced_as_often_as_configured_and_where_the_environment_says() {
    let collector = Collector::start();
    let mut broker = Broker::of(Rig::empty(Setup::Daemon, 1), METERED);
    ask(&broker, &id(1), true, "random/8", "");
    assert_eq!(number(&broker, "hsmux_traces_exported_total"), None);
    broker.rig.stop();
    assert!(collector.heads().is_empty());

    let traces = format!(
        "\n[traces]\nendpoint = \"{}\"\nsample = 0.0\n",
        collector.url
    );
    broker.rig.config.module.push_str(&traces);
    broker.start_again();
    for _ in 0..20 {
        broker.good("POST", "random/8", "");
    }
    ask(&broker, &id(2), true, "random/8", "");
    assert!(!collector.trace(&id(2)).is_empty());
    broker.rig.stop();
    assert_eq!(collector.traces(), [id(2)]);

    let module = &mut broker.rig.config.module;
    *module = module.replace(&traces, "");
    let run = broker.rig.hsmux("serve");
    let run = run
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
        .env("OTEL_SERVICE_NAME", "orders-hsm");
    broker.start_again_by(run);
    broker.good("POST", "random/8", "");
    until("a trace of our own", PATIENCE, || {
        (collector.traces().len() > 1).then_some(())
    });
    assert!(collector.services().contains(&"orders-hsm".to_owned()));
    let heads = collector.heads();
    let last = heads.last().expect("a request");
    assert!(last.contains("\r\nauthorization: bearer abc\r\n"), "{last}");
}

/// One that takes connections and never answers: more spans than there is room for.
#[test]
fn a_collector_that_is_away_harms_no_request() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address");
    let traces = format!("[traces]\nendpoint = \"http://{address}\"\n");
    let mut broker = Broker::of(Rig::empty(Setup::Daemon, 1), &format!("{METERED}{traces}"));
    broker.good("POST", "keys/app-cbc", r#"{"type": "aes256-cbc"}"#);
    let items = vec![r#"{"plaintext": "AAAA"}"#; 100].join(",");
    let batch = format!(r#"{{"batch_input": [{items}]}}"#);
    for _ in 0..24 {
        broker.good("POST", "encrypt/app-cbc", &batch);
    }
    let dropped = number(&broker, "hsmux_traces_dropped_total").expect("a number");
    assert!(dropped > 0.0, "{dropped}");
    let waiting = number(&broker, "hsmux_traces_queue").expect("a number");
    // Of the broker's process and of the daemon.
    assert!(waiting <= 2.0 * 2048.0, "{waiting}");
    // With all of that still waiting, the end does not.
    broker.rig.stop();
}
