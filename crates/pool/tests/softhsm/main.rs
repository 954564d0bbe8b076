//! Proofs on a real token: every usage that a key may have, on SoftHSM.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_module::{ModuleToken, Options as ModuleOptions};
use hsmux_pool::{ObjectStatus, Options, Pool, Seat};
use hsmux_token::{Attributes, Mechanism, Operation, Result, Secret, Token, ck};

const PIN: &str = "123456";
const FOLDER: &str = "HSMUX_TEST_PROOFS";
const TOKENS: [&str; 2] = ["one", "two"];

/// SoftHSM takes its configuration from the environment: the test runs in a process of its own.
#[test]
fn keys_of_every_usage_prove_themselves() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return prove(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::create_dir(&tokens).unwrap();
    let conf = folder.path().join("softhsm2.conf");
    std::fs::write(
        &conf,
        format!("directories.tokendir = {}\n", tokens.display()),
    )
    .unwrap();
    for token in TOKENS {
        let arguments = [
            "--init-token",
            "--free",
            "--so-pin",
            "12345678",
            "--pin",
            PIN,
            "--label",
        ];
        let made = Command::new("softhsm2-util")
            .args(arguments)
            .arg(token)
            .env("SOFTHSM2_CONF", &conf)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    let own = Command::new(std::env::current_exe().unwrap())
        .args([
            "keys_of_every_usage_prove_themselves",
            "--exact",
            "--nocapture",
        ])
        .env("SOFTHSM2_CONF", &conf)
        .env(FOLDER, folder.path())
        .status()
        .unwrap();
    assert!(own.success());
}

fn prove(folder: &Path) {
    let tokens = TOKENS.map(|token| open(folder, token).unwrap());
    let mut expected = Vec::new();
    for (label, usage) in [("ec sign", ck::CKA_SIGN), ("ec derive", ck::CKA_DERIVE)] {
        make_pair(&*tokens[0], ck::CKM_EC_KEY_PAIR_GEN, label, usage);
        expected.push((label, 1));
    }
    for (label, usage) in [
        ("rsa sign", ck::CKA_SIGN),
        ("rsa decrypt", ck::CKA_DECRYPT),
        ("rsa unwrap", ck::CKA_UNWRAP),
    ] {
        make_pair(&*tokens[0], ck::CKM_RSA_PKCS_KEY_PAIR_GEN, label, usage);
        expected.push((label, 1));
    }
    let secrets: [(&str, u64, &[u64]); 5] = [
        (
            "aes cipher",
            ck::CKK_AES,
            &[ck::CKA_ENCRYPT, ck::CKA_DECRYPT],
        ),
        ("aes encrypt", ck::CKK_AES, &[ck::CKA_ENCRYPT]),
        ("aes wrap", ck::CKK_AES, &[ck::CKA_WRAP, ck::CKA_UNWRAP]),
        ("aes mac", ck::CKK_AES, &[ck::CKA_SIGN, ck::CKA_VERIFY]),
        (
            "hmac",
            ck::CKK_GENERIC_SECRET,
            &[ck::CKA_SIGN, ck::CKA_VERIFY],
        ),
    ];
    for (label, key_type, usages) in secrets {
        for token in &tokens {
            make_secret(&**token, key_type, label, usages);
        }
        expected.push((label, 2));
    }
    drop(tokens);
    let seats = TOKENS.map(|token| seat(folder, token));
    let pool = Pool::start(Options::default(), seats.to_vec()).unwrap();
    let status = pool.status();
    for (label, members) in expected {
        let key = status
            .objects
            .iter()
            .find(|object| object.label == label && object.class != "public key");
        let key: &ObjectStatus = key.unwrap_or_else(|| panic!("{label} is not there"));
        assert_eq!(key.members.len(), members, "{label}: {:?}", key.replicas);
    }
    // A proof leaves nothing behind.
    for name in TOKENS {
        let left = pool.member(name).unwrap().objects().unwrap();
        assert!(
            left.objects
                .iter()
                .all(|object| object.attributes.get(ck::CKA_LABEL).is_some())
        );
    }
}

fn open(folder: &Path, token: &str) -> Result<Arc<ModuleToken>> {
    ModuleToken::open(ModuleOptions {
        module: "/usr/lib/softhsm/libsofthsm2.so".into(),
        slot: format!("pkcs11:token={token}").parse().unwrap(),
        pin: Some(Secret::new(PIN.into())),
        sessions: 2,
        state: folder.join("state"),
        name: token.into(),
        copies: None,
        member: None,
        uri: None,
    })
}

fn seat(folder: &Path, token: &'static str) -> Seat {
    let folder = folder.to_path_buf();
    Seat {
        name: token.into(),
        member: token.into(),
        weight: 1,
        timeout: Duration::from_secs(60),
        connector: Arc::new(move || -> Result<Arc<dyn Token>> { Ok(open(&folder, token)?) }),
    }
}

fn make(token: &dyn Token, operation: &Operation) {
    let deadline = Instant::now() + Duration::from_secs(60);
    token
        .execute(operation, deadline)
        .unwrap_or_else(|error| panic!("{error}: {operation:?}"));
}

/// A pair whose private key may do one thing only.
fn make_pair(token: &dyn Token, kind: u64, label: &str, usage: u64) {
    let named = || {
        Attributes::default()
            .with(ck::CKA_LABEL, label.to_owned())
            .with(ck::CKA_ID, label.to_owned())
            .with_flag(ck::CKA_TOKEN, true)
    };
    let mut private = named().with_flag(ck::CKA_PRIVATE, true);
    for other in [
        ck::CKA_SIGN,
        ck::CKA_DECRYPT,
        ck::CKA_UNWRAP,
        ck::CKA_DERIVE,
    ] {
        private.set_flag(other, other == usage);
    }
    let public = if kind == ck::CKM_EC_KEY_PAIR_GEN {
        named().with(
            ck::CKA_EC_PARAMS,
            &b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"[..],
        )
    } else {
        named()
            .with_number(ck::CKA_MODULUS_BITS, 2048)
            .with(ck::CKA_PUBLIC_EXPONENT, &[1, 0, 1][..])
    };
    let mechanism = Mechanism::plain(kind);
    make(
        token,
        &Operation::GeneratePair {
            mechanism,
            public,
            private,
        },
    );
}

/// The same secret key wherever it is made.
fn make_secret(token: &dyn Token, key_type: u64, label: &str, usages: &[u64]) {
    let mut template = Attributes::default()
        .with_number(ck::CKA_CLASS, ck::CKO_SECRET_KEY)
        .with_number(ck::CKA_KEY_TYPE, key_type)
        .with(ck::CKA_LABEL, label.to_owned())
        .with(ck::CKA_ID, label.to_owned())
        .with(ck::CKA_VALUE, vec![label.len() as u8; 32])
        .with_flag(ck::CKA_TOKEN, true)
        .with_flag(ck::CKA_PRIVATE, true);
    for usage in [
        ck::CKA_ENCRYPT,
        ck::CKA_DECRYPT,
        ck::CKA_WRAP,
        ck::CKA_UNWRAP,
        ck::CKA_SIGN,
        ck::CKA_VERIFY,
    ] {
        template.set_flag(usage, usages.contains(&usage));
    }
    make(
        token,
        &Operation::Create {
            template,
            near: None,
        },
    );
}
