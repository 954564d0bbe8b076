//! Configuration: one TOML file, every mistake with its line.

mod access_log;
mod acme;
mod backend_check;
mod broker;
mod duration;
mod files;
mod gateway;
mod member;
mod mistake;
mod network;
mod node;
mod parse;
mod pin;
mod pool;
mod print;
mod reader;
pub mod schema;
mod sections;
mod site;
mod site_backends;
#[cfg(test)]
mod tests;
mod traces;
mod users;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hsmux_token::permissions::TrustedOwner;
use hsmux_token::{Error, Kind, Uri};

pub use access_log::{AccessLog, AccessLogFormat, AccessLogTarget};
pub use acme::Acme;
pub use backend_check::Check;
pub use broker::{Action, Allowance, BrokerSection, JwkSet, JwkUrl, Jwt, Limit, Limits, Rule, Tls};
pub use duration::read as parse_duration;
pub use files::{ExternalReferences, NewErrors, check, new_errors, untrusted_files};
pub use gateway::GatewaySection;
pub use mistake::{Mistake, Severity};
pub use network::Network;
pub use node::{Allowed, Identity, NodeSection, no_peer, node_name};
pub use pin::PinSource;
pub use pool::{ENVELOPE_LIFE, LoneKeys, Policy, PoolSection};
pub use print::{example, full_example, markdown};
pub use site::{Certificate, Clients, ObjectSource, Site};
pub use site_backends::{BackendUrl, ProxyVersion, Scheme, SiteBackends};
pub use traces::Traces;
pub use users::{Account, User, group_id};

/// A valid configuration. Its paths are resolved relative to the file's folder.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub file: PathBuf,
    /// The text of the file.
    pub text: Arc<str>,
    /// `[pool]`.
    pub pool: PoolSection,
    /// The listener of `[daemon]`, then each `[[listener]]`.
    pub listeners: Vec<Listener>,
    /// `[admin]`.
    pub admin: Admin,
    /// `[daemon] state`.
    pub state: PathBuf,
    /// `[daemon] worker`.
    pub worker: Option<PathBuf>,
    /// `[module]`.
    pub module: ModuleSection,
    /// `[audit]`.
    pub audit: AuditSection,
    /// `[traces]`, if present.
    pub traces: Option<Traces>,
    /// `[broker]` with each `[[policy]]` and each `[[limit]]`, if present.
    pub broker: Option<BrokerSection>,
    /// `[gateway]` with each `[[site]]`, if present.
    pub gateway: Option<GatewaySection>,
    /// `[node]` with each `[[peer]]`, if present.
    pub node: Option<NodeSection>,
    /// Each `[[token]]`.
    pub tokens: Vec<Member>,
    /// Modules, PIN files and other files, for [`check`].
    pub external_references: ExternalReferences,
}

/// A configuration file, as far as it could be read.
#[derive(Clone, PartialEq, Debug)]
pub struct Draft {
    /// The configuration, without the settings that are wrong.
    pub config: Config,
    /// Mistakes of the file.
    pub mistakes: Vec<Mistake>,
}

/// A unix socket and its access rights.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Socket {
    /// Its path.
    pub path: PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// Its group.
    pub group: Option<String>,
    /// The only users who may connect besides root and the daemon's own; empty: all whom the mode permits.
    pub allow_users: Vec<User>,
}

/// A listener for applications.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Its socket.
    pub socket: Socket,
    /// URIs of the objects that it shows; empty: all but the broker's keys.
    pub keys: Vec<Uri>,
    /// Whether the broker's keys are shown like others: for the broker of another host.
    pub broker_keys: bool,
    /// Whether it refuses changes of tokens.
    pub read_only: bool,
    /// Whether workers may serve connections directly.
    pub direct: bool,
    /// What C_Login requires.
    pub login: Login,
    /// The pool's PIN; `None`: the first member's.
    pub pin: Option<PinSource>,
}

/// What C_Login requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Login {
    /// The pool's PIN.
    Pin,
    /// No PIN: access to the socket is enough.
    Peer,
}

/// What starts the process of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StartedBy {
    /// The daemon, which also restarts it.
    #[default]
    Daemon,
    /// A unit of its own. The daemon accepts the link of its process.
    Systemd,
}

/// `[admin]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admin {
    /// Its socket. `allow_users` may connect besides root and the daemon's user; empty: nobody else.
    pub socket: Socket,
}

impl Admin {
    /// Where the process of a service connects that a unit starts. Pools that share a folder have other names here.
    pub fn link_socket(&self, service: &str) -> PathBuf {
        let path = &self.socket.path;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{stem}-{service}.sock"))
    }
}

/// `[module]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleSection {
    /// Whether the pool runs within the application.
    pub embedded: bool,
    /// The socket of the daemon.
    pub socket: PathBuf,
}

/// `[audit]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditSection {
    /// The file of the trail.
    pub file: PathBuf,
    /// Whether each use of a key is recorded.
    pub keys: bool,
    /// Refuses operations that must be recorded while the trail cannot be written.
    pub stops: bool,
    /// How long lines may stay without a signed checkpoint.
    pub checkpoint: Duration,
}

