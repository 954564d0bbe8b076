//! SoftHSM tokens in a folder of their own, as the members of a pool that only remembers.

use crate::{Coordinator, PoolMember, PoolMembers};
use hsmux_module::{ModuleToken, Options};
use hsmux_token::ck::*;
use hsmux_token::sync::Mutex;
use hsmux_token::{
    Attributes, Batch, Class, Made, Mechanism, Object, ObjectId, Operation, Outcome, Result,
    Secret, Snapshot, Token, TokenInfo,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FOLDER: &str = "HSMUX_TEST_TOKENS";
const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
const PIN: &str = "123456";

/// Runs a test's body in a separate process with SoftHSM tokens: SoftHSM takes its configuration from the
/// environment. `test` is the path of the calling test.
pub fn in_own_process(test: &str, tokens: &[&str], body: impl FnOnce(&Path)) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return body(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tokens")).unwrap();
    let conf = format!(
        "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
        folder.path().join("tokens").display()
    );
    std::fs::write(conf_of(folder.path()), conf).unwrap();
    for token in tokens {
        let init = [
            "--init-token",
            "--free",
            "--label",
            token,
            "--so-pin",
            "12345678",
            "--pin",
            PIN,
        ];
        let output = Command::new("softhsm2-util")
            .args(init)
            .env("SOFTHSM2_CONF", conf_of(folder.path()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let status = again(test, folder.path()).status().unwrap();
    assert!(status.success(), "{test} failed in its own process");
}

/// This test program once more, for one test, with the tokens in `folder`.
pub fn again(test: &str, folder: &Path) -> Command {
    // Not by its path, which a build that runs meanwhile may replace.
    let mut command = Command::new(format!("/proc/{}/exe", std::process::id()));
    command
        .args([&format!("tests::{test}"), "--exact", "--nocapture"])
        .env("SOFTHSM2_CONF", conf_of(folder))
        .env(FOLDER, folder);
    command
}

fn conf_of(folder: &Path) -> PathBuf {
    folder.join("softhsm2.conf")
}

/// Members over the tokens of a folder, and a coordinator.
pub struct Bench {
    pub pool: Arc<Pool>,
    pub coordinator: Coordinator,
}

impl Bench {
    pub fn new(folder: &Path, tokens: &[&str], replicas: usize) -> Self {
        let members = tokens.iter().map(|name| open(folder, name)).collect();
        Self {
            pool: Arc::new(Pool {
                members: Mutex::new(members),
                away: Mutex::default(),
                gone: Mutex::default(),
            }),
            coordinator: Coordinator::open(&folder.join("state"), replicas).unwrap(),
        }
    }

    pub fn change(&self, operation: &Operation) -> Result<Outcome> {
        let deadline = Instant::now() + Duration::from_secs(120);
        self.coordinator.change(&*self.pool, operation, deadline)
    }

    pub fn make(&self, operation: &Operation) -> Vec<Made> {
        self.change(operation).unwrap().into_objects().unwrap()
    }

    /// The objects of each member that applications would see.
    pub fn holdings(&self) -> Vec<Vec<Object>> {
        let members = self.pool.members.lock().clone();
        members
            .iter()
            .map(|member| {
                let snapshot = member.token.as_ref().unwrap().objects().unwrap();
                let mut objects = snapshot.objects.clone();
                objects.retain(|o| {
                    let label = o.attributes.text(CKA_LABEL).unwrap_or_default();
                    !label.starts_with(crate::TRANSPORT_LABEL)
                });
                objects.sort_by_key(|o| o.id);
                objects
            })
            .collect()
    }

    /// The names of the objects, which have to be the same on every member.
    pub fn everywhere(&self) -> Vec<ObjectId> {
        let names: Vec<Vec<ObjectId>> = self
            .holdings()
            .iter()
            .map(|objects| objects.iter().map(|o| o.id).collect())
            .collect();
        for other in &names[1..] {
            assert_eq!(&names[0], other);
        }
        names[0].clone()
    }

    pub fn token(&self, name: &str) -> Arc<dyn Token> {
        let members = self.pool.members.lock();
        let member = members.iter().find(|m| m.name == name).unwrap();
        member.token.clone().unwrap()
    }

    pub fn swap(&self, name: &str, token: Arc<dyn Token>) {
        let mut members = self.pool.members.lock();
        let member = members.iter_mut().find(|m| m.name == name).unwrap();
        member.token = Some(token);
    }
}

/// The members; some may be away.
pub struct Pool {
    pub members: Mutex<Vec<PoolMember>>,
    pub away: Mutex<Vec<String>>,
    /// The objects that were reported as gone, with the member.
    pub gone: Mutex<Vec<(String, ObjectId)>>,
}

impl Pool {
    pub fn leaves(&self, name: &str) {
        self.away.lock().push(name.to_owned());
    }

    pub fn returns(&self, name: &str) -> PoolMember {
        self.away.lock().retain(|away| away != name);
        let members = self.members.lock();
        members.iter().find(|m| m.name == name).unwrap().clone()
    }
}

impl PoolMembers for Pool {
    fn members(&self) -> Vec<PoolMember> {
        let away = self.away.lock();
        let mut members = self.members.lock().clone();
        for member in members.iter_mut().filter(|m| away.contains(&m.name)) {
            member.token = None;
        }
        members
    }

    fn changed(&self, member: &str, _made: &[Object], gone: &[ObjectId]) {
        let gone = gone.iter().map(|id| (member.to_owned(), *id));
        self.gone.lock().extend(gone);
    }
}

pub fn open(folder: &Path, name: &str) -> PoolMember {
    let options = Options {
        module: MODULE.into(),
        slot: format!("pkcs11:token={name}").parse().unwrap(),
        pin: Some(Secret::new(PIN.into())),
        sessions: 2,
        state: folder.join("state"),
        name: name.to_owned(),
        copies: None,
        member: None,
        uri: None,
    };
    PoolMember {
        name: name.to_owned(),
        token: Some(ModuleToken::open(options).unwrap()),
    }
}

/// A token that does something else at some operations.
pub struct Tampered<F> {
    pub inner: Arc<dyn Token>,
    /// `Some`: the answer instead.
    pub tamper: F,
}

impl<F: Fn(&Operation) -> Option<Result<Outcome>> + Send + Sync> Token for Tampered<F> {
    fn info(&self) -> Arc<TokenInfo> {
        self.inner.info()
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        self.inner.objects()
    }

    fn submit(&self, batch: Batch) {
        for request in batch {
            let result = self.execute(&request.operation, request.deadline);
            request.done.complete(result);
        }
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        (self.tamper)(operation).unwrap_or_else(|| self.inner.execute(operation, deadline))
    }
}

/// A token whose vendor gave it no serial number.
pub struct WithoutSerial(pub Arc<dyn Token>);

impl Token for WithoutSerial {
    fn info(&self) -> Arc<TokenInfo> {
        Arc::new(TokenInfo {
            serial: String::new(),
            ..TokenInfo::clone(&self.0.info())
        })
    }

    fn objects(&self) -> Result<Arc<Snapshot>> {
        self.0.objects()
    }

    fn submit(&self, batch: Batch) {
        self.0.submit(batch);
    }

    fn execute(&self, operation: &Operation, deadline: Instant) -> Result<Outcome> {
        self.0.execute(operation, deadline)
    }
}

/// prime256v1, as CKA_EC_PARAMS.
const P256: [u8; 10] = [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];

/// An RSA-2048 or P-256 pair for signing.
pub fn pair(rsa: bool, label: &str) -> Operation {
    let named = Attributes::default()
        .with_flag(CKA_TOKEN, true)
        .with(CKA_LABEL, label.as_bytes().to_vec());
    let public = named.clone().with_flag(CKA_VERIFY, true);
    let (kind, public) = if rsa {
        let bits = public.with_number(CKA_MODULUS_BITS, 2048);
        (CKM_RSA_PKCS_KEY_PAIR_GEN, bits)
    } else {
        (
            CKM_EC_KEY_PAIR_GEN,
            public.with(CKA_EC_PARAMS, P256.to_vec()),
        )
    };
    Operation::GeneratePair {
        mechanism: Mechanism::plain(kind),
        public,
        private: named.with_flag(CKA_SIGN, true).with_flag(CKA_PRIVATE, true),
    }
}

/// A secret key of `bytes` bytes.
pub fn secret(kind: u64, bytes: u64, label: &str) -> Operation {
    Operation::Generate {
        mechanism: Mechanism::plain(kind),
        template: Attributes::default()
            .with_flag(CKA_TOKEN, true)
            .with_number(CKA_VALUE_LEN, bytes)
            .with(CKA_LABEL, label.as_bytes().to_vec()),
    }
}

/// The one of these that has this class.
pub fn of_class(made: &[Made], class: Class) -> ObjectId {
    let found = made.iter().find(|made| made.object.id.class == class);
    found.unwrap().object.id
}
