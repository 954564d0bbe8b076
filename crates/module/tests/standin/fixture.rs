//! A copy of the stand-in module, and its settings.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hsmux_module::{ModuleToken, Options};
use hsmux_token::ck::*;
use hsmux_token::{
    Class, Mechanism, ObjectId, ObjectRef, Operation, Result, Secret, Token, Uri, Verb,
};

pub struct StandIn {
    pub folder: tempfile::TempDir,
}

impl StandIn {
    /// A module with one token, `label = "token"`, and these settings.
    pub fn new(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let standin = Self { folder };
        std::fs::copy(built(), standin.module()).unwrap();
        standin.set(settings);
        standin
    }

    pub fn module(&self) -> PathBuf {
        self.folder.path().join("libtoken.so")
    }

    /// Replaces the settings.
    pub fn set(&self, settings: &str) {
        let state = self.folder.path().join("token");
        let text = format!(
            "[[token]]\nlabel = \"token\"\nstate = '{}'\n{settings}\n",
            state.display()
        );
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.folder.path().join("libtoken.so.toml")).unwrap();
    }

    /// The options to open it with a PIN.
    pub fn with_pin(&self, pin: &str) -> Options {
        Options {
            module: self.module(),
            slot: Uri::default(),
            pin: Some(Secret::new(pin.into())),
            sessions: 2,
            state: self.folder.path().join("state"),
            name: "member".into(),
            copies: None,
            member: None,
            uri: None,
        }
    }

    pub fn open(&self, pin: &str) -> Result<Arc<ModuleToken>> {
        ModuleToken::open(self.with_pin(pin))
    }

    /// The PINs that the token has seen, one line for each, without the process id.
    pub fn shown(&self) -> Vec<String> {
        let log = self.folder.path().join("token/token.log");
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let lines = log.lines().filter(|line| !line.starts_with("PIN "));
        lines
            .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
            .collect()
    }
}

/// The module, as the workspace builds it.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = std::env::var_os("HSMUX_BUILT").map_or_else(build, PathBuf::from);
        folder.join("libhsmux_standin.so")
    })
}

fn build() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap();
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "hsmux-standin", "--target-dir"])
        .arg(folder.parent().unwrap())
        .status()
        .unwrap();
    assert!(status.success());
    folder.to_owned()
}

/// The private key with this label.
pub fn private(token: &ModuleToken, label: &str) -> ObjectId {
    let known = token.objects().unwrap();
    let found = known.objects.iter().find(|object| {
        object.id.class == Class::PRIVATE_KEY
            && object.attributes.text(CKA_LABEL).as_deref() == Some(label)
    });
    found.unwrap().id
}

pub fn sign(key: ObjectId, digest: [u8; 32]) -> Operation {
    Operation::Use {
        verb: Verb::Sign,
        key: ObjectRef::Token(key),
        mechanism: Mechanism::plain(CKM_ECDSA),
        data: digest.to_vec().into(),
    }
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

/// Polls until the condition holds.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = soon();
    while !so() {
        assert!(Instant::now() < deadline, "not by the deadline: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
