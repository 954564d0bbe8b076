use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    MemberConfig, PATIENCE, PoolConfig, Process, Program, Run, SOFTHSM, SoftHsm, StandIn, TestKeys,
    built, running, until,
};

/// A program's way to its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// SoftHSM's module and one token, for comparison with the pool.
    Bare,
    /// hsmux's module and a daemon.
    Daemon,
    /// hsmux's module with the pool embedded in the program.
    Embedded,
    /// The same in a program that forbids threads, like those of p11-kit: the members are in its process as well.
    Threadless,
}

/// A temporary folder with tokens `hsm1`, `hsm2`, ... that hold the same [`TestKeys`], a configuration, and a daemon
/// if the set-up has one.
pub struct Rig {
    setup: Setup,
    /// The tokens.
    pub softhsm: SoftHsm,
    /// The keys of every token.
    pub keys: TestKeys,
    /// The contents of `hsmux.toml`; see [`Rig::write_config`].
    pub config: PoolConfig,
    /// The daemon, once started. It ends before the folder is removed.
    pub daemon: Option<Process>,
    folder: TempDir,
}

/// The PIN of applications, different from all tokens' PINs.
const POOL_PIN: &str = "pin-of-the-pool";

impl Rig {
    /// A rig that is ready for use: three members, or one token if it is bare.
    pub fn new(setup: Setup) -> Self {
        let mut rig = Self::prepare(setup, if setup == Setup::Bare { 1 } else { 3 });
        if setup == Setup::Daemon {
            rig.start();
        }
        rig
    }

    /// A rig without a running daemon, so that its configuration or tokens can be changed first.
    pub fn prepare(setup: Setup, members: usize) -> Self {
        let mut rig = Self::empty(setup, members);
        if members > 0 {
            rig.keys = TestKeys::new(&rig.path("keys"));
        }
        for member in &rig.config.members {
            rig.softhsm.import(&member.label, &rig.keys);
        }
        rig
    }

