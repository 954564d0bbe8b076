//! A SoftHSM token in its own folder, and its users.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hsmux_token::{Error, Kind, Result};

use super::child::Child;
use super::{Bare, ChurnOptions, KeyChangeProcess, LoadedBroker};

/// The label of the token, and of the key in use.
pub const LABEL: &str = "churn";
/// The environment variable with the token's PIN.
pub const PIN: &str = "HSMUX_CHURN_PIN";

/// Programs that a measurement starts.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `hsmux`, for creating tokens and for the broker.
    pub hsmux: PathBuf,
    /// `hsmux-lab`, for [`super::Part`].
    pub lab: PathBuf,
}

/// A token in its own folder.
#[derive(Clone)]
pub struct SoftHsmStore {
    folder: PathBuf,
    programs: Programs,
    softhsm: PathBuf,
    /// The module for users of the token.
    module: PathBuf,
    pin: String,
}

impl SoftHsmStore {
    /// Creates the folder and a token in it. `softhsm` is SoftHSM's module. Users of the token load `old`:
    /// a SoftHSM before 2.4.0, or its stand-in (tests/standin), which forwards to SoftHSM.
    pub fn new(
        folder: &Path,
        programs: &Programs,
        softhsm: &Path,
        old: Option<&Path>,
    ) -> Result<Self> {
        let mut pin = [0; 8];
        getrandom::fill(&mut pin).map_err(|e| Error::pool(Kind::Environment, e.to_string()))?;
        let store = Self {
            folder: folder.to_owned(),
            programs: programs.clone(),
            softhsm: softhsm.to_owned(),
            module: old.unwrap_or(softhsm).to_owned(),
            pin: u64::from_be_bytes(pin).to_string(),
        };
        let tokens = folder.join("tokens");
        fs::create_dir_all(&tokens).map_err(|e| failed(&tokens, &e))?;
        let tokens = tokens.display();
        store.write(
            "softhsm2.conf",
            &format!(
                "directories.tokendir = {tokens}\nobjectstore.backend = file\nlog.level = ERROR\n"
            ),
        )?;
        let control = format!(
            "forward = \"{}\"\n[defaults]\nchurn = {{}}\n",
            softhsm.display()
        );
        store.write("standin.toml", &control)?;
        store.write("pin", &store.pin)?;
        store.initialise()?;
        Ok(store)
    }

    fn initialise(&self) -> Result<()> {
        let pin = format!("env:{PIN}");
        let hsmux = &self.programs.hsmux;
        let mut command = self.command(hsmux);
        command
            .args(["token", "init", "--label", LABEL])
            .args(["--pin", &pin, "--so-pin", &pin]);
        command.arg("--module").arg(&self.softhsm);
        command.arg("--state").arg(self.state());
        let done = command.output().map_err(|e| failed(hsmux, &e))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        let message = format!("no token could be made: {}", said.trim());
        Err(Error::pool(Kind::Environment, message))
    }

    /// Another process that adds and removes keys through SoftHSM, and creates the key in use.
    pub fn keys(&self) -> Result<KeyChangeProcess> {
        self.part("keys", &self.softhsm).map(KeyChangeProcess)
    }

    /// A process that uses the key without hsmux.
    pub fn bare(&self, options: &ChurnOptions) -> Result<Bare> {
        Bare::start(self.clone(), options)
    }

    /// A broker over the token with so many worker processes, and its clients.
    pub fn broker(&self, workers: usize, options: &ChurnOptions) -> Result<LoadedBroker> {
        self.configure(workers)?;
        let mut command = self.command("setpriv".as_ref());
        // It ends with this process, even if that is killed.
        command
            .args(["--pdeathsig", "TERM", "--"])
            .arg(&self.programs.hsmux)
            .args(["broker", "--log", "error"]);
        LoadedBroker::start(&mut command, &self.folder.join("broker.sock"), options)
    }

    /// Writes the configuration of a pool of this token; returns its path.
    pub fn configure(&self, workers: usize) -> Result<PathBuf> {
        self.write("hsmux.toml", &self.configuration(workers))?;
        Ok(self.folder.join("hsmux.toml"))
    }

    fn configuration(&self, workers: usize) -> String {
        let (folder, module) = (self.folder.display(), self.module.display());
        let user = rustix::process::getuid().as_raw();
        let environment = self.environment();
        let environment =
            environment.map(|(name, value)| format!("{name} = \"{}\"", value.display()));
        let environment = environment.join(", ");
        format!(
            r#"[pool]
label = "churn"
[daemon]
socket = "{folder}/hsmux.sock"
state = "{folder}/broker"
[broker]
socket = "{folder}/broker.sock"
[[policy]]
clients = ["uid:{user}"]
keys = ["label:{LABEL}"]
allow = ["encrypt", "decrypt", "raw-cbc"]
[[token]]
module = "{module}"
uri = "pkcs11:token={LABEL}"
pin = {{ file = "{folder}/pin" }}
workers = {workers}
sessions = 1
env = {{ {environment} }}
"#
        )
    }

    /// Starts the process that uses the key without hsmux.
    pub(super) fn bare_part(&self) -> Result<Child> {
        self.part("bare", &self.module)
    }

    /// Starts a part of the measurement as a process.
    fn part(&self, part: &str, module: &Path) -> Result<Child> {
        let mut command = self.command(&self.programs.lab);
        command.args([super::part::COMMAND, part]).arg(module);
        Child::start(command.arg(self.state()))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env(PIN, &self.pin)
            .env("HSMUX_CONFIG", self.folder.join("hsmux.toml"))
            .envs(self.environment());
        command
    }

    fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("SOFTHSM2_CONF", self.folder.join("softhsm2.conf")),
            ("HSMUX_STANDIN", self.folder.join("standin.toml")),
        ]
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Writes a file that only its owner may read.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        let mut options = fs::File::options();
        options.create(true).write(true).truncate(true).mode(0o600);
        let file = options.open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| failed(&path, &e))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::pool(Kind::Environment, format!("{}: {error}", path.display()))
}
