//! Configuration: one TOML file, every mistake with its line.

mod acme;
mod backend_check;
mod behind;
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
#[cfg(test)]
mod tests;
mod traces;
mod users;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hsmux_token::permissions::TrustedOwner;
use hsmux_token::{Error, Kind, Uri};

pub use acme::Acme;
pub use backend_check::Check;
pub use behind::{Backend, Behind, ProxyVersion, Scheme};
pub use broker::{Action, Allowance, BrokerSection, JwkSet, JwkUrl, Jwt, Limit, Limits, Rule, Tls};
pub use duration::read as parse_duration;
pub use files::{NewErrors, Outside, check, new_errors};
pub use gateway::GatewaySection;
pub use mistake::{Mistake, Severity};
pub use network::Network;
pub use node::{Allowed, Identity, NodeSection, no_peer, node_name};
pub use pin::PinSource;
pub use pool::{ENVELOPE_LIFE, LoneKeys, Policy, PoolSection};
pub use print::{example, full_example, markdown};
pub use site::{Certificate, Clients, Place, Site};
pub use traces::Traces;
pub use users::{Account, User, group_id};

/// A configuration file, read and found good. Paths are already relative to its folder.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub file: PathBuf,
    /// What stood in it.
    pub text: Arc<str>,
    /// `[pool]`.
    pub pool: PoolSection,
    /// `[daemon]`'s own listener first, then each `[[listener]]`.
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
    /// `[traces]`, if it is there.
    pub traces: Option<Traces>,
    /// `[broker]` with each `[[policy]]` and each `[[limit]]`, if it is there.
    pub broker: Option<BrokerSection>,
    /// `[gateway]` with each `[[site]]`, if it is there.
    pub gateway: Option<GatewaySection>,
    /// `[node]` with each `[[peer]]`, if it is there.
    pub node: Option<NodeSection>,
    /// Each `[[token]]`.
    pub tokens: Vec<Member>,
    /// Modules, PIN files and so on, as [`check`] looks at them.
    pub outside: Outside,
}

/// A configuration file, as far as it could be read.
#[derive(Clone, PartialEq, Debug)]
pub struct Draft {
    /// What has a mistake is as if it did not stand there.
    pub config: Config,
    /// What is wrong with the file.
    pub mistakes: Vec<Mistake>,
}

/// A unix socket and who may open it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Socket {
    /// Where it is.
    pub path: PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// Its group.
    pub group: Option<String>,
    /// The only users who may connect besides root and the daemon's own; empty: whom the mode lets in.
    pub allow_users: Vec<User>,
}

/// A listener for applications.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Its socket.
    pub socket: Socket,
    /// Which objects it shows; empty: all but the broker's keys.
    pub keys: Vec<Uri>,
    /// Whether the broker's keys are as all others: for the broker of another host.
    pub broker_keys: bool,
    /// Whether it refuses to change tokens.
    pub read_only: bool,
    /// Whether connections may be handed over to workers.
    pub direct: bool,
    /// What C_Login needs.
    pub login: Login,
    /// The pool's PIN; `None`: the first member's.
    pub pin: Option<PinSource>,
}

/// What C_Login needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Login {
    /// The pool's PIN.
    Pin,
    /// Nothing: that the connecting user may connect is enough.
    Peer,
}

/// `[admin]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admin {
    /// Its socket. `allow_users` are let in besides root and the daemon's user; empty: nobody is.
    pub socket: Socket,
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
    /// Where the lines go.
    pub file: PathBuf,
    /// Whether each use of a key is a line.
    pub keys: bool,
    /// Whether operations that need a line are refused while lines cannot be written.
    pub stops: bool,
    /// How long lines may stay without a signed checkpoint.
    pub checkpoint: Duration,
}

/// `[[token]]`: one token of a vendor's module, or another host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name in commands and logs.
    pub name: String,
    /// Another host, by host and port; then there is no module, and the name is that of its certificate.
    pub node: Option<String>,
    /// The vendor's module.
    pub module: PathBuf,
    /// Which of its tokens.
    pub uri: Uri,
    /// Its user PIN.
    pub pin: Option<PinSource>,
    /// Where the module is loaded.
    pub isolation: Isolation,
    /// Operations that one worker runs at once.
    pub sessions: u32,
    /// How many workers.
    pub workers: u32,
    /// Its share.
    pub weight: u32,
    /// How long one operation may take.
    pub timeout: Duration,
    /// Environment of its workers.
    pub env: Vec<(String, String)>,
    /// What its module may do to the system.
    pub sandbox: Sandbox,
    /// Files and folders that its module may write, besides those of its sandbox.
    pub folders: Vec<PathBuf>,
    /// The user of its workers; `None`: that of the daemon.
    pub user: Option<User>,
    /// Whether it is watched; `None`: as `[pool]` says, and no card.
    pub watch: Option<bool>,
    /// Whether its secret keys are trusted while members before it are away.
    pub trusted: bool,
    /// Whether keys in use are copied as session objects; `None`: where that is known to be faster.
    pub copies: Option<bool>,
    /// Where it stands in the file.
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

/// What a module may do to the system, from within its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sandbox {
    /// By the name of the module's file.
    Auto,
    /// No network, no program, no file but the system's and its own: SoftHSM.
    File,
    /// The same, for cards that a service of the machine reaches: OpenSC.
    Pcsc,
    /// The network and all files, no program.
    Network,
    /// Anything, but no new privileges.
    None,
}

impl Draft {
    /// The configuration, if nothing is wrong with it.
    pub fn good(self) -> Result<Config, Vec<Mistake>> {
        if self.mistakes.is_empty() {
            Ok(self.config)
        } else {
            Err(self.mistakes)
        }
    }
}

impl Config {
    /// `[daemon] worker`, if it is given and no other user can change it.
    pub fn worker_program(&self) -> Result<Option<PathBuf>, Error> {
        let verify = |worker: &PathBuf| TrustedOwner::RootOrSelf.verify(worker);
        let verified = self.worker.as_ref().map(verify).transpose();
        verified.map_err(|e| Error::pool(Kind::Environment, format!("[daemon] worker: {e}")))
    }

    /// The member of that name.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.tokens.iter().find(|member| member.name == name)
    }
}

/// Reads a configuration file. Looks at nothing but the file itself: the modules and PIN files that
/// it names are [`check`]'s to see, and may be out of the reach of an application.
///
/// A file that other users can change, itself or by a folder on its way, is refused.
pub fn load(file: &Path) -> Result<Config, Vec<Mistake>> {
    draft(file).map_err(|mistake| vec![mistake])?.good()
}

/// Reads a configuration file as far as it can be read. A daemon that runs goes on with what it read before, and
/// so whoever looks for it has to get by with this.
pub fn draft(file: &Path) -> Result<Draft, Mistake> {
    draft_of(TrustedOwner::RootOrSelf, file)
}

/// The same with a file of these owners only.
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

/// Reads a configuration from its text; `file` says where it is, for messages and relative paths.
pub fn parse(file: &Path, text: &str) -> Result<Config, Vec<Mistake>> {
    parse::config(file, text).good()
}

/// The state folder of commands without a configuration: the same wherever they are called, for a
/// refused PIN is on record there. `/var/lib/hsmux` for root, else `hsmux` in the user's state folder
/// (XDG base directory specification); `None` for a user without a home.
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

/// Where the configuration is: `$HSMUX_CONFIG`, else `/etc/hsmux/hsmux.toml` if it is there, else
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
