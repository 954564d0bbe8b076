//! Nonces and IVs: one that comes twice under one key gives its texts away.

use std::collections::BTreeSet;
use std::fs;

use hsmux_suite::{Rig, Setup, source};
use serde_json::json;

use crate::process::service;
use crate::rig::Broker;
use crate::values::bytes;

const POLICY: &str = r#"
[[policy]]
clients = ["token:app"]
keys = ["label:aes"]
allow = ["encrypt", "raw-cbc"]
"#;

/// A key, how it is to encipher where that is said, and the bytes of the nonce that ciphertexts begin with.
type Way = (&'static str, Option<&'static str>, usize);

const WAYS: [Way; 4] = [
    ("app-aes256-gcm96", None, 12),
    ("app-aes256-cbc", None, 16),
    ("label:aes", None, 12),
    ("label:aes", Some("cbc"), 16),
];

/// Requests of one text, and texts of one request.
const SINGLE: usize = 10;
const BATCH: usize = 400;

/// Those of one text that is enciphered again and again.
fn nonces(broker: &Broker, (key, mode, len): Way) -> Vec<Vec<u8>> {
    let path = format!("encrypt/{key}");
    let item = json!({"plaintext": "c2VjcmV0", "mode": mode});
    let ask = |body: String| broker.good("POST", &path, &body);
    let batch = ask(json!({"batch_input": vec![&item; BATCH]}).to_string());
    let items = batch["batch_results"].as_array().expect("results").clone();
    let single = (0..SINGLE).map(|_| ask(item.to_string()));
    let answers = single.chain(items);
    answers
        .map(|answer| bytes(&answer["ciphertext"])[..len].to_vec())
        .collect()
}

/// A broker with the keys of all ways.
fn start() -> Broker {
    start_over(Rig::prepare(Setup::Daemon, 1))
}

fn start_over(rig: Rig) -> Broker {
    let broker = Broker::over(rig, POLICY);
    for kind in ["aes256-gcm96", "aes256-cbc"] {
        let body = json!({"type": kind}).to_string();
        broker.good("POST", &format!("keys/app-{kind}"), &body);
    }
    broker
}

/// Nor where the broker begins anew.
#[test]
fn no_nonce_comes_twice() {
    let mut broker = start();
    let before = WAYS.map(|way| nonces(&broker, way));
    broker.rig.stop();
    broker.start_again();
    for (way, mut all) in WAYS.into_iter().zip(before) {
        all.extend(nonces(&broker, way));
        assert_eq!(all.len(), 2 * (SINGLE + BATCH));
        let different: BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{way:?}");
    }
}

/// The store that a command makes before the first start is no copy of another: uses of keys were not forgotten with it.
#[test]
fn a_command_before_the_first_start_takes_no_uses_away() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    let module = rig.config.module.clone();
    let broker = "\n[broker]\nsocket = \"broker.sock\"\n";
    rig.config.module.push_str(broker);
    rig.write_config();
    fs::create_dir(rig.path("state")).expect("the state folder");
    rig.hsmux("token-auth list").ok();
    rig.config.module = module;
    let broker = Broker::over(rig, POLICY);
    assert_eq!(nonces(&broker, WAYS[2]).len(), SINGLE + BATCH);
}

/// A virtual machine that starts again from a snapshot would give bytes that were drawn before to another text.
#[test]
fn no_nonce_is_drawn_before_its_text_is_known() {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    // The library writes in the worker, too.
    rig.config.members[0].more = "sandbox = \"none\"\n".into();
    let mut broker = start_over(rig);
    broker.rig.stop();
    let [library, calls] = ["getrandom.so", "calls"].map(|name| broker.rig.path(name));
    let compile = broker.rig.run("cc").args("-std=c99 -shared -fPIC");
    let program = source().join("tests/suite/tests/broker/nonces/getrandom.c");
    compile.arg(program).arg("-o").arg(&library).ok();
    let run = broker.rig.hsmux("serve").env("LD_PRELOAD", &library);
    broker.start_again_by(run.env("GETRANDOM_CALLS", &calls));
    let process = service(&broker.rig)["pid"].clone();
    // So often the broker has asked the system for so many bytes.
    let drawn = |bytes: usize| {
        let call = format!("{process} {bytes}");
        let calls = fs::read_to_string(&calls).expect("calls");
        calls.lines().filter(|line| **line == call).count()
    };
    for (key, mode, len) in WAYS {
        let item = json!({"plaintext": "c2VjcmV0", "mode": mode});
        let batch = json!({"batch_input": vec![&item; BATCH]});
        let single = std::iter::repeat_n((len, &item), 4 * SINGLE);
        // Those of a batch are drawn together, each as long as the longest.
        for (bytes, body) in single.chain([(16 * BATCH, &batch)]) {
            let before = drawn(bytes);
            broker.good("POST", &format!("encrypt/{key}"), &body.to_string());
            assert!(drawn(bytes) > before, "{key} {mode:?}: {bytes} bytes");
        }
    }
}
