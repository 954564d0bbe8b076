//! Checks that need the file system: missing modules, PIN files, folders and users.

mod trust;

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hsmux_token::permissions::{SecretReaders, TrustedOwner};

pub use self::trust::untrusted_files;
use super::parse;
use super::reader::ExternalReference;
use super::users::group_id;
use super::{Config, Draft, Listener, Login, Member, Mistake, NodeSection, PinSource, Severity};

/// Finds every mistake of a configuration file, including those that only this machine can tell.
/// If none [is an error](Mistake::is_error), the daemon can start.
pub fn check(file: &Path) -> Vec<Mistake> {
    let text = match super::read(TrustedOwner::RootOrSelf, file) {
        Ok(text) => text,
        Err(mistake) => return vec![mistake],
    };
    let Draft { config, mistakes } = parse::config(file, &text);
    let good = mistakes.is_empty().then_some(&config);
    let mut found = Findings {
        file,
        user: good.and_then(daemons_user),
        others: state_owner(&config),
        services: trust::services(&config),
        mistakes,
        of_sites: Vec::new(),
    };
    found.look_at_all(&config);
    if let Some(config) = good {
        found.consider(config);
    }
    found.in_order()
}

/// Errors that prevent a configuration from replacing the running one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NewErrors {
    /// Errors of [`check`] that the running configuration does not have. A module that vanished under a running member
    /// is in both, and does not block other changes. All [`untrusted_files`] are here, too.
    pub all: Vec<Mistake>,
    /// Errors of files that a `[[site]]` names. They block only this site.
    pub of_sites: Vec<Mistake>,
}

/// Finds the errors of a configuration that is to replace the running one.
pub fn new_errors(config: &Config, running: &Config) -> NewErrors {
    let mut known = Findings::none(running);
    known.look_at_all(running);
    // Members that were added after the file was read.
    for member in running.tokens.iter().filter(|member| member.node.is_none()) {
        known.look(
            member.line,
            &ExternalReference::Module(member.module.clone()),
        );
        if let Some(pin) = &member.pin {
            known.look(member.line, &ExternalReference::Pin(pin.clone()));
        }
    }
    let mut found = Findings::none(config);
    found.look_at_all(config);
    let is_known = |new: &Mistake| known.mistakes.iter().any(|old| old.message == new.message);
    found
        .mistakes
        .retain(|mistake| mistake.is_error() && !is_known(mistake));
    // Though the running configuration has it.
    for (line, named) in &config.external_references.0 {
        if let ExternalReference::Trust(service, file) = named {
            found.untrusted(*line, service, file);
        }
    }
    let mut of_sites = std::mem::take(&mut found.of_sites);
    of_sites.retain(Mistake::is_error);
    NewErrors {
        all: found.in_order(),
        of_sites,
    }
}

/// References to files, users and groups, each with its line. They follow from the settings, so they do not make two
/// configurations differ.
#[derive(Clone, Debug)]
pub struct ExternalReferences(pub(super) Vec<(usize, ExternalReference)>);

impl PartialEq for ExternalReferences {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The daemon's user, as far as root can tell.
fn daemons_user(config: &Config) -> Option<u32> {
    let root = rustix::process::geteuid().is_root();
    root.then(|| state_owner(config)).flatten()
}

/// The owner of the state folder: the daemon's user.
fn state_owner(config: &Config) -> Option<u32> {
    std::fs::metadata(&config.state)
        .ok()
        .map(|folder| folder.uid())
}

struct Findings<'a> {
    file: &'a Path,
    /// The user who needs the secrets, if known.
    user: Option<u32>,
    /// The daemon's user, if this process may be another one's.
    others: Option<u32>,
    /// Services that have a user of their own, by their sections.
    services: Vec<(&'static str, u32)>,
    mistakes: Vec<Mistake>,
    of_sites: Vec<Mistake>,
}

impl<'a> Findings<'a> {
    fn none(config: &'a Config) -> Self {
        Self {
            file: &config.file,
            user: daemons_user(config),
            others: None,
            services: trust::services(config),
            mistakes: Vec::new(),
            of_sites: Vec::new(),
        }
    }

    fn in_order(mut self) -> Vec<Mistake> {
        self.mistakes.append(&mut self.of_sites);
        self.mistakes.sort_by_key(|mistake| mistake.line);
        self.mistakes.dedup();
        self.mistakes
    }

