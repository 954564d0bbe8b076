//! Files that a module may read and write, TCP ports, and whom it may send signals.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
    path_beneath_rules,
};

use super::{Profile, Sandbox};

/// The newest rules that this file knows: files of devices (5), abstract sockets and signals (6).
const RULES: ABI = ABI::V6;

/// Where the system keeps libraries and what the kernel tells. Of other processes there, the module sees nothing that a
/// debugger would.
const SYSTEM: [&str; 6] = ["/usr", "/lib", "/lib64", "/nix/store", "/proc", "/sys"];

/// The system's settings, but for hsmux's own, which may have PINs beside them, and the passwords of users.
const SETTINGS: &str = "/etc";
const NO_SETTINGS: [&str; 5] = ["hsmux", "shadow", "shadow-", "gshadow", "gshadow-"];

/// Devices that each program may use.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/dev/log",
    "/dev/shm",
];

/// Variables that name a module's own configuration, or its library's.
const CONFIGURATION: [&str; 3] = ["SOFTHSM2_CONF", "OPENSC_CONF", "OPENSSL_CONF"];

/// Configurations of SoftHSM: Debian's, others', and that of one built here.
const SOFTHSM_CONFIGURATIONS: [&str; 3] = [
    "/etc/softhsm/softhsm2.conf",
    "/etc/softhsm2.conf",
    "/usr/local/etc/softhsm2.conf",
];

/// How much of its part of a sandbox the kernel keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LandlockSupport {
    /// All of it.
    Full,
    /// Access to files, but not all of it, or no signals and abstract sockets: Linux before 6.12.
    Partial,
    /// Nothing: Linux before 5.13, or Landlock is not among its security modules.
    Missing,
}

impl LandlockSupport {
    /// Asks the kernel, and confines nothing.
    pub fn of_kernel() -> Self {
        if required(RULES).is_ok() {
            Self::Full
        } else if required(ABI::V1).is_ok() {
            Self::Partial
        } else {
            Self::Missing
        }
    }
}

/// What the module may read, and run code of.
pub(super) fn readable(module: &Path) -> Vec<PathBuf> {
    let module = fs::canonicalize(module).unwrap_or_else(|_| module.to_owned());
    // Libraries that it comes with stand beside it.
    let folder = module.parent().map(Path::to_owned);
    let configured = CONFIGURATION.iter().filter_map(env::var_os);
    let system = SYSTEM.iter().map(PathBuf::from).chain(settings());
    system
        .chain(configured.map(PathBuf::from))
        .chain(folder)
        .collect()
}

fn settings() -> Vec<PathBuf> {
    let all = fs::read_dir(SETTINGS).into_iter().flatten().flatten();
    let shown = all.filter(|entry| NO_SETTINGS.iter().all(|not| entry.file_name() != *not));
    shown.map(|entry| entry.path()).collect()
}

/// What it may write.
pub(super) fn writable(sandbox: &Sandbox, state: &Path) -> Vec<PathBuf> {
    let mut writable = sandbox.folders.clone();
    writable.extend(DEVICES.iter().map(PathBuf::from));
    writable.push(state.join("pins"));
    if sandbox.profile == Profile::File {
        writable.extend(softhsm_tokens());
    }
    writable
}

/// The folder in which SoftHSM's configuration says that its tokens are (softhsm2.conf(5)).
fn softhsm_tokens() -> Option<PathBuf> {
    let own = env::var_os("SOFTHSM2_CONF").map(PathBuf::from);
    let home = env::home_dir().map(|home| home.join(".config/softhsm2/softhsm2.conf"));
    let others = home
        .into_iter()
        .chain(SOFTHSM_CONFIGURATIONS.map(PathBuf::from));
    let file = own.or_else(|| others.into_iter().find(|file| file.exists()))?;
    tokens_of(&fs::read_to_string(file).ok()?)
}

fn tokens_of(configuration: &str) -> Option<PathBuf> {
    let mut lines = configuration
        .lines()
        .filter_map(|line| line.split_once('='));
    let value = lines
        .find(|(key, _)| key.trim() == "directories.tokendir")?
        .1;
    Some(PathBuf::from(value.trim()))
}

/// Devices that root would make in its own folder are a way to all files.
fn written() -> BitFlags<AccessFs> {
    AccessFs::from_all(RULES) & !make_bitflags!(AccessFs::{MakeBlock | MakeChar})
}

/// Leaves this thread, and those that it starts, these files alone. What is not there is left out. Says how much of it the
/// kernel keeps.
pub(super) fn confine(
    readable: &[PathBuf],
    writable: &[PathBuf],
) -> Result<LandlockSupport, RulesetError> {
    let status = rules(CompatLevel::BestEffort, RULES)?
        .add_rules(path_beneath_rules(readable, AccessFs::from_read(RULES)))?
        .add_rules(path_beneath_rules(writable, written()))?
        .restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => LandlockSupport::Full,
        RulesetStatus::PartiallyEnforced => LandlockSupport::Partial,
        RulesetStatus::NotEnforced => LandlockSupport::Missing,
    })
}

fn required(abi: ABI) -> Result<RulesetCreated, RulesetError> {
    rules(CompatLevel::HardRequirement, abi)
}

/// What is forbidden unless a rule allows it.
fn rules(level: CompatLevel, abi: ABI) -> Result<RulesetCreated, RulesetError> {
    let rules = Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(abi))?;
    let rules = if abi >= ABI::V4 {
        rules.handle_access(AccessNet::from_all(abi))?
    } else {
        rules
    };
    let rules = if abi >= ABI::V6 {
        rules.scope(Scope::from_all(abi))?
    } else {
        rules
    };
    rules.create()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softhsm_says_where_its_tokens_are() {
        let text = "# tokens\nlog.level = ERROR\ndirectories.tokendir = /var/lib/softhsm/tokens/\n";
        assert_eq!(tokens_of(text), Some("/var/lib/softhsm/tokens/".into()));
        assert_eq!(tokens_of("directories.other = /x"), None);
    }
}
