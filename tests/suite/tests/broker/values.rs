//! What comes out is what the standards say: digests, HMACs and random bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hsmux_suite::{Caller, Rig, SOFTHSM, Setup, SoftHsm, hex};
use serde_json::{Value, json};

use crate::rig::{Broker, OTHERS};

/// What `vault:v1:` is followed by.
pub fn bytes(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("a text");
    let text = text.strip_prefix("vault:v1:").expect("the first version");
    STANDARD.decode(text).expect("base64")
}

/// RFC 4231, test case 6: with the key of 131 bytes `aa`, of the text below.
const MACS: [(&str, &str); 4] = [
    (
        "sha2-224",
        "95e9a0db962095adaebe9b2d6f0dbce2d499f112f2d2b7273fa6870e",
    ),
    (
        "sha2-256",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    ),
    (
        "sha2-384",
        "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c6\
         0c2ef6ab4030fe8296248df163f44952",
    ),
    (
        "sha2-512",
        "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352\
         6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
    ),
];

/// "Test Using Larger Than Block-Size Key - Hash Key First"
const TEXT: &str = "VGVzdCBVc2luZyBMYXJnZXIgVGhhbiBCbG9jay1TaXplIEtleSAtIEhhc2ggS2V5IEZpcnN0";

#[test]
fn hmacs_are_those_of_the_standard_however_their_hash_is_named() {
    let rig = Rig::empty(Setup::Daemon, 1);
    let mut other = Caller::start_on(&rig, SOFTHSM);
    let pin = SoftHsm::pin("hsm1");
    other.ok("open", json!({"label": "hsm1", "pin": pin}));
    let value = "aa".repeat(131);
    other.ok("import", json!({"label": "known", "value": value}));
    drop(other);
    let broker = Broker::over(rig, OTHERS);
    for (hash, expected) in MACS {
        for (path, mut body) in [
            (format!("label:known/{hash}"), json!({})),
            ("label:known".into(), json!({"algorithm": hash})),
            ("label:known".into(), json!({"hash_algorithm": hash})),
        ] {
            body["input"] = TEXT.into();
            let made = broker.good("POST", &format!("hmac/{path}"), &body.to_string());
            assert_eq!(hex(&bytes(&made["hmac"])), expected, "{path} {body}");
            body["hmac"] = made["hmac"].clone();
            let verify = format!("verify/{path}");
            let found = broker.good("POST", &verify, &body.to_string());
            assert_eq!(found["valid"], true, "{path} {body}");
            body["input"] = "AAAA".into();
            let found = broker.good("POST", &verify, &body.to_string());
            assert_eq!(found["valid"], false, "{path} {body}");
        }
    }
    // Where nothing is said.
    let body = json!({"input": TEXT}).to_string();
    let made = broker.good("POST", "hmac/label:known", &body);
    assert_eq!(hex(&bytes(&made["hmac"])), MACS[1].1);
}

/// Of "abc" (FIPS 180-4 and FIPS 202, NIST's example values).
const SUMS: [(&str, &str); 9] = [
    ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
    (
        "sha2-224",
        "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
    ),
    (
        "sha2-256",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    ),
    (
        "sha2-384",
        "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed\
         8086072ba1e7cc2358baeca134c825a7",
    ),
    (
        "sha2-512",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
         2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
    ),
    (
        "sha3-224",
        "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf",
    ),
    (
        "sha3-256",
        "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
    ),
    (
        "sha3-384",
        "ec01498288516fc926459f58e2c6ad8df9b473cb0fc08c2596da7cf0e49be4b2\
         98d88cea927ac7f539f1edf228376d25",
    ),
    (
        "sha3-512",
        "b751850b1a57168a5693cd924b6b096e08f621827444f70d884f5d0240d2712e\
         10e116e9192af3c91a7ec57647e3934057340b4cf408d5a56592f8274eec53f0",
    ),
];

#[test]
fn digests_are_those_of_the_standards_in_both_formats() {
    let broker = Broker::start(1);
    for (hash, expected) in SUMS {
        for (path, algorithm) in [(format!("hash/{hash}"), None), ("hash".into(), Some(hash))] {
            let sum = |format: Option<&str>| {
                let body = json!({"input": "YWJj", "algorithm": algorithm, "format": format});
                let made = broker.good("POST", &path, &body.to_string());
                made["sum"].as_str().expect("a sum").to_owned()
            };
            assert_eq!(sum(None), expected, "{path}");
            assert_eq!(sum(Some("hex")), expected, "{path}");
            let digest = STANDARD.decode(sum(Some("base64"))).expect("base64");
            assert_eq!(hex(&digest), expected, "{path}");
        }
    }
    let body = r#"{"input": "YWJj"}"#;
    assert_eq!(broker.good("POST", "hash", body)["sum"], SUMS[2].1);
    let refused = |path: &str, mut body: Value, words: &str| {
        body["input"] = "YWJj".into();
        broker.refused("POST", path, &body.to_string(), 400, words);
    };
    refused("hash/md5", json!({}), "sha3-512");
    refused("hash", json!({"format": "base32"}), "hex or base64");
}

#[test]
fn random_bytes_are_as_many_as_asked_for_in_both_formats() {
    const ASKED: usize = 48;
    let broker = Broker::start(1);
    let mut seen = Vec::new();
    for format in [None, Some("base64"), Some("hex")] {
        let body = json!({"bytes": ASKED, "format": format}).to_string();
        for _ in 0..2 {
            let made = broker.good("POST", "random", &body);
            let text = made["random_bytes"].as_str().expect("bytes");
            let digits = if format == Some("hex") {
                assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text}");
                text.to_owned()
            } else {
                hex(&STANDARD.decode(text).expect("base64"))
            };
            assert_eq!(digits.len(), 2 * ASKED, "{text}");
            assert!(!seen.contains(&digits), "{text}");
            seen.push(digits);
        }
    }
    let body = r#"{"format": "base32"}"#;
    broker.refused("POST", "random", body, 400, "hex or base64");
}
