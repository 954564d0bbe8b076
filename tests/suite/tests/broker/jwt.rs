//! JSON Web Tokens as bearers: who is let in by them, and by which not.

use std::fs;
use std::time::SystemTime;

use hsmux_suite::{PATIENCE, Rig, Setup, until};
use serde_json::{Value, json};

use crate::rig::Broker;

const SECTION: &str = r#"
[broker]
listen = ["127.0.0.1:0"]
jwt_keys = "jwks.json"
jwt_issuer = "https://login.example"
jwt_audience = "hsmux"

[[policy]]
clients = ["jwt:alice"]
keys = ["app-*"]
allow = ["*"]
"#;

/// How an algorithm's key is made, and how it signs a file.
pub struct Kind {
    pub algorithm: &'static str,
    make: &'static str,
    sign: &'static str,
}

const RSA: &str = "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048";

pub const KINDS: [Kind; 4] = [
    Kind {
        algorithm: "RS256",
        make: RSA,
        sign: "dgst -sha256 -sign",
    },
    Kind {
        algorithm: "PS256",
        make: RSA,
        sign: "dgst -sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:-1 -sign",
    },
    Kind {
        algorithm: "ES256",
        make: "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256",
        sign: "dgst -sha256 -sign",
    },
    Kind {
        algorithm: "EdDSA",
        make: "genpkey -algorithm ED25519",
        sign: "pkeyutl -sign -rawin -inkey",
    },
];

impl Kind {
    /// A new key `NAME.key`; answers its public half as a JWK.
    pub fn make(&self, rig: &Rig, name: &str) -> Value {
        openssl(rig, &format!("{} -out {name}.key", self.make));
        openssl(
            rig,
            &format!("pkey -in {name}.key -pubout -outform DER -out {name}.der"),
        );
        let der = fs::read(rig.path(&format!("{name}.der"))).unwrap();
        let last = |count: usize| base64(&der[der.len() - count..]);
        let mut key = match self.algorithm {
            // SubjectPublicKeyInfo of RSA-2048 ends with 256 bytes, and 02 03 01 00 01.
            "RS256" | "PS256" => json!({
                "kty": "RSA", "n": base64(&der[der.len() - 261..der.len() - 5]), "e": "AQAB",
            }),
            "ES256" => json!({
                "kty": "EC", "crv": "P-256",
                "x": base64(&der[der.len() - 64..der.len() - 32]), "y": last(32),
            }),
            _ => json!({ "kty": "OKP", "crv": "Ed25519", "x": last(32) }),
        };
        key["kid"] = name.into();
        key["alg"] = self.algorithm.into();
        key
    }

    /// A token with these claims, signed by `NAME.key`.
    pub fn token(&self, rig: &Rig, name: &str, claims: &Value) -> String {
        let header = json!({ "alg": self.algorithm, "kid": name });
        self.token_of(rig, name, &message(&header, claims))
    }

    /// The same of its first two parts.
    fn token_of(&self, rig: &Rig, name: &str, message: &str) -> String {
        fs::write(rig.path("message"), message).unwrap();
        let line = if self.algorithm == "EdDSA" {
            format!("{} {name}.key -in message -out signature", self.sign)
        } else {
            format!("{} {name}.key -out signature message", self.sign)
        };
        openssl(rig, &line);
        let signature = fs::read(rig.path("signature")).unwrap();
        let signature = match self.algorithm {
            "ES256" => raw_ecdsa(&signature),
            _ => signature,
        };
        format!("{message}.{}", base64(&signature))
    }
}

/// A token's first two parts.
fn message(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| base64(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

fn openssl(rig: &Rig, line: &str) -> Vec<u8> {
    rig.run("openssl").args(line).ok().out.into_bytes()
}

/// r and s, 32 bytes each, of their DER.
fn raw_ecdsa(der: &[u8]) -> Vec<u8> {
    let (r, rest) = der[4..].split_at(usize::from(der[3]));
    [r, &rest[2..]]
        .iter()
        .flat_map(|number| {
            let mut wide = vec![0; 32];
            wide.extend_from_slice(number);
            wide.split_off(number.len())
        })
        .collect()
}

/// RFC 4648, section 5, without padding.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let bits = part
            .iter()
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - part.len()));
        for digit in 0..=part.len() {
            text.push(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63].into());
        }
    }
    text
}