    /// The same with empty tokens.
    pub fn empty(setup: Setup, members: usize) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("hsmux-")
            .tempdir()
            .expect("a temporary folder");
        let softhsm = SoftHsm::new(folder.path());
        let labels: Vec<_> = (1..=members).map(|n| format!("hsm{n}")).collect();
        let member = |label: &String| match setup {
            Setup::Threadless => MemberConfig::softhsm(label).with("isolation = \"thread\""),
            _ => MemberConfig::softhsm(label),
        };
        let mode = match setup {
            Setup::Embedded | Setup::Threadless => "embedded",
            _ => "daemon",
        };
        let rig = Self {
            setup,
            softhsm,
            keys: TestKeys::none(),
            config: PoolConfig {
                pool: "deadline = \"60s\"".to_owned(),
                daemon: "pin = { file = \"pool.pin\" }\n".to_owned(),
                module: format!("mode = \"{mode}\""),
                members: labels.iter().map(member).collect(),
            },
            daemon: None,
            folder,
        };
        for label in &labels {
            rig.softhsm.init(label);
            rig.write_pin(label, &SoftHsm::pin(label));
        }
        rig.write_pin("pool", POOL_PIN);
        rig.write_config();
        rig
    }

    /// Adds a stand-in for a vendor's module, with its tokens as members.
    pub fn stand_in(&mut self, name: &str, labels: &[&str]) -> StandIn {
        let standin = StandIn::new(self.folder.path(), name, labels);
        for member in standin.members() {
            self.write_pin(&member.label, StandIn::PIN);
            self.config.members.push(member);
        }
        standin
    }

    /// Writes a member's PIN for the configuration.
    pub fn write_pin(&self, label: &str, pin: &str) {
        write_secret(&self.path(&format!("{label}.pin")), pin);
    }

    /// Writes `hsmux.toml` from [`Rig::config`].
    pub fn write_config(&self) {
        fs::write(self.path("hsmux.toml"), self.config.to_string()).expect("write hsmux.toml");
    }

    /// Starts the daemon and waits until every member serves.
    pub fn start(&mut self) {
        self.start_daemon();
        self.wait_for_members(self.config.members.len());
    }

    /// Starts the daemon and waits until it answers.
    pub fn start_daemon(&mut self) {
        self.write_config();
        self.start_as_written();
    }

    /// The same with the existing `hsmux.toml`.
    pub fn start_as_written(&mut self) {
        let run = self.hsmux("serve");
        self.start_by(run);
    }

    /// The same by a command of the test.
    pub fn start_by(&mut self, run: Run) {
        let daemon = Process::start("daemon", self.folder.path(), run);
        self.daemon = Some(daemon);
        until("the daemon answers", PATIENCE, || {
            let daemon = self.daemon.as_mut().expect("just started");
            assert!(daemon.running(), "the daemon has ended\n{}", daemon.log());
            (self.hsmux("status --json").finish().code == Some(0)).then_some(())
        });
    }

    /// Waits until this number of members serve, and their keys have no pending proofs.
    pub fn wait_for_members(&self, count: usize) {
        let what = format!("{count} members serve");
        until(&what, PATIENCE, || {
            let status = self.status();
            let serving = members_in(&status, "serving");
            (serving.len() == count && !proving(&status, &serving)).then_some(())
        });
    }

    /// The names of the members in this state by `hsmux status`.
    pub fn members_in(&self, state: &str) -> Vec<String> {
        members_in(&self.status(), state)
    }

    /// The process ids of the workers, in the order of the members.
    pub fn workers(&self) -> Vec<u32> {
        let status = self.status();
        let members = status["members"].as_array().expect("members in the status");
        let pid = |member: &Value| {
            member["pid"]
                .as_u64()
                .and_then(|pid| u32::try_from(pid).ok())
        };
        members.iter().filter_map(pid).collect()
    }

    /// `hsmux status --json`.
    pub fn status(&self) -> Value {
        let status = self.hsmux("status --json").ok();
        serde_json::from_str(&status.out).expect("JSON from hsmux status")
    }

    /// Stops the daemon like an administrator, and checks that it ends successfully.
    pub fn stop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let status = daemon.stop();
            assert!(status.success(), "the daemon: {status}\n{}", daemon.log());
        }
    }

    /// Kills the daemon with SIGKILL; its workers end themselves a little later.
    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
        }
    }

    /// Kills the daemon with SIGKILL, and waits until all workers have ended: a vendor's call may continue for a while.
    pub fn kill_to_the_last(&mut self) {
        let daemon = self.daemon.as_ref().expect("a daemon");
        let workers = daemon.children();
        assert!(!workers.is_empty(), "the daemon has no workers");
        self.kill();
        until("the workers end", PATIENCE, || {
            (!workers.iter().copied().any(running)).then_some(())
        });
    }

    /// Writes [`Rig::config`], and reloads the daemon's configuration (SIGHUP).
    pub fn reload(&self) {
        self.write_config();
        self.daemon.as_ref().expect("a daemon").signal(Signal::HUP);
    }

    /// A path in the rig's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The module for programs of the set-up.
    pub fn module(&self) -> PathBuf {
        match self.setup {
            Setup::Bare => SOFTHSM.into(),
            _ => built(Program::Module),
        }
    }

    /// The label of the token for programs.
    pub fn label(&self) -> &'static str {
        match self.setup {
            Setup::Bare => "hsm1",
            _ => "web",
        }
    }

    /// The PIN for programs.
    pub fn pin(&self) -> String {
        match self.setup {
            Setup::Bare => SoftHsm::pin("hsm1"),
            _ => POOL_PIN.to_owned(),
        }
    }

    /// Whether this is the bare token for comparison.
    pub fn is_bare(&self) -> bool {
        self.setup == Setup::Bare
    }

    /// A program in the rig's folder and environment.
    pub fn run(&self, program: impl AsRef<std::ffi::OsStr>) -> Run {
        Run::new(program)
            .dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("SOFTHSM2_CONF", self.softhsm.conf())
            .env("HSMUX_CONFIG", self.path("hsmux.toml"))
    }

    /// A server with several processes, in the foreground: all end with the first one, even if that is killed.
    pub fn family(&self, command: &[&str]) -> Run {
        let run = self.run("unshare").args("--fork --pid --kill-child --");
        command.iter().fold(run, Run::arg)
    }

    /// `hsmux` with a line of arguments.
    pub fn hsmux(&self, line: &str) -> Run {
        self.run(built(Program::Hsmux)).args(line)
    }

    /// Creates an authority, `ca.crt` with `ca.key`, which certifies a request.
    pub fn certify(&self, request: &str, certificate: &str) {
        self.run("openssl")
            .args("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -subj /CN=ca -out ca.crt")
            .ok();
        self.run("openssl")
            .args("x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial")
            .args(&format!("-in {request} -out {certificate}"))
            .ok();
    }

    /// Writes the public key of a key, by these attributes of its URI, as PEM. pkcs11-tool of Debian 12 sometimes fails
    /// at that, because it reads the curve's name from freed memory.
    pub fn public_key(&self, attributes: &str, file: &str) {
        let uri = format!("pkcs11:token={};{attributes};type=public", self.label());
        self.run("openssl")
            .env("PKCS11_MODULE_PATH", self.module())
            .args("pkey -engine pkcs11 -inform engine -pubin -pubout")
            .args(&format!("-out {file} -in {uri}"))
            .ok();
    }

    /// `pkcs11-tool` on the rig's token, logged in.
    pub fn pkcs11_tool(&self, line: &str) -> Run {
        self.run("pkcs11-tool")
            .arg("--module")
            .arg(self.module())
            .args("--login --pin")
            .arg(self.pin())
            .args(line)
    }
}

fn members_in(status: &Value, state: &str) -> Vec<String> {
    let members = status["members"].as_array().expect("members in the status");
    members
        .iter()
        .filter(|member| member["state"] == state)
        .map(|member| member["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// Whether a key on one of these members has a pending proof.
fn proving(status: &Value, members: &[String]) -> bool {
    let objects = status["pool"]["objects"].as_array().expect("objects");
    let replicas = objects
        .iter()
        .filter_map(|object| object["replicas"].as_array());
    replicas.flatten().any(|replica| {
        let unsettled = replica["state"] == "proving" || replica["state"] == "away";
        unsettled && members.iter().any(|member| replica["member"] == **member)
    })
}

/// Writes a file that only its owner may read.
pub fn write_secret(path: &Path, text: &str) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    fs::File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .expect("write a secret");
}
