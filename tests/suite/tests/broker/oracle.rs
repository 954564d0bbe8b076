//! What a client learns of a ciphertext that cannot be read: nothing, neither from the answer nor from what
//! is done for it.

use std::fs;
use std::time::{Duration, Instant};

use hsmux_suite::{Rig, Setup};
use serde_json::{Value, json};

use crate::rig::Broker;

/// No answer to a decryption by PKCS#1 v1.5 comes before this (docs/broker.md).
const BEAT: Duration = Duration::from_millis(100);

/// `metrics`, to see what is done.
fn watched(mut broker: Broker) -> Broker {
    broker.rig.stop();
    let module = &mut broker.rig.config.module;
    *module = module.replacen("[broker]\n", "[broker]\nmetrics = true\n", 1);
    broker.start_again();
    broker
}

/// Operations that the tokens have begun and ended so far, well or not.
fn operations(broker: &Broker) -> u64 {
    let page = broker.rig.run("curl").args("--silent --fail");
    let page = page.arg(format!("{}/metrics", broker.url)).ok().out;
    let counts = ["operations", "errors"].map(|what| format!("hsmux_token_{what}_total{{"));
    let counted = |line: &&str| counts.iter().any(|name| line.starts_with(name));
    let lines = page.lines().filter(counted);
    let numbers = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    numbers.sum()
}

fn altered(sealed: &str, at: usize) -> String {
    let mut text = sealed.as_bytes().to_vec();
    text[at] = if text[at] == b'A' { b'B' } else { b'A' };
    String::from_utf8(text).expect("text")
}

#[test]
fn for_whatever_cannot_be_read_the_same_is_done_and_said() {
    let broker = watched(Broker::start(1));
    for kind in ["aes256-gcm96", "aes256-cbc"] {
        let body = json!({"type": kind}).to_string();
        broker.good("POST", &format!("keys/app-{kind}"), &body);
        broker.good("POST", &format!("keys/app-{kind}/rotate"), "");
        let body = json!({"plaintext": "c2VjcmV0", "associated_data": "YQ=="}).to_string();
        let sealed = broker.good("POST", &format!("encrypt/app-{kind}"), &body);
        let sealed = sealed["ciphertext"].as_str().expect("a ciphertext");
        let prefix = "vault:v2:".len();
        let last = sealed.trim_end_matches('=').len() - 2;
        let bad = [
            ("nonce or IV", altered(sealed, prefix), "YQ=="),
            ("text", altered(sealed, prefix + 24), "YQ=="),
            ("tag", altered(sealed, last), "YQ=="),
            ("truncated", sealed[..prefix + 40].to_owned(), "YQ=="),
            ("shorter than a tag", "vault:v2:AAAA".to_owned(), "YQ=="),
            ("empty", "vault:v2:".to_owned(), "YQ=="),
            (
                "of another version",
                sealed.replacen(":v2:", ":v1:", 1),
                "YQ==",
            ),
            ("other associated data", sealed.to_owned(), "Yg=="),
            ("no associated data", sealed.to_owned(), ""),
        ];
        for path in ["decrypt", "rewrap"] {
            let path = format!("{path}/app-{kind}");
            let told = bad.each_ref().map(|(_, text, aad)| {
                let before = operations(&broker);
                let body = json!({"ciphertext": text, "associated_data": aad}).to_string();
                let answer = broker.ask("POST", &path, &body);
                (answer, operations(&broker) - before)
            });
            for (told_of, (what, ..)) in told.iter().zip(&bad) {
                assert_eq!(told_of, &told[0], "{path}: {what}");
            }
            let ((status, answer), done) = &told[0];
            let words = "invalid ciphertext: it was altered, or is not of this key";
            assert_eq!((*status, &answer["errors"][0]), (400, &Value::from(words)));
            assert_eq!(*done, 1, "{path}: a look at the token, and no more");
        }
    }
}

/// Off unless a policy names it; then whatever is wrong with the padding looks like a text.
#[test]
fn pkcs1_padding_tells_nothing() {
    const POLICY: &str = r#"
[[policy]]
clients = ["token:app"]
keys = ["label:rsa"]
allow = ["*"]

[[policy]]
clients = ["token:legacy"]
keys = ["label:rsa"]
allow = ["decrypt", "pkcs1-decrypt"]
"#;
    let mut broker = watched(Broker::over(Rig::prepare(Setup::Daemon, 2), POLICY));
    let legacy = broker.rig.hsmux("token-auth create legacy").ok();
    let legacy = legacy.out.trim().to_owned();
    let public = broker.rig.keys.public("rsa");
    let encrypted = |input: &[u8], padding: &str| {
        fs::write(broker.rig.path("input"), input).expect("the input");
        let line = format!(
            "pkeyutl -encrypt -pubin -in input -out output -inkey {}",
            public.display()
        );
        let run = broker.rig.run("openssl").args(&line);
        run.arg("-pkeyopt")
            .arg(format!("rsa_padding_mode:{padding}"))
            .ok();
        let done = broker.rig.run("base64").args("--wrap 0 output").ok();
        format!("vault:v1:{}", done.out)
    };
    let good = encrypted(b"secret", "pkcs1");
    // As long as the modulus, and no padding at all; a signature's; one that never ends.
    let raw = |start: &[u8], fill: u8| {
        let mut block = vec![fill; 256];
        block[..start.len()].copy_from_slice(start);
        encrypted(&block, "none")
    };
    let bad = [
        raw(&[0, 7], 7),
        raw(&[0, 1], 0xff),
        raw(&[0, 2], 0xff),
        raw(&[0, 2, 1, 1, 0], 9),
        "vault:v1:AAAA".to_owned(),
    ];
    let ask = |broker: &Broker, token: &str, text: &str| {
        let body = json!({"ciphertext": text, "padding_scheme": "pkcs1v15"}).to_string();
        broker.ask_as(token, "POST", "decrypt/label:rsa", &body)
    };
    for text in bad.iter().chain([&good]) {
        let (status, answer) = ask(&broker, &broker.token, text);
        assert_eq!(
            (status, &answer["errors"][0]),
            (403, &Value::from("permission denied"))
        );
    }
    let opened = |broker: &Broker, text: &str| {
        let (status, answer) = ask(broker, &legacy, text);
        assert_eq!(status, 200, "{answer}");
        answer["data"]["plaintext"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    // The first of all has the key sign, for what is made up.
    assert_eq!(opened(&broker, &good), "c2VjcmV0");
    for text in bad.iter().chain([&good]) {
        let asked = Instant::now();
        opened(&broker, text);
        assert!(asked.elapsed() >= BEAT, "{text}");
    }
    let watched = |text: &str| {
        let before = operations(&broker);
        let opened = opened(&broker, text);
        assert_eq!(operations(&broker) - before, 1, "one look, at one token");
        opened
    };
    assert_eq!(watched(&good), "c2VjcmV0");
    let texts: Vec<_> = bad.iter().map(|text| watched(text)).collect();
    for (n, text) in texts.iter().enumerate() {
        assert_eq!(*text, opened(&broker, &bad[n]), "the same each time");
        assert!(!texts[..n].contains(text), "{texts:?}");
    }
    // A restart does not give away which texts were made up.
    broker.rig.stop();
    broker.start_again();
    for (text, bad) in texts.iter().zip(&bad) {
        assert_eq!(*text, opened(&broker, bad), "the same after a restart");
    }
}