pub fn claims() -> Value {
    json!({ "sub": "alice", "iss": "https://login.example", "aud": "hsmux", "exp": now() + 3600 })
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_secs()
}

fn with(member: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[member] = value.into();
    claims
}

fn without(member: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().expect("an object").remove(member);
    claims
}

/// A broker that knows a key of each kind, which has the algorithm's name.
fn broker() -> Broker {
    let rig = Rig::empty(Setup::Daemon, 1);
    let keys: Vec<_> = KINDS
        .iter()
        .map(|kind| kind.make(&rig, kind.algorithm))
        .collect();
    write_keys(&rig, &keys);
    Broker::of(rig, SECTION)
}

fn write_keys(rig: &Rig, keys: &[Value]) {
    // One that is no use here is passed over.
    let mut keys = keys.to_vec();
    keys.push(json!({ "kty": "oct", "kid": "secret", "k": "c2VjcmV0" }));
    keys.push(json!({ "kty": "new", "kid": "new" }));
    fs::write(rig.path("jwks.new"), json!({ "keys": keys }).to_string()).unwrap();
    fs::rename(rig.path("jwks.new"), rig.path("jwks.json")).unwrap();
}

pub fn status(broker: &Broker, token: &str) -> u16 {
    broker.ask_as(token, "GET", "keys/app-none", "").0
}

#[test]
fn a_good_jwt_lets_in_and_a_bad_one_does_not() {
    let broker = broker();
    let before = broker.served();
    for kind in &KINDS {
        let token = |claims: &Value| kind.token(&broker.rig, kind.algorithm, claims);
        for good in [
            claims(),
            with("aud", json!(["other", "hsmux"])),
            with("nbf", now() - 5),
            // The issuer's clock may differ by a minute.
            with("exp", now() - 20),
            with("nbf", now() + 40),
        ] {
            let token = token(&good);
            // The second time it is known.
            for _ in 0..2 {
                assert_eq!(status(&broker, &token), 404, "{} {good}", kind.algorithm);
            }
        }
        for bad in [
            with("exp", now() - 3600),
            with("exp", now() - 70),
            with("nbf", now() + 3600),
            with("nbf", now() + 120),
            with("nbf", "soon"),
            with("aud", "other"),
            with("iss", "https://other.example"),
            with("sub", "bob"),
            with("sub", 7),
            with("sub", ""),
            without("exp"),
            without("aud"),
            without("iss"),
            without("sub"),
        ] {
            assert_eq!(
                status(&broker, &token(&bad)),
                403,
                "{} {bad}",
                kind.algorithm
            );
        }
        let good = token(&claims());
        let other = message(
            &json!({ "alg": kind.algorithm, "kid": kind.algorithm }),
            &with("exp", now() + 7200),
        );
        let (_, signature) = good.rsplit_once('.').expect("three parts");
        for altered in [
            format!("{other}.{signature}"),
            good[..good.len() - 4].to_owned(),
            format!("{good}."),
        ] {
            assert_eq!(status(&broker, &altered), 403, "{altered}");
        }
    }
    assert_eq!(broker.served(), before);
}

