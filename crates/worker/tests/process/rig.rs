//! Modules to start workers of, and what the kernel knows of the workers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hsmux_module::Options;
use hsmux_pool::Connector;
use hsmux_token::{
    Batch, Class, Done, Mechanism, ObjectId, Operation, Outcome, Request, Result, Secret, Token,
    Uri, Verb, ck,
};
use hsmux_worker::ProcessConnector;

/// Says to this program, started again, that it is to be a worker.
pub const MARK: &str = "HSMUX_TEST_IS_WORKER";

/// Long enough for a loaded machine; nothing waits for it when all is well.
pub const LONG: Duration = Duration::from_secs(120);

/// A stand-in module with a control file of its own, and its breaker's state.
pub struct StandIn {
    folder: tempfile::TempDir,
}

impl StandIn {
    pub fn new(module: &str, token: &str) -> Self {
        let standin = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::copy(built(), standin.module()).unwrap();
        standin.set(module, token);
        standin
    }

    /// Settings of the module and of its token from now on.
    pub fn set(&self, module: &str, token: &str) {
        let control = self.folder.path().join("module.so.toml");
        let next = control.with_extension("next");
        let state = self.state();
        let state = state.display();
        let text = format!("{module}\n[[token]]\nlabel = 'm1'\nstate = '{state}'\n{token}\n");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, control).unwrap();
    }

    pub fn module(&self) -> PathBuf {
        self.folder.path().join("module.so")
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn connector(&self) -> ProcessConnector {
        connector(&self.module(), "m1", "1234", &self.state())
    }

    pub fn connect(&self) -> Result<Arc<dyn Token>> {
        self.connector().connect()
    }

    /// The lines that the token wrote of PINs it was shown.
    pub fn logins(&self) -> usize {
        let log = std::fs::read_to_string(self.state().join("m1.log"));
        log.map_or(0, |log| {
            log.lines().filter(|l| l.starts_with("C_Login")).count()
        })
    }
}

/// A worker of this program's own.
pub fn connector(module: &Path, label: &str, pin: &str, state: &Path) -> ProcessConnector {
    std::fs::create_dir_all(state).unwrap();
    let program = std::env::current_exe().unwrap();
    ProcessConnector::new(program, options(module, label, pin, state))
        .environment(vec![(MARK.into(), "1".into())])
}

pub fn options(module: &Path, label: &str, pin: &str, state: &Path) -> Options {
    Options {
        module: module.to_owned(),
        slot: Uri {
            token: Some(label.into()),
            ..Uri::default()
        },
        pin: Some(Secret::new(pin.into())),
        sessions: 2,
        state: state.to_owned(),
        name: label.into(),
        copies: None,
        member: None,
        uri: None,
    }
}

/// The stand-in's file: `make test` has built it, otherwise cargo is asked once.
pub fn built() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = std::env::var_os("HSMUX_BUILT").map_or_else(build, PathBuf::from);
        folder.join("libhsmux_standin.so")
    })
}

fn build() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap();
    let status = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", "hsmux-standin", "--target-dir"])
        .arg(folder.parent().unwrap())
        .status();
    assert!(status.unwrap().success());
    folder.to_owned()
}

/// C_Sign with the token's EC key.
pub fn sign(token: &dyn Token) -> Operation {
    let snapshot = token.objects().unwrap();
    let key = snapshot.objects.iter().find(|object| {
        object.id.class == Class::PRIVATE_KEY
            && object.attributes.number(ck::CKA_KEY_TYPE) == Some(ck::CKK_EC)
    });
    sign_with(key.expect("an EC key").id)
}

pub fn sign_with(key: ObjectId) -> Operation {
    Operation::Use {
        verb: Verb::Sign,
        key: key.into(),
        mechanism: Mechanism::plain(ck::CKM_ECDSA),
        data: vec![1; 32].into(),
    }
}

pub fn soon() -> Instant {
    Instant::now() + LONG
}

pub type OutcomeReceiver = std::sync::mpsc::Receiver<Result<Outcome>>;

pub fn submit(token: &dyn Token, operation: Operation) -> OutcomeReceiver {
    let (tell, told) = std::sync::mpsc::channel();
    token.submit(Batch::from_iter([Request {
        behalf: None,
        operation,
        deadline: soon(),
        done: Done::new(move |result| tell.send(result).unwrap_or_default()),
    }]));
    told
}

/// This process's worker whose command line or memory map names the module, dead ones included.
pub fn worker_of(standin: &StandIn) -> Option<u32> {
    let module = standin.module();
    let module = module.to_str().unwrap();
    workers(std::process::id()).into_iter().find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(module))
    })
}

/// The children of a process, zombies included (proc_pid_stat(5)).
pub fn workers(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Whether there is such a process, or the zombie of one.
pub fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = soon();
    while !so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}
