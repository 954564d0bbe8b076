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
