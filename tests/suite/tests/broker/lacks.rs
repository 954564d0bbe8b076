//! An operation that the tokens lack is refused. The error names it and what the tokens can do; no software does it instead.

use hsmux_suite::{PATIENCE, Rig, SOFTHSM, Setup, StandIn, until};
use hsmux_token::{Mechanism, ck};
use serde_json::{Value, json};

use crate::rig::Broker;

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;
const OAEP: &str = r#"{"plaintext": "c2VjcmV0", "oaep_hash": "sha1"}"#;
const INPUT: &str = r#"{"input": "c2VjcmV0"}"#;
const PKCS1: &str = r#"{"input": "c2VjcmV0", "signature_algorithm": "pkcs1v15"}"#;
const NEW: &str = "keys/app-new";

/// A request, the mechanism without which a token cannot do it, and what there is in its place.
#[rustfmt::skip]
const NEEDS: [(&str, &str, u64, &str); 11] = [
    ("encrypt/app-aes256-gcm96", TEXT, ck::CKM_AES_GCM, "CKM_AES_CBC_PAD"),
    ("encrypt/app-aes256-cbc", TEXT, ck::CKM_AES_CBC_PAD, "CKM_AES_GCM"),
    ("encrypt/app-aes256-cbc", TEXT, ck::CKM_SHA256_HMAC, "CKM_SHA512_HMAC"),
    ("hmac/app-hmac", INPUT, ck::CKM_SHA256_HMAC, "CKM_SHA512_HMAC"),
    ("sign/app-rsa-2048", INPUT, ck::CKM_RSA_PKCS_PSS, "CKM_RSA_PKCS"),
    ("sign/app-rsa-2048", PKCS1, ck::CKM_RSA_PKCS, "CKM_RSA_PKCS_PSS"),
    ("encrypt/app-rsa-2048", OAEP, ck::CKM_RSA_PKCS_OAEP, "CKM_RSA_PKCS"),
    (NEW, r#"{"type": "aes128-gcm96"}"#, ck::CKM_AES_KEY_GEN, "CKM_GENERIC_SECRET_KEY_GEN"),
    (NEW, r#"{"type": "hmac"}"#, ck::CKM_GENERIC_SECRET_KEY_GEN, "CKM_AES_KEY_GEN"),
    (NEW, r#"{"type": "ecdsa-p256"}"#, ck::CKM_EC_KEY_PAIR_GEN, "CKM_RSA_PKCS_KEY_PAIR_GEN"),
    (NEW, r#"{"type": "rsa-2048"}"#, ck::CKM_RSA_PKCS_KEY_PAIR_GEN, "CKM_EC_KEY_PAIR_GEN"),
];

fn make(broker: &Broker, kind: &str) {
    let body = json!({"type": kind}).to_string();
    broker.good("POST", &format!("keys/app-{kind}"), &body);
}

/// The same requests are done by a SoftHSM that says that it has the mechanism.
#[test]
fn what_a_token_lacks_is_refused_with_what_it_has_and_done_nowhere_else() {
    let mut rig = Rig::empty(Setup::Daemon, 1);
    let mut token = StandIn::new(&rig.path(""), "some", &["hsm1"]);
    token.set_module(&format!("forward = \"{SOFTHSM}\""));
    rig.config.members = token.members().collect();
    let broker = Broker::over(rig, "");
    for kind in ["aes256-gcm96", "aes256-cbc", "hmac", "rsa-2048"] {
        make(&broker, kind);
    }
    for (path, body, lacking, instead) in NEEDS {
        let name = Mechanism::plain(lacking).name();
        broker.rig.hsmux("token park hsm1 --force").ok();
        token.set_all(&format!("lacks = [{lacking}]"));
        broker.rig.hsmux("token resume hsm1").ok();
        // Until its keys have proved themselves, and the broker knows what else there is.
        until(&format!("{path} without {name}"), PATIENCE, || {
            let (status, json) = broker.ask("POST", path, body);
            if status == 503 {
                return None;
            }
            assert_eq!((status, &json["data"]), (400, &Value::Null), "{json}");
            let said = json["errors"][0].as_str().expect("an error");
            let (refused, offered) = said.split_once("; there is ").expect(said);
            assert!(refused.contains(&name[..]), "{said}");
            let mut offered = offered.split(", ");
            offered.any(|offered| offered == instead).then_some(())
        });
        assert_eq!(broker.ask("GET", NEW, "").0, 404, "{path} without {name}");

        let served = broker.served();
        broker.rig.hsmux("token park hsm1 --force").ok();
        token.set_all("");
        broker.rig.hsmux("token resume hsm1").ok();
        until(&format!("{path} with {name}"), PATIENCE, || {
            let (status, json) = broker.ask("POST", path, body);
            assert!([200, 503].contains(&status), "{path}: {status} {json}");
            (status == 200).then_some(())
        });
        if path == NEW {
            let allow = r#"{"deletion_allowed": true}"#;
            broker.good("POST", &format!("{NEW}/config"), allow);
            broker.good("DELETE", NEW, "");
        } else {
            assert!(broker.served() > served, "{path} with {name}");
        }
    }
}

/// As Debian's SoftHSM is; what it lacks of RSA is in `rsa`.
#[test]
fn what_softhsm_lacks_is_refused_with_what_it_has() {
    let broker = Broker::start(1);
    make(&broker, "hmac");
    let served = broker.served();
    for bits in [224, 256, 384, 512] {
        let path = format!("hmac/app-hmac/sha3-{bits}");
        let lacking = format!("CKM_SHA3_{bits}_HMAC is not offered");
        for words in [&lacking[..], "; there is CKM_", "CKM_SHA256_HMAC"] {
            broker.refused("POST", &path, INPUT, 400, words);
        }
    }
    assert_eq!(broker.served(), served);
}
