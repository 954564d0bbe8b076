//! Which backend it is to be: by the environment and the configuration file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hsmux_config::{Config, Draft, Isolation, Login, Mistake};
use hsmux_pool::{ClientSession, Options};
use hsmux_replicate::{self as replicate, Hold};
use hsmux_token::permissions::TrustedOwner;
use hsmux_token::{Error, Kind, Result, Secret, ck};
use hsmux_wire::Endpoint;

use crate::backend::{Backend, DaemonBackend, EmbeddedBackend};
use crate::worker;

/// Names the daemon's socket; then no configuration file is read.
const SOCKET: &str = "HSMUX_SOCKET";

/// The one configuration of privileged programs.
const SYSTEM: &str = "/etc/hsmux/hsmux.toml";

/// How long an operation may take where no configuration file says.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

/// The location of the pool as an application gives it; otherwise the environment decides.
#[derive(Clone, Default, Debug)]
pub struct PoolLocation {
    /// The daemon's socket; then no configuration file is read.
    pub socket: Option<PathBuf>,
    /// The configuration file.
    pub config: Option<PathBuf>,
}

impl PoolLocation {
    fn socket(&self) -> Option<PathBuf> {
        let said = self.socket.is_some() || self.config.is_some();
        let environment = || std::env::var_os(SOCKET).map(PathBuf::from);
        let socket = if said {
            self.socket.clone()
        } else {
            environment()
        };
        socket.filter(|path| !path.as_os_str().is_empty())
    }
}

/// The backend that the source, the environment and the configuration ask for.
///
/// `threads` says whether the application lets the library start some.
pub fn backend(source: &PoolLocation, threads: bool) -> Result<Box<dyn Backend>> {
    if is_privileged() {
        return privileged(source);
    }
    if let Some(socket) = source.socket() {
        let endpoint = Endpoint::from(Path::new(&socket));
        return Ok(Box::new(DaemonBackend::new(endpoint, DEFAULT_DEADLINE)?));
    }
    let file = source
        .config
        .clone()
        .unwrap_or_else(hsmux_config::default_path);
    let draft = hsmux_config::draft(&file).map_err(|mistake| of(&[mistake]))?;
    if draft.config.module.embedded {
        let config = draft.good().map_err(|mistakes| of(&mistakes))?;
        return embedded(&config, threads);
    }
    reached(daemon(&draft)?, &draft.mistakes)
}

/// The daemon where the file says that it is.
fn daemon(draft: &Draft) -> Result<DaemonBackend> {
    let endpoint = Endpoint::from(&*draft.config.module.socket);
    DaemonBackend::new(endpoint, draft.config.pool.deadline)
}

/// Mistakes in the file alone are no failure: a running daemon keeps its earlier configuration. If no daemon answers,
/// they are reported.
fn reached(daemon: DaemonBackend, mistakes: &[Mistake]) -> Result<Box<dyn Backend>> {
    if !mistakes.is_empty() {
        daemon.reach().map_err(|_| of(mistakes))?;
    }
    for mistake in mistakes {
        crate::debug::say(mistake);
    }
    Ok(Box::new(daemon))
}