    fn look_at_all(&mut self, config: &Config) {
        for (line, named) in &config.external_references.0 {
            self.look(*line, named);
        }
    }

    fn add(&mut self, line: usize, severity: Severity, message: impl Into<String>) {
        self.mistakes.push(Mistake {
            file: self.file.to_owned(),
            line,
            severity,
            message: message.into(),
        });
    }

    fn error(&mut self, line: usize, message: impl Into<String>) {
        self.add(line, Severity::Error, message);
    }

    fn warn(&mut self, line: usize, message: impl Into<String>) {
        self.add(line, Severity::Warning, message);
    }

    fn look(&mut self, line: usize, named: &ExternalReference) {
        match named {
            ExternalReference::Module(module) => match std::fs::metadata(module) {
                Err(e) => self.error(line, format!("module {}: {e}", module.display())),
                Ok(meta) if !meta.is_file() => {
                    self.error(line, format!("module {} is not a file", module.display()));
                }
                Ok(_) => {
                    if let Err(e) = TrustedOwner::RootOrSelf.verify(module) {
                        self.error(line, format!("module {}: {e}", module.display()));
                    }
                }
            },
            ExternalReference::File(file) => self.file(line, file),
            ExternalReference::Trust(service, file) => self.trust(line, service, file),
            ExternalReference::Beside(named, other) if other.exists() => self.look(line, named),
            ExternalReference::Secret(file, readers, user) => {
                self.secret(line, file, *readers, user.or(self.user));
            }
            ExternalReference::Later(file) => {
                if let Err(e) = std::fs::File::open(file) {
                    self.warn(line, format!("{}: {e}", file.display()));
                }
            }
            ExternalReference::AppendedFile(file) => self.appended_file(line, file),
            ExternalReference::Served(folder) => match std::fs::metadata(folder) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    let folder = folder.display();
                    self.warn(line, format!("{folder} is not there yet: 404 until it is"));
                }
                Err(e) => self.error(line, format!("{}: {e}", folder.display())),
                Ok(meta) if !meta.is_dir() => {
                    self.error(line, format!("{} is not a folder", folder.display()));
                }
                Ok(_) => {}
            },
            ExternalReference::Awaited(file) => match std::fs::File::open(file) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    let file = file.display();
                    let message = format!(
                        "{file} is not there yet: its site is not served by it until an ACME client has brought it"
                    );
                    self.warn(line, message);
                }
                Err(e) => self.error(line, format!("{}: {e}", file.display())),
                Ok(_) => {}
            },
            ExternalReference::Pin(pin) => self.pin(line, pin),
            ExternalReference::User(what, user) if user.id().is_none() => {
                self.error(line, format!("{what}: there is no user {user}"));
            }
            ExternalReference::Group(group) if group_id(group).is_none() => {
                self.error(line, format!("group: there is no group {group}"));
            }
            ExternalReference::OfSite(named) => {
                let others = std::mem::take(&mut self.mistakes);
                self.look(line, named);
                let found = std::mem::replace(&mut self.mistakes, others);
                self.of_sites.extend(found);
            }
            ExternalReference::Beside(..)
            | ExternalReference::User(..)
            | ExternalReference::Group(_) => {}
            ExternalReference::Socket(path) => self.socket(line, path),
            ExternalReference::Folder(what, path) => self.folder(line, what, path),
        }
    }

    fn file(&mut self, line: usize, file: &Path) {
        let Err(e) = std::fs::File::open(file) else {
            return;
        };
        let message = format!("{}: {e}", file.display());
        // Other users cannot read the daemon's own files.
        let may_not = e.kind() == ErrorKind::PermissionDenied;
        if may_not && !rustix::process::geteuid().is_root() {
            self.warn(line, format!("{message}; the daemon's user may read it"));
        } else {
            self.error(line, message);
        }
    }

    fn appended_file(&mut self, line: usize, file: &Path) {
        let folder = file.parent().unwrap_or(Path::new("/"));
        let is_there = |path| match std::fs::metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            // Whether others can look into the folder does not matter.
            Err(_) => Some(None),
            Ok(metadata) => Some(Some(metadata)),
        };
        match (is_there(folder), is_there(file)) {
            (None, _) => {
                let folder = folder.display();
                let message = format!("access_log: the folder {folder} is not there; make it");
                self.error(line, message);
            }
            (_, Some(Some(metadata))) if !metadata.is_file() => {
                let file = file.display();
                self.error(line, format!("access_log: {file} is not a regular file"));
            }
            _ => {}
        }
    }

    fn pin(&mut self, line: usize, pin: &PinSource) {
        match pin.read() {
            Err(e) if matches!(pin, PinSource::File(_)) => self.error(line, e.to_string()),
            // The command has not the daemon's environment and credentials.
            Err(e) => self.warn(line, e.to_string()),
            Ok(_) => {
                if let PinSource::File(file) = pin {
                    self.secret(line, file, SecretReaders::Owner, self.user);
                }
            }
        }
    }

    fn secret(&mut self, line: usize, file: &Path, readers: SecretReaders, user: Option<u32>) {
        match readers.check(file, user) {
            Err(e) if e.raw_os_error().is_none() => self.error(line, e.to_string()),
            Err(_) => self.file(line, file),
            Ok(()) => {}
        }
    }

    fn socket(&mut self, line: usize, path: &Path) {
        // sun_path, unix(7).
        if path.as_os_str().len() > 107 {
            let message = format!("{}: a socket's path has at most 107 bytes", path.display());
            self.error(line, message);
        }
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        self.folder(line, "folder of the socket", &folder);
    }

    /// The daemon creates only the last folder of a path.
    fn folder(&mut self, line: usize, what: &str, folder: &Path) {
        let parent = folder
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let message = if folder.exists() && !folder.is_dir() {
            format!("{what} {} is not a folder", folder.display())
        } else if !folder.exists() && !parent.is_dir() {
            format!("{what}: {} does not exist", parent.display())
        } else {
            return;
        };
        // The administration's socket is beside the first one by default.
        if self.mistakes.iter().all(|other| other.message != message) {
            self.error(line, message);
        }
    }

    /// Warns if applications use the PIN of a token.
    fn shared_pin(&mut self, config: &Config, listener: &Listener) {
        if listener.login == Login::Peer {
            return;
        }
        let members = || config.tokens.iter().filter(|member| member.pin.is_some());
        let same = |member: &&Member| match (&listener.pin, &member.pin) {
            (None, _) => true,
            (Some(pool), Some(own)) => pool == own || same_secret(pool, own),
            (Some(_), None) => false,
        };
        if let Some(member) = members().find(same) {
            let message = format!(
                "{}: applications log in with the PIN of {}, and so can use that token beside the \
                 pool; {} pin gives them one of their own",
                listener.socket.path.display(),
                member.name,
                config.section_of(listener),
            );
            self.warn(0, message);
        }
    }

    fn node(&mut self, node: &NodeSection) {
        if !node.listen.is_empty() && node.peers.is_empty() {
            let message = "[node] listens, and no [[peer]] may use it";
            self.warn(0, message);
        }
        if node.identity.revoked.is_none() {
            let message = "[node] has no revoked =: no certificate can be taken back";
            self.warn(0, message);
        }
    }

    /// Warns of settings that are allowed but rarely intended.
    fn consider(&mut self, config: &Config) {
        let pinless = |member: &&Member| member.pin.is_none() && member.node.is_none();
        if config.tokens.len() == 1 {
            self.warn(
                0,
                "one [[token]]: a pool of one has no second replica of any key",
            );
        }
        for member in config.tokens.iter().filter(pinless) {
            let message = format!(
                "{} has no pin: its private keys cannot be used",
                member.name
            );
            self.warn(member.line, message);
        }
        if let Some(node) = &config.node {
            self.node(node);
        }
        for listener in &config.listeners {
            self.shared_pin(config, listener);
            let socket = &listener.socket;
            if socket.mode & 0o002 != 0 && socket.allow_users.is_empty() {
                let path = socket.path.display();
                self.warn(0, format!("{path}: every user of this machine may connect"));
            }
        }
    }
}

/// Whether two sources have the same PIN. A source that cannot be read here differs from all others.
fn same_secret(one: &PinSource, other: &PinSource) -> bool {
    match (one.read(), other.read()) {
        (Ok(one), Ok(other)) => one.expose() == other.expose(),
        _ => false,
    }
}
