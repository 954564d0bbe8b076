//! Tokens for tests.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hsmux_module::{ModuleToken, Options, init_token, slots};
use hsmux_token::ck::*;
use hsmux_token::sync::Mutex;
use hsmux_token::{
    Attributes, Made, Mechanism, Operation, Outcome, Result, Secret, Token, TokenFlags, Uri,
};

pub const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
pub const PIN: &str = "a-user-pin";
pub const SO_PIN: &str = "an-so-pin";

/// The folder of SoftHSM's tokens and of the breaker's records.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().join("tokens");
        std::fs::create_dir(&tokens).unwrap();
        let conf = folder.path().join("softhsm2.conf");
        let text = format!(
            "directories.tokendir = {}\nlog.level = ERROR\n",
            tokens.display()
        );
        std::fs::write(&conf, text).unwrap();
        // SAFETY: every test calls this first, and waits for the first caller.
        unsafe { std::env::set_var("SOFTHSM2_CONF", conf) };
        folder
    });
    folder.path()
}

pub fn state() -> PathBuf {
    folder().join("state")
}

/// The options for the token with a test's name.
pub fn options(label: &str) -> Options {
    Options {
        module: MODULE.into(),
        slot: label_of(label),
        pin: Some(Secret::new(PIN.into())),
        sessions: 2,
        state: state(),
        name: label.into(),
        copies: None,
        member: None,
        uri: None,
    }
}

pub fn label_of(label: &str) -> Uri {
    Uri {
        token: Some(label.into()),
        ..Uri::default()
    }
}

/// Initialises a token with this label.
pub fn create(label: &str) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let options = options(label);
    let _turn = ONE_AT_A_TIME.lock();
    let free = slots(Path::new(MODULE))
        .unwrap()
        .into_iter()
        .find(|s| !s.token.flags.contains(TokenFlags::TOKEN_INITIALIZED))
        .expect("SoftHSM always has a free slot");
    let options = Options {
        slot: Uri {
            slot_id: Some(free.id),
            ..Uri::default()
        },
        ..options
    };
    let made = init_token(&options, label, &Secret::new(SO_PIN.into())).unwrap();
    assert_eq!(made.label, label);
}

/// A new token, open.
pub fn token(label: &str) -> Arc<ModuleToken> {
    create(label);
    ModuleToken::open(options(label)).unwrap()
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

pub trait Run {
    fn run(&self, operation: Operation) -> Result<Outcome>;

    fn made(&self, operation: Operation) -> Vec<Made> {
        self.run(operation).unwrap().into_objects().unwrap()
    }

    fn bytes(&self, operation: Operation) -> Result<bytes::Bytes> {
        self.run(operation)?.into_bytes()
    }
}

impl Run for ModuleToken {
    fn run(&self, operation: Operation) -> Result<Outcome> {
        self.execute(&operation, soon())
    }
}

/// A template for a token key.
pub fn on_token(id: u8) -> Attributes {
    Attributes::default()
        .with_flag(CKA_TOKEN, true)
        .with(CKA_ID, vec![id])
        .with(CKA_LABEL, format!("key {id}"))
}

pub fn rsa_pair(id: u8) -> Operation {
    Operation::GeneratePair {
        mechanism: Mechanism::plain(CKM_RSA_PKCS_KEY_PAIR_GEN),
        public: on_token(id)
            .with_number(CKA_MODULUS_BITS, 2048)
            .with(CKA_PUBLIC_EXPONENT, vec![1, 0, 1])
            .with_flag(CKA_VERIFY, true)
            .with_flag(CKA_ENCRYPT, true),
        private: on_token(id)
            .with_flag(CKA_PRIVATE, true)
            .with_flag(CKA_SENSITIVE, true)
            .with_flag(CKA_SIGN, true)
            .with_flag(CKA_DECRYPT, true),
    }
}

/// DER of the object identifier of P-256.
pub const P256: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

pub fn ec_pair(id: u8) -> Operation {
    ec_pair_of(on_token(id))
}

/// A key pair whose halves have these attributes and the usual ones.
pub fn ec_pair_of(half: Attributes) -> Operation {
    Operation::GeneratePair {
        mechanism: Mechanism::plain(CKM_EC_KEY_PAIR_GEN),
        public: half
            .clone()
            .with(CKA_EC_PARAMS, P256.to_vec())
            .with_flag(CKA_VERIFY, true),
        private: half
            .with_flag(CKA_PRIVATE, true)
            .with_flag(CKA_SENSITIVE, true)
            .with_flag(CKA_SIGN, true)
            .with_flag(CKA_DERIVE, true),
    }
}

pub fn aes(id: u8) -> Operation {
    Operation::Generate {
        mechanism: Mechanism::plain(CKM_AES_KEY_GEN),
        template: on_token(id)
            .with_number(CKA_VALUE_LEN, 32)
            .with_flag(CKA_ENCRYPT, true)
            .with_flag(CKA_DECRYPT, true)
            .with_flag(CKA_SIGN, true)
            .with_flag(CKA_VERIFY, true)
            .with_flag(CKA_WRAP, true)
            .with_flag(CKA_UNWRAP, true),
    }
}
