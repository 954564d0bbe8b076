//! Spans of what programs ask for over PKCS#11, of a daemon without a broker.

use std::fs;

use hsmux_suite::{Caller, PATIENCE, Rig, Setup, StandIn, until};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;

use crate::collector::Collector;
use crate::traces::{named, of, server, stand_within};

/// CKR_DATA_LEN_RANGE
const TOO_LONG: u64 = 0x21;

fn rig() -> (Rig, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let tokens = rig.stand_in("vendor", &["a"]);
    rig.start();
    (rig, tokens)
}

/// Has it send spans to a collector.
fn trace(rig: &mut Rig, collector: &Collector) {
    let traces = format!("\n[traces]\nendpoint = \"{}\"\n", collector.url);
    rig.config.module.push_str(&traces);
    rig.write_config();
    rig.hsmux("reload").ok().says("traces changed");
}

/// The trace of the first operation that ended so.
fn wait_for(collector: &Collector, name: &str, result: &str) -> Vec<Span> {
    let is_it = |span: &&Span| span.name == name && of(span, "hsmux.result") == result;
    until(&format!("{name}, {result}"), PATIENCE, || {
        let traces = collector.traces().into_iter();
        let mut traces = traces.map(|id| collector.spans_of(&id));
        traces.find(|spans| spans.iter().any(|span| is_it(&span)))
    })
}

#[test]
fn what_a_program_asks_for_says_where_its_time_went_and_nothing_that_is_secret() {
    let (mut rig, mut tokens) = rig();
    let mut program = Caller::open(&rig);
    let untraced = program.ok("sign", json!({}));
    let collector = Collector::start();
    trace(&mut rig, &collector);

    let signature = program.ok("sign", json!({}));
    let text = "a very secret text";
    let sealed = program.ok("encrypt", json!({"text": text}));
    tokens.set("a", &format!("sign_error = {TOO_LONG}"));
    assert_eq!(program.ask("sign", json!({})), Err(TOO_LONG));

    let signed = wait_for(&collector, "PKCS#11 C_Sign", "CKR_OK");
    a_signature(&rig, &signed);
    let sealing = wait_for(&collector, "PKCS#11 C_Encrypt", "CKR_OK");
    let [work] = named(&sealing, "C_Encrypt")[..] else {
        panic!("{sealing:?}")
    };
    assert_eq!(of(work, "hsmux.mechanism"), "CKM_AES_CBC_PAD");
    let failed = wait_for(&collector, "PKCS#11 C_Sign", "CKR_DATA_LEN_RANGE");
    for span in [server(&failed), named(&failed, "C_Sign")[0]] {
        assert_eq!(of(span, "error.type"), format!("Vendor({TOO_LONG})"));
    }

    let text = text.as_bytes();
    let pin = rig.pin();
    let mut secrets = vec![text.to_vec(), pin.into_bytes(), StandIn::PIN.into()];
    for value in [&untraced, &signature, &sealed] {
        let value = value.as_str().expect("hex");
        secrets.push(value.into());
        secrets.push(bytes(value));
    }
    // The end waits for what is on its way.
    drop(program);
    rig.stop();
    let requests = collector.traces().len();
    assert_eq!(requests, 4, "two signatures, and text there and back");
    for secret in secrets {
        assert!(!collector.has_seen(&secret), "{secret:?}");
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// The spans of one signature.
fn a_signature(rig: &Rig, spans: &[Span]) {
    let request = server(spans);
    let mut names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["C_Sign", "PKCS#11 C_Sign", "queue"]);
    let keys = rig.hsmux("key list --json").ok().out;
    let key = of(request, "hsmux.key");
    assert!(keys.contains(&key), "{key}: {keys}");
    assert_eq!(of(request, "hsmux.operation"), "C_Sign");
    assert_eq!(of(request, "hsmux.mechanism"), "CKM_ECDSA");
    assert_eq!(of(request, "error.type"), "");
    let uid = rustix::process::geteuid().as_raw().to_string();
    assert_eq!(of(request, "hsmux.uid"), uid);
    let program = fs::read_to_string(format!("/proc/{}/cmdline", of(request, "hsmux.pid")));
    let program = program.expect("a process that lives");
    assert!(program.contains("caller.py"), "{program}");
    let called = of(request, "hsmux.program");
    assert!(called.contains("python"), "{called}");
    stand_within(spans, request);
    let work = named(spans, "C_Sign")[0];
    assert_eq!(of(work, "hsmux.token"), "a");
    assert_eq!(of(work, "hsmux.mechanism"), "CKM_ECDSA");
}
