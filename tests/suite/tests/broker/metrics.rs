//! `/metrics`: what it says after known work, and who may read it.

use hsmux_suite::{PATIENCE, source, until};
use serde_json::Value;

use crate::rig::Broker;

/// The page as Prometheus' own parser reads it: the name and labels of each number.
fn parsed(broker: &Broker, page: &str) -> Value {
    let program = source().join("tests/suite/programs/metrics.py");
    let read = broker.rig.run("/usr/bin/python3").arg(program);
    let read = read.input(page).ok();
    serde_json::from_str(&read.out).expect("JSON of the page")
}

fn page(broker: &Broker, token: &str) -> (u16, String) {
    let curl = broker.rig.run("curl");
    let done = curl
        .args("--silent --show-error --write-out \\n%{http_code} --header")
        .arg(format!("X-Vault-Token: {token}"))
        .arg(format!("{}/metrics", broker.url))
        .ok();
    let (text, status) = done.out.rsplit_once('\n').expect("a status");
    (status.trim().parse().expect("a status"), text.to_owned())
}

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

#[test]
fn numbers_are_those_of_the_work() {
    let broker = Broker::start_with(
        2,
        "[[policy]]\nclients = [\"token:prometheus\"]\nkeys = []\nallow = [\"metrics\"]\n",
    );
    let made = broker.rig.hsmux("token-auth create prometheus").ok();
    let prometheus = made.out.trim();
    broker.good("POST", "keys/app-gcm", r#"{"type": "aes256-gcm96"}"#);
    let batch = format!(r#"{{"batch_input": [{}]}}"#, [TEXT; 5].join(","));
    broker.good("POST", "encrypt/app-gcm", &batch);
    broker.good("POST", "encrypt/app-gcm", TEXT);
    broker.good("POST", "random/16", "");
    let bad = r#"{"ciphertext": "vault:v1:AAAA"}"#;
    broker.refused("POST", "decrypt/app-gcm", bad, 400, "invalid ciphertext");
    broker.refused("POST", "encrypt/other", TEXT, 403, "permission denied");
    broker.refused("POST", "encrypt/app-none", TEXT, 404, "not found");

    // Denied over TCP but for whom a policy allows it; "*" does not.
    assert_eq!(page(&broker, "").0, 403);
    assert_eq!(page(&broker, &broker.token).0, 403);
    let (status, text) = page(&broker, prometheus);
    assert_eq!(status, 200, "{text}");
    let numbers = parsed(&broker, &text);
    let number = |name: &str| numbers[name].as_f64();
    for (name, expected) in [
        (
            r#"hsmux_broker_operations_total{key="app-gcm",operation="encrypt"}"#,
            6.0,
        ),
        (
            r#"hsmux_broker_operations_total{key="app-gcm",operation="decrypt"}"#,
            1.0,
        ),
        (
            r#"hsmux_broker_operations_total{key="",operation="random"}"#,
            1.0,
        ),
        (
            r#"hsmux_broker_errors_total{key="app-gcm",operation="decrypt",reason="request"}"#,
            1.0,
        ),
        (
            r#"hsmux_broker_operation_seconds_count{key="app-gcm",operation="encrypt"}"#,
            6.0,
        ),
        (
            r#"hsmux_broker_operation_seconds_bucket{key="app-gcm",le="+Inf",operation="encrypt"}"#,
            6.0,
        ),
        (r#"hsmux_broker_operations_in_flight{key="app-gcm"}"#, 0.0),
        (r#"hsmux_broker_refusals_total{reason="request"}"#, 1.0),
        // Two of them are those for /metrics.
        (r#"hsmux_broker_refusals_total{reason="denied"}"#, 3.0),
        (r#"hsmux_broker_refusals_total{reason="unknown"}"#, 1.0),
        (r#"hsmux_broker_refusals_total{reason="busy"}"#, 0.0),
        ("hsmux_broker_requests_in_flight{}", 0.0),
        ("hsmux_pool_queue{}", 0.0),
        ("hsmux_audit_up{}", 1.0),
    ] {
        assert_eq!(number(name), Some(expected), "{name}\n{text}");
    }
    let mut answered = 0.0;
    for member in ["hsm1", "hsm2"] {
        let of = |what: &str| {
            let name = format!(r#"hsmux_token_{what}{{token="{member}",worker="{member}"}}"#);
            number(&name).unwrap_or_else(|| panic!("no {name}\n{text}"))
        };
        assert!(of("up") > 0.0 && of("lanes") > 0.0, "{text}");
        assert_eq!(
            Some(of("operation_seconds_count")),
            Some(of("operations_total")),
            "{text}"
        );
        answered += of("operations_total");
    }
    // Six texts enciphered, and random bytes; what could not be deciphered may count as a token's error.
    assert!(answered >= 7.0, "{answered}\n{text}");
    // The connection that asks is one; others may be on their way out.
    let open = number("hsmux_broker_connections{}").expect("connections");
    assert!(open >= 1.0, "{text}");

    broker.good(
        "POST",
        "keys/app-gcm/config",
        r#"{"deletion_allowed": true}"#,
    );
    broker.good("DELETE", "keys/app-gcm", "");
    let (_, text) = page(&broker, prometheus);
    assert!(!text.contains("app-gcm"), "a key that is gone\n{text}");
}

#[test]
fn everybody_reads_them_where_that_is_configured_and_on_the_unix_socket() {
    let mut broker = Broker::start(1);
    assert_eq!(page(&broker, "").0, 403);
    broker.rig.stop();
    let open = "[broker]\nmetrics = true\nsocket = \"broker.sock\"\n";
    let module = &mut broker.rig.config.module;
    *module = module.replacen("[broker]\n", open, 1);
    broker.start_again();
    assert_eq!(page(&broker, "").0, 200);

    broker.rig.stop();
    let module = &mut broker.rig.config.module;
    *module = module.replacen("metrics = true\n", "", 1);
    broker.start_again();
    assert_eq!(page(&broker, "").0, 403);
    let socket = broker.rig.path("broker.sock");
    let says_all = until("the socket answers", PATIENCE, || {
        let curl = broker.rig.run("curl").args("--silent --fail --unix-socket");
        let done = curl.arg(&socket).arg("http://broker/metrics").finish();
        let page = (done.code == Some(0)).then_some(done)?;
        Some(page.out.contains("hsmux_token_up"))
    });
    assert!(says_all);
}