/// `[[token]]`: one token of a vendor's module, or another host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name in commands and logs.
    pub name: String,
    /// Another host, by host and port. It has no module, and its name is the one in its certificate.
    pub node: Option<String>,
    /// The vendor's module.
    pub module: PathBuf,
    /// The token of the module.
    pub uri: Uri,
    /// Its user PIN.
    pub pin: Option<PinSource>,
    /// Where the module is loaded.
    pub isolation: Isolation,
    /// Operations that one worker runs at once; nothing if the kind of module decides.
    pub sessions: Option<u32>,
    /// The number of workers.
    pub workers: u32,
    /// Its share of the work.
    pub weight: u32,
    /// How long one operation may take.
    pub timeout: Duration,
    /// Environment of its workers.
    pub env: Vec<(String, String)>,
    /// The sandbox of its module.
    pub sandbox: Sandbox,
    /// Files and folders that its module may write, besides those of its sandbox.
    pub folders: Vec<PathBuf>,
    /// The user of its workers; `None`: the daemon's.
    pub user: Option<User>,
    /// Whether it is watched; `None`: as in `[pool]`, and false for a card.
    pub watch: Option<bool>,
    /// Whether its secret keys are trusted while members before it are away.
    pub trusted: bool,
    /// Whether keys in use are copied as session objects; `None`: for tokens that are known to be faster with it.
    pub copies: Option<bool>,
    /// Its position in the file.
    pub line: usize,
}

/// Where a vendor's module is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// In a worker process.
    Process,
    /// In this process.
    Thread,
}

/// The sandbox of a module, within its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sandbox {
    /// Chosen by the name of the module's file.
    Auto,
    /// No network, no other program, only files of the system and its own: SoftHSM.
    File,
    /// The same, with access to pcscd for cards: OpenSC.
    Pcsc,
    /// Network and all files, but no other program.
    Network,
    /// Anything, but no new privileges.
    None,
}

impl Draft {
    /// Returns the configuration if it has no errors.
    pub fn good(self) -> Result<Config, Vec<Mistake>> {
        if self.mistakes.is_empty() {
            Ok(self.config)
        } else {
            Err(self.mistakes)
        }
    }
}

impl Config {
    /// `[daemon] worker`, if it is set and no other user can change it.
    pub fn worker_program(&self) -> Result<Option<PathBuf>, Error> {
        let verify = |worker: &PathBuf| TrustedOwner::RootOrSelf.verify(worker);
        let verified = self.worker.as_ref().map(verify).transpose();
        verified.map_err(|e| Error::pool(Kind::Environment, format!("[daemon] worker: {e}")))
    }

    /// The section of a listener: the first one is that of `[daemon]`.
    pub fn section_of(&self, listener: &Listener) -> &'static str {
        if self.listeners.first() == Some(listener) {
            "[daemon]"
        } else {
            "[[listener]]"
        }
    }

    /// Returns the member of this name.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.tokens.iter().find(|member| member.name == name)
    }
}

/// Reads a configuration file, but not the files that it names: see [`check`].
/// Refuses a file that other users can change, itself or by a folder on its path.
pub fn load(file: &Path) -> Result<Config, Vec<Mistake>> {
    draft(file).map_err(|mistake| vec![mistake])?.good()
}

/// Reads a configuration file as far as possible.
/// Commands that look for a running daemon use it, since the daemon keeps its last valid configuration.
pub fn draft(file: &Path) -> Result<Draft, Mistake> {
    draft_of(TrustedOwner::RootOrSelf, file)
}

/// Like [`draft`], for a file of these owners only.
pub fn draft_of(owner: TrustedOwner, file: &Path) -> Result<Draft, Mistake> {
    let text = read(owner, file)?;
    Ok(parse::config(file, &text))
}

fn read(owner: TrustedOwner, file: &Path) -> Result<String, Mistake> {
    let opened = owner.open(file);
    opened.and_then(std::io::read_to_string).map_err(|error| {
        let message = match error.raw_os_error() {
            Some(_) => format!("cannot read it: {error}"),
            None => error.to_string(),
        };
        Mistake::whole(file, message)
    })
}

/// Reads a configuration from its text; `file` is its path, for messages and relative paths.
pub fn parse(file: &Path, text: &str) -> Result<Config, Vec<Mistake>> {
    parse::config(file, text).good()
}

/// The state folder of commands without a configuration: `/var/lib/hsmux` for root, else `hsmux` in the user's
/// state folder (XDG base directory specification). It is fixed because refused PINs are recorded there.
pub fn default_state() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/hsmux".into());
    }
    let folder = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(folder.join("hsmux"))
}

/// The configuration's path: `$HSMUX_CONFIG`, else `/etc/hsmux/hsmux.toml` if it exists, else
/// `hsmux/hsmux.toml` in the user's configuration folder (XDG base directory specification).
pub fn default_path() -> PathBuf {
    if let Some(path) = std::env::var_os("HSMUX_CONFIG").filter(|path| !path.is_empty()) {
        return path.into();
    }
    let system = PathBuf::from("/etc/hsmux/hsmux.toml");
    let folder = std::env::var_os("XDG_CONFIG_HOME")
        .filter(|folder| Path::new(folder).is_absolute())
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
    match folder {
        Some(folder) if !system.exists() => folder.join("hsmux/hsmux.toml"),
        _ => system,
    }
}
