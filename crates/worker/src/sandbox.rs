//! Rights of a vendor's module within its worker: a profile for each kind of module.
//!
//! The worker enters it before it loads the module, and cannot leave it. Under every profile it gains no privilege by a
//! set-uid program (`no_new_privs`, prctl(2)). Landlock (landlock(7)) bounds files, TCP ports and signals, a filter of
//! system calls (seccomp(2)) the rest.

mod calls;
mod files;
mod user;

pub use files::LandlockSupport;

use calls::Sockets;

use std::path::{Path, PathBuf};
use std::sync::Once;

use hsmux_config::{Member, Sandbox as Wanted};
use hsmux_module::Options;
use hsmux_token::{Error, Kind, Result};
use minicbor::{Decode, Encode};

/// The sandbox of one worker; travels to it with its orders.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(array)]
pub struct Sandbox {
    /// What kind of module it loads.
    #[n(0)]
    pub profile: Profile,
    /// Files and folders that the module may write, besides those of its kind.
    #[n(1)]
    pub folders: Vec<PathBuf>,
    /// The user whom the worker is given to, by name or number.
    #[n(2)]
    pub user: Option<String>,
}

/// Kinds of modules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Profile {
    /// Its token is a folder: SoftHSM. No socket, no program, no file but the system's and its own.
    #[n(0)]
    File,
    /// Its token is a card, which a service of the machine reaches: OpenSC. As [`Self::File`], with Unix sockets.
    #[n(1)]
    Pcsc,
    /// Its token is a host or a device: any files, and the network. No program.
    #[n(2)]
    Network,
    /// Nothing is known of it.
    #[n(3)]
    None,
}

/// Modules whose kind is known, by the begin of their file's name.
const KNOWN: [(&str, Profile); 4] = [
    ("libsofthsm2", Profile::File),
    ("opensc-pkcs11", Profile::Pcsc),
    ("onepin-opensc-pkcs11", Profile::Pcsc),
    ("libsc-hsm-pkcs11", Profile::Pcsc),
];

impl Sandbox {
    /// The sandbox of a member's workers, as its section says.
    pub fn of(member: &Member) -> Self {
        Self {
            profile: match member.sandbox {
                Wanted::Auto => Profile::of_module(&member.module),
                Wanted::File => Profile::File,
                Wanted::Pcsc => Profile::Pcsc,
                Wanted::Network => Profile::Network,
                Wanted::None => Profile::None,
            },
            folders: member.folders.clone(),
            user: member.user.as_ref().map(ToString::to_string),
        }
    }

    /// No bounds but that of privileges.
    pub fn unbounded() -> Self {
        Self {
            profile: Profile::None,
            folders: Vec::new(),
            user: None,
        }
    }

    /// Confines this thread, and all that it starts from now on, before it opens a token. Answers the options with the
    /// state folder that this process can use.
    ///
    /// A kernel that lacks a part of it leaves that part out: [`Self::warn_if_weak`]. [`Kind::Environment`] if a part that
    /// is there fails.
    pub fn enter(&self, mut options: Options) -> Result<Options> {
        let failed = |part: &str, why: &dyn std::fmt::Display| {
            let name = self.profile.name();
            let message = format!("the worker's sandbox {name} cannot be entered: {part}: {why}");
            Error::token(Kind::Environment, message)
        };
        if let Some(user) = &self.user {
            options.state = user::become_user(user, &options.state)
                .map_err(|e| failed(&format!("user = \"{user}\""), &e))?;
        }
        rustix::thread::set_no_new_privs(true).map_err(|e| failed("no_new_privs", &e))?;
        if self.profile.bounds_files() {
            // A folder that is made later would not be among those that it may write.
            let pins = options.state.join("pins");
            hsmux_state::private_folder(&pins)
                .map_err(|e| failed("the folder of PIN records", &e))?;
            let writable = files::writable(self, &options.state);
            files::confine(&files::readable(&options.module), &writable)
                .map_err(|e| failed("Landlock", &e))?;
        }
        if self.profile != Profile::None {
            calls::confine(self.profile.sockets()).map_err(|e| failed("seccomp", &e))?;
        }
        Ok(options)
    }

    /// Says once in the log of the parent, whose worker has none, that the kernel does not bound the files of modules.
    pub(crate) fn warn_if_weak(&self) {
        static SAID: Once = Once::new();
        if self.profile.bounds_files() && LandlockSupport::of_kernel() == LandlockSupport::Missing {
            SAID.call_once(|| {
                tracing::warn!(
                    "this kernel has no Landlock: modules can read and write all files of their user (hsmux doctor)"
                );
            });
        }
    }
}

impl Profile {
    /// The kind of a module, by the name of its file.
    pub(crate) fn of_module(module: &Path) -> Self {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        let known = KNOWN.iter().find(|(begin, _)| name.starts_with(begin));
        known.map_or(Self::None, |(_, profile)| *profile)
    }

    /// As the configuration says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Pcsc => "pcsc",
            Self::Network => "network",
            Self::None => "none",
        }
    }

    /// Whether files are bounded, which needs Landlock.
    pub fn bounds_files(self) -> bool {
        matches!(self, Self::File | Self::Pcsc)
    }

    fn sockets(self) -> Sockets {
        match self {
            Self::File => Sockets::Nothing,
            Self::Pcsc => Sockets::Unix,
            Self::Network | Self::None => Sockets::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_known_by_its_files_name() {
        let profile = |module: &str| Profile::of_module(Path::new(module));
        let softhsm = "/usr/lib/softhsm/libsofthsm2.so";
        assert_eq!(profile(softhsm), Profile::File);
        let opensc = "/usr/lib/x86_64-linux-gnu/opensc-pkcs11.so";
        assert_eq!(profile(opensc), Profile::Pcsc);
        assert_eq!(profile("/opt/libCryptoki2.so"), Profile::None);
        assert_eq!(profile("/libsofthsm2.so/vendor.so"), Profile::None);
    }
}
