//! A proxy module before SoftHSM that stays slow after another process has changed keys, like SoftHSM before 2.4.0.
//! One test only, because SoftHSM starts and ends once in the process.

#![allow(unsafe_code)] // std::env::set_var.

#[allow(dead_code)]
#[path = "standin/fixture.rs"]
mod fixture;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fixture::{StandIn, soon, until};
use hsmux_module::{KeyWriter, ModuleToken, Options};
use hsmux_token::ck::*;
use hsmux_token::{Attributes, Mechanism, Object, Operation, Result, Token, Uri, Verb};

const SOFTHSM: &str = "/usr/lib/softhsm/libsofthsm2.so";
const PIN: &str = "1234";
const IN_USE: &str = "in use";

/// The minimum duration of an operation after another process's change.
const SLOW: Duration = Duration::from_millis(200);

/// A proxy module before SoftHSM, which has one token.
fn before_softhsm() -> StandIn {
    let standin = StandIn::new("");
    let folder = standin.folder.path();
    let conf = folder.join("softhsm2.conf");
    std::fs::create_dir(folder.join("tokens")).unwrap();
    let tokens = format!("directories.tokendir = {}/tokens\n", folder.display());
    std::fs::write(&conf, tokens + "log.level = ERROR\n").unwrap();
    // SAFETY: this process has one test, and no other thread yet.
    unsafe { std::env::set_var("SOFTHSM2_CONF", conf) };
    run("softhsm2-util --init-token --free --label old --so-pin 12345678 --pin 1234");
    order(&standin, "churn = { base_us = 200_000, each_ns = 0 }");
    standin
}

/// Sets the proxy module's behaviour from now on.
fn order(standin: &StandIn, settings: &str) {
    let text = format!("forward = \"{SOFTHSM}\"\n[[token]]\n{settings}\n");
    let new = standin.folder.path().join("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, standin.folder.path().join("libtoken.so.toml")).unwrap();
}

/// Runs another process.
fn run(line: &str) {
    let mut words = line.split(' ');
    let done = Command::new(words.next().unwrap()).args(words).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{line}: {done:?}");
}

fn tool(line: &str) {
    run(&format!(
        "pkcs11-tool --module {SOFTHSM} --token-label old --login --pin {PIN} {line}"
    ));
}

fn options(standin: &StandIn) -> Options {
    let slot = Uri {
        token: Some("old".into()),
        ..Uri::default()
    };
    Options {
        slot,
        ..standin.with_pin(PIN)
    }
}

/// The token, and operations with its key.
struct User {
    token: Arc<ModuleToken>,
    encrypt: Operation,
}

impl User {
    fn open(standin: &StandIn) -> Self {
        let token = ModuleToken::open(options(standin)).unwrap();
        let known = token.objects().unwrap();
        let mut objects = known.objects.iter();
        let named = |object: &&Object| object.attributes.text(CKA_LABEL).as_deref() == Some(IN_USE);
        let key = objects.find(named).expect("the key in use").id;
        let encrypt = Operation::Use {
            verb: Verb::Encrypt,
            key: key.into(),
            mechanism: Mechanism::with_bytes(CKM_AES_CBC_PAD, vec![7; 16]),
            data: vec![1; 32].into(),
        };
        Self { token, encrypt }
    }

    fn encrypt(&self) -> Result<Duration> {
        let start = Instant::now();
        self.token.execute(&self.encrypt, soon())?;
        Ok(start.elapsed())
    }

    /// On a busy machine single operations may be slow, but not all.
    fn is_fast(&self) {
        until("a fast operation", || self.encrypt().unwrap() < SLOW);
    }

    fn is_slow(&self) {
        for _ in 0..3 {
            let took = self.encrypt().unwrap();
            assert!(took >= SLOW, "{took:?}");
        }
    }
}

#[test]
fn a_foreign_change_of_keys_makes_it_slow_until_it_starts_anew() {
    let standin = before_softhsm();
    KeyWriter::open(options(&standin))
        .unwrap()
        .add(IN_USE)
        .unwrap();

    let user = User::open(&standin);
    user.is_fast();
    tool("--keygen --key-type AES:32 --label other --id 77");
    user.is_slow();
    drop(user);
    let user = User::open(&standin);
    user.is_fast();
    tool("--delete-object --type secrkey --label other");
    user.is_slow();
    drop(user);

    // The process's own changes do not count as foreign.
    let user = User::open(&standin);
    let template = Attributes::default()
        .with_number(CKA_CLASS, CKO_SECRET_KEY)
        .with_number(CKA_KEY_TYPE, CKK_AES)
        .with_flag(CKA_TOKEN, true)
        .with(CKA_ID, vec![9])
        .with_number(CKA_VALUE_LEN, 32);
    let mechanism = Mechanism::plain(CKM_AES_KEY_GEN);
    let generate = Operation::Generate {
        mechanism,
        template,
    };
    let made = user.token.execute(&generate, soon()).unwrap();
    user.is_fast();
    let object = made.into_objects().unwrap()[0].object.id.into();
    let destroy = Operation::Destroy { object };
    user.token.execute(&destroy, soon()).unwrap();
    user.is_fast();

    // Its other faults work as well, and an error leaves nothing active.
    order(&standin, "sign_error = 0x32");
    assert_eq!(user.encrypt().unwrap_err().code(), Some(0x32));
    order(&standin, "leak = 50_000_000");
    let before = resident();
    user.encrypt().unwrap();
    let after = resident();
    assert!(after >= before + 45_000_000, "{before} {after}");
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() * 1024
}
