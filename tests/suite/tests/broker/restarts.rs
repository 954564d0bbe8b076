//! What stays over a restart, and over the loss of the store.

use std::fs;

use crate::rig::Broker;

const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

/// The broker begins anew without it, and its client has another token.
pub fn lose_store(broker: &mut Broker) {
    broker.rig.stop();
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(broker.rig.path(&format!("state/broker.sqlite{end}")));
    }
    broker.start_again();
    let token = broker.rig.hsmux("token-auth create app").ok();
    token.out.trim().clone_into(&mut broker.token);
}

fn decrypts(broker: &Broker, name: &str, sealed: &str) {
    let body = format!(r#"{{"ciphertext": "{sealed}"}}"#);
    let opened = broker.good("POST", &format!("decrypt/{name}"), &body);
    assert_eq!(opened["plaintext"], "c2VjcmV0");
}

#[test]
fn a_lost_store_is_rebuilt_from_the_tokens() {
    let mut broker = Broker::start(2);
    let mut sealed = Vec::new();
    for kind in ["aes256-gcm96", "aes256-cbc"] {
        let name = format!("app-{kind}");
        broker.good(
            "POST",
            &format!("keys/{name}"),
            &format!(r#"{{"type": "{kind}"}}"#),
        );
        broker.good("POST", &format!("keys/{name}/rotate"), "");
        broker.good(
            "POST",
            &format!("keys/{name}/config"),
            r#"{"deletion_allowed": true}"#,
        );
        let text = broker.good("POST", &format!("encrypt/{name}"), TEXT)["ciphertext"].clone();
        sealed.push((name, text.as_str().expect("a ciphertext").to_owned()));
    }
    broker.rig.kill_to_the_last();
    broker.start_again();
    for (name, sealed) in &sealed {
        decrypts(&broker, name, sealed);
        let key = broker.good("GET", &format!("keys/{name}"), "");
        assert_eq!(
            (&key["latest_version"], &key["deletion_allowed"]),
            (&2.into(), &true.into())
        );
        broker.good("POST", &format!("encrypt/{name}"), TEXT);
    }

    lose_store(&mut broker);
    for (name, sealed) in &sealed {
        decrypts(&broker, name, sealed);
        let key = broker.good("GET", &format!("keys/{name}"), "");
        assert_eq!(
            (&key["latest_version"], &key["deletion_allowed"]),
            (&2.into(), &false.into())
        );
    }
    let gcm = "encrypt/app-aes256-gcm96";
    broker.refused("POST", gcm, TEXT, 400, "rotate the key");
    broker.good("POST", "encrypt/app-aes256-cbc", TEXT);
    broker.good("POST", "keys/app-aes256-gcm96/rotate", "");
    let text = broker.good("POST", gcm, TEXT)["ciphertext"].clone();
    assert!(
        text.as_str()
            .expect("a ciphertext")
            .starts_with("vault:v3:")
    );
}

/// A key's forbidden versions stay forbidden after the store is lost.
#[test]
fn a_lost_store_allows_no_version_that_was_forbidden() {
    let mut broker = Broker::start(2);
    let input = r#"{"input": "c2VjcmV0"}"#;
    let mut made = Vec::new();
    for (kind, path, field, body) in [
        ("aes256-gcm96", "encrypt", "ciphertext", TEXT),
        ("aes256-cbc", "encrypt", "ciphertext", TEXT),
        ("ecdsa-p256", "sign", "signature", input),
    ] {
        let name = format!("app-{kind}");
        let key = format!("keys/{name}");
        broker.good("POST", &key, &format!(r#"{{"type": "{kind}"}}"#));
        let mut texts = Vec::new();
        for _ in 0..3 {
            let text = broker.good("POST", &format!("{path}/{name}"), body);
            texts.push(format!(
                r#"{{"{field}": {}, "input": "c2VjcmV0"}}"#,
                text[field]
            ));
            broker.good("POST", &format!("{key}/rotate"), "");
        }
        let text = broker.good("POST", &format!("{path}/{name}"), body);
        texts.push(format!(
            r#"{{"{field}": {}, "input": "c2VjcmV0"}}"#,
            text[field]
        ));
        let config = r#"{"min_decryption_version": 3, "min_encryption_version": 3}"#;
        broker.good("POST", &format!("{key}/config"), config);
        let read = path.replace("encrypt", "decrypt").replace("sign", "verify");
        made.push((name, key, format!("{read}/app-{kind}"), texts));
    }
    let reads = |broker: &Broker, path: &str, texts: &[String]| {
        let found = texts.iter().map(|text| broker.ask("POST", path, text));
        let found = found.map(|(status, json)| {
            let words = json["errors"][0].as_str().unwrap_or_default();
            let old = words.contains("disallowed by policy (too old)");
            assert!(status == 200 || old, "{path}: {status} {json}");
            assert_ne!(json["data"]["valid"], false, "{path}: {json}");
            status == 200
        });
        found.collect::<Vec<_>>()
    };
    // What the operator has said outlives a crash.
    broker.rig.kill_to_the_last();
    broker.start_again();
    for (_, _, path, texts) in &made {
        assert_eq!(reads(&broker, path, texts), [false, false, true, true]);
    }
    lose_store(&mut broker);
    let log = broker.rig.daemon.as_ref().expect("a daemon").log();
    assert!(
        log.contains("not used until config (min_decryption_version)"),
        "{log}"
    );
    for (name, key, path, texts) in &made {
        assert_eq!(
            reads(&broker, path, texts),
            [false, false, false, true],
            "{name}"
        );
        let shown = broker.good("GET", key, "");
        assert_eq!(shown["min_decryption_version"], 4, "{name}");
        if name.contains("cbc") {
            let old = r#"{"plaintext": "c2VjcmV0", "key_version": 3}"#;
            let encrypt = format!("encrypt/{name}");
            broker.refused("POST", &encrypt, old, 400, "minimum decryption");
        }
        // It stays so with a new version and a new start, and until somebody allows it.
        broker.good("POST", &format!("{key}/rotate"), "");
    }
    broker.rig.stop();
    broker.start_again();
    for (name, key, path, texts) in &made {
        assert_eq!(
            reads(&broker, path, texts),
            [false, false, false, true],
            "{name}"
        );
        let allow = r#"{"min_decryption_version": 3}"#;
        broker.good("POST", &format!("{key}/config"), allow);
        assert_eq!(
            reads(&broker, path, texts),
            [false, false, true, true],
            "{name}"
        );
    }
}