#[test]
fn a_jwt_is_signed_by_a_key_of_the_issuer() {
    let broker = broker();
    let rsa = &KINDS[0];
    let known = rsa.token(&broker.rig, "RS256", &claims());
    let (message_of_known, signature) = known.rsplit_once('.').expect("three parts");

    // Another key, under the name of a known one, under its own, and under none.
    rsa.make(&broker.rig, "other");
    let mut forged = vec![rsa.token(&broker.rig, "other", &claims())];
    fs::rename(broker.rig.path("RS256.key"), broker.rig.path("kept.key")).unwrap();
    fs::copy(broker.rig.path("other.key"), broker.rig.path("RS256.key")).unwrap();
    forged.push(rsa.token(&broker.rig, "RS256", &claims()));
    // No signature, and whatever says that there is none.
    for none in ["none", "None", "NONE", ""] {
        let message = message(&json!({ "alg": none }), &claims());
        forged.push(format!("{message}."));
        forged.push(format!("{message}.{signature}"));
    }
    // The public key as the secret of an HMAC, in the forms in which it is at hand.
    openssl(&broker.rig, "pkey -in kept.key -pubout -out public.pem");
    for secret in ["public.pem", "RS256.der"] {
        for header in [
            json!({ "alg": "HS256" }),
            json!({ "alg": "HS256", "kid": "RS256" }),
        ] {
            let message = message(&header, &claims());
            fs::write(broker.rig.path("message"), &message).unwrap();
            let key = hsmux_suite::hex(&fs::read(broker.rig.path(secret)).unwrap());
            openssl(
                &broker.rig,
                &format!(
                    "dgst -sha256 -mac HMAC -macopt hexkey:{key} -binary -out signature message"
                ),
            );
            let signature = fs::read(broker.rig.path("signature")).unwrap();
            forged.push(format!("{message}.{}", base64(&signature)));
        }
    }
    // And the secret that is in the set is not one for tokens.
    let by_secret = message(&json!({ "alg": "HS256", "kid": "secret" }), &claims());
    fs::write(broker.rig.path("message"), &by_secret).unwrap();
    openssl(
        &broker.rig,
        "dgst -sha256 -mac HMAC -macopt key:secret -binary -out signature message",
    );
    let mac = fs::read(broker.rig.path("signature")).unwrap();
    forged.push(format!("{by_secret}.{}", base64(&mac)));
    // A key serves its own algorithm only.
    let as_pss = message(&json!({ "alg": "PS256", "kid": "RS256" }), &claims());
    forged.push(format!("{as_pss}.{signature}"));
    for token in &forged {
        assert_eq!(status(&broker, token), 403, "{token}");
    }
    assert_eq!(
        status(&broker, &format!("{message_of_known}.{signature}")),
        404
    );
}

/// RFC 7515, section 4.1.11: what is said to be critical goes beyond what is understood here.
#[test]
fn what_is_critical_and_not_understood_is_refused() {
    let broker = broker();
    let kind = &KINDS[2];
    let token = |more: &Value| {
        let mut header = json!({ "alg": kind.algorithm, "kid": kind.algorithm });
        let members = more.as_object().expect("an object").clone();
        header.as_object_mut().expect("an object").extend(members);
        kind.token_of(&broker.rig, kind.algorithm, &message(&header, &claims()))
    };
    for fine in [json!({}), json!({ "typ": "JWT" }), json!({ "own": 1 })] {
        assert_eq!(status(&broker, &token(&fine)), 404, "{fine}");
    }
    for critical in [
        json!({ "crit": ["own"], "own": 1 }),
        json!({ "crit": ["exp"] }),
        json!({ "crit": ["b64"], "b64": true }),
        json!({ "crit": [] }),
        json!({ "crit": null }),
        json!({ "crit": "own" }),
    ] {
        assert_eq!(status(&broker, &token(&critical)), 403, "{critical}");
    }
}

#[test]
fn the_issuers_keys_change_while_the_broker_runs() {
    let broker = broker();
    let rsa = &KINDS[0];
    let old = rsa.token(&broker.rig, "RS256", &claims());
    assert_eq!(status(&broker, &old), 404);
    let key = rsa.make(&broker.rig, "next");
    let new = rsa.token(&broker.rig, "next", &claims());
    assert_eq!(status(&broker, &new), 403);
    write_keys(&broker.rig, &[key]);
    until("the new key is taken over", PATIENCE, || {
        (status(&broker, &new) == 404).then_some(())
    });
    assert_eq!(status(&broker, &old), 403);
    // What cannot be read is not taken over.
    fs::write(broker.rig.path("jwks.json"), "{").unwrap();
    until("that is said", PATIENCE, || {
        let log = broker.rig.daemon.as_ref().expect("a daemon").log();
        log.contains("keys of the JWTs' issuer are as they were")
            .then_some(())
    });
    assert_eq!(status(&broker, &new), 404);
}
