//! The description of the service, held against the service by schemathesis.

use std::fs;

use hsmux_suite::source;

use crate::rig::{Broker, fetched};

/// The client `app` may do everything, including what a policy has to name.
const EVERYTHING: &str = r#"
[[policy]]
clients = ["token:app"]
keys = ["*", "label:*", "id:*", "pkcs11:*"]
allow = ["*", "raw-cbc", "pkcs1-decrypt", "metrics"]
"#;

/// What each answer is held against.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance,response_headers_conformance,unsupported_method";

/// Always the same requests, some thousands. PUT goes to the handlers of POST.
#[test]
fn answers_are_as_the_description_says() {
    let schemathesis = fetched("schemathesis");
    let broker = Broker::start_with(1, EVERYTHING);
    for (name, kind) in [
        ("gcm", "aes256-gcm96"),
        ("cbc", "aes256-cbc"),
        ("ec", "ecdsa-p256"),
        ("rsa", "rsa-2048"),
        ("hmac", "hmac"),
    ] {
        let body = format!(r#"{{"type": "{kind}"}}"#);
        broker.good("POST", &format!("keys/app-{name}"), &body);
    }
    let config = source().join("tests/suite/programs/schemathesis.toml");
    // The token is not to be had from /proc.
    let text = fs::read_to_string(config).expect("schemathesis.toml");
    let text = format!("{text}\n[headers]\nX-Vault-Token = \"{}\"\n", broker.token);
    fs::write(broker.rig.path("schemathesis.toml"), text).expect("schemathesis.toml");
    let run = broker.rig.run(schemathesis);
    run.args("--config-file schemathesis.toml run")
        .arg(format!("{}/v1/openapi.json", broker.url))
        .args("--phases coverage,fuzzing --max-examples 20 --generation-deterministic")
        .args("--exclude-method PUT --checks")
        .arg(CHECKS)
        // A server closes an idle connection when it likes.
        .args("--request-retries 3 --request-timeout 120")
        .args("--suppress-health-check all --warnings off --no-color")
        .ok()
        .says("No issues found");
}