/// True if the program has rights that its user lacks: set-uid, set-gid or file capabilities (AT_SECURE in
/// getauxval(3)). Then the user's environment decides nothing.
#[allow(unsafe_code)]
pub fn is_privileged() -> bool {
    // SAFETY: it reads a number that the kernel gave this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The daemon of root's configuration. No vendor's module is loaded into such a program.
fn privileged(source: &PoolLocation) -> Result<Box<dyn Backend>> {
    let refuse = |what: &str| {
        mistake(format!(
            "{what} in a privileged program (set-uid, set-gid or with file capabilities): it uses the \
             daemon of {SYSTEM} only"
        ))
    };
    if source.socket.is_some() || source.config.is_some() {
        return Err(refuse("`socket` and `config` of the provider are refused"));
    }
    let draft = hsmux_config::draft_of(TrustedOwner::Root, Path::new(SYSTEM));
    let draft = draft.map_err(|mistake| of(&[mistake]))?;
    if draft.config.module.embedded {
        return Err(refuse("[module] mode = \"embedded\" is refused"));
    }
    reached(daemon(&draft)?.verified(), &draft.mistakes)
}

fn of(mistakes: &[Mistake]) -> Error {
    let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    mistake(lines.join("\n"))
}

/// A read-only pool cannot be embedded, which [`hsmux_config::load`] has seen to.
fn embedded(config: &Config, threads: bool) -> Result<Box<dyn Backend>> {
    if !threads {
        no_workers(config)?;
    }
    let pin = pin(config)?;
    let options = Options {
        threads,
        // No listener is there that could name them.
        hides_broker_keys: true,
        ..Options::from(config)
    };
    let seats = hsmux_worker::seats(config, &worker::program(config)?);
    // Several processes may embed the same pool: whoever changes a token writes the journal then.
    let (pool, _) = replicate::start(options, seats, Hold::WhileChanging, None)?;
    let session = Arc::new(ClientSession::new(pool));
    Ok(Box::new(EmbeddedBackend::new(
        session,
        pin,
        config.pool.deadline,
    )))
}

/// The answers of worker processes are read by a thread, which an application may forbid with
/// CKF_LIBRARY_CANT_CREATE_OS_THREADS (PKCS#11 3.0, section 5.4.1).
fn no_workers(config: &Config) -> Result<()> {
    let mut members = config.tokens.iter();
    let Some(member) = members.find(|member| member.isolation == Isolation::Process) else {
        return Ok(());
    };
    Err(Error::request(
        Kind::Vendor(ck::CKR_NEED_TO_CREATE_THREADS),
        format!(
            "{}: member {} has isolation = \"process\", which needs a thread, and the application \
             forbids threads: say isolation = \"thread\", or use the daemon",
            config.file.display(),
            member.name
        ),
    ))
}

/// The PIN of C_Login: that of the first listener, or the first member's.
fn pin(config: &Config) -> Result<Option<Secret>> {
    let listener = config.listeners.first();
    if listener.is_some_and(|listener| listener.login == Login::Peer) {
        return Ok(None);
    }
    let first = || config.tokens.iter().find_map(|member| member.pin.as_ref());
    match listener
        .and_then(|listener| listener.pin.as_ref())
        .or_else(first)
    {
        Some(source) => source.read().map(Some),
        None => Err(mistake(format!(
            "{}: no PIN for C_Login: neither [daemon] nor a [[token]] has pin. Add pin = {{ file = \"...\" }} there; hsmux \
             config check verifies the file",
            config.file.display()
        ))),
    }
}

fn mistake(message: impl Into<String>) -> Error {
    Error::request(Kind::Environment, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::initialise;
    use crate::rv::Rv;

    fn config(isolation: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let (file, module) = (folder.path().join("hsmux.toml"), folder.path().join("m.so"));
        std::fs::write(&module, "").unwrap();
        let text = format!(
            "[pool]\nlabel = \"web\"\n[daemon]\nlogin = \"peer\"\nstate = \"state\"\n\
             [module]\nmode = \"embedded\"\n\
             [[token]]\nname = \"hsm1\"\nmodule = {module:?}\nuri = \"pkcs11:token=hsm1\"\n\
             isolation = {isolation:?}\n"
        );
        std::fs::write(&file, text).unwrap();
        hsmux_config::load(&file).unwrap()
    }

    #[test]
    fn worker_processes_need_a_thread() {
        let refused = initialise(|| embedded(&config("process"), false));
        assert_eq!(refused, Err(Rv(ck::CKR_NEED_TO_CREATE_THREADS)));
        assert!(embedded(&config("thread"), false).is_ok());
    }
}
