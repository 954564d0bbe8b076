//! Members of the configuration as seats of a pool.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hsmux_config::{Config, Isolation, Member, PinSource, User};
use hsmux_module::Options;
use hsmux_token::{Error, Result, Token};
use hsmux_wire::{RecentTokens, RemoteToken};

use crate::{Environment, LinkOptions, ProcessConnector, Profile, Sandbox, ThreadConnector};
use hsmux_pool::{Care, Connector, Seat};

/// Operations that one worker runs at once, unless the configuration says how many.
const SESSIONS: u32 = 4;

/// The same of a software token: its operations wait for processors, which others use as well.
const SOFTWARE_SESSIONS: u32 = 8;

/// The seats of all members for a program that has the pool itself. `worker` is the executable that is started as
/// worker process, with the one argument `worker`.
pub fn seats(config: &Config, worker: &Path) -> Vec<Seat> {
    let members = config.tokens.iter();
    let seats = members.flat_map(|one| seats_with(config, one, worker, one.isolation, false));
    seats.collect()
}

/// The seats of all members for the daemon, which loads no module itself.
pub fn worker_seats(config: &Config, worker: &Path) -> Vec<Seat> {
    let members = config.tokens.iter();
    let seats = members.flat_map(|member| seats_of(config, member, worker));
    seats.collect()
}

/// The seats of one member for the daemon: one for each worker process.
pub fn seats_of(config: &Config, member: &Member, worker: &Path) -> Vec<Seat> {
    if member.isolation == Isolation::Thread {
        tracing::warn!(
            "isolation = \"thread\" is for [module] mode = \"embedded\": the daemon uses worker processes for member {}",
            member.name
        );
    }
    seats_with(config, member, worker, Isolation::Process, false)
}

/// The same for a member that is added while the daemon runs. Until it serves, errors name it by its URI: commands do not
/// know its name if it never does.
pub fn seats_to_add(config: &Config, member: &Member, worker: &Path) -> Vec<Seat> {
    seats_with(config, member, worker, Isolation::Process, true)
}

fn seats_with(
    config: &Config,
    member: &Member,
    worker: &Path,
    isolation: Isolation,
    is_new: bool,
) -> Vec<Seat> {
    if let Some(seat) = node_seat(config, member, worker) {
        return vec![seat];
    }
    let seats = match isolation {
        Isolation::Process => member.workers,
        Isolation::Thread => 1,
    };
    let watch = member.watch.unwrap_or(config.pool.watch);
    let care = Care {
        look: watch,
        // A module cannot be loaded twice into one process.
        replace: watch && isolation == Isolation::Process,
        cards: member.watch == Some(true),
    };
    let seat = |number| {
        let name = match number {
            1 => member.name.clone(),
            _ => format!("{}#{number}", member.name),
        };
        Seat {
            connector: Arc::new(MemberConnector {
                member: member.clone(),
                environment: environment(config, member),
                isolation,
                care,
                state: config.state.clone(),
                worker: worker.to_owned(),
                name: name.clone(),
                is_new: AtomicBool::new(is_new),
            }),
            name,
            member: member.name.clone(),
            weight: member.weight,
            timeout: member.timeout,
        }
    };
    (1..=seats).map(seat).collect()
}

/// Operations that one worker of a member runs at once.
fn sessions(member: &Member) -> u32 {
    let usual = || match Profile::of_module(&member.module) {
        Profile::File => SOFTWARE_SESSIONS,
        _ => SESSIONS,
    };
    member.sessions.unwrap_or_else(usual)
}

/// The seat of a member that is another host; it needs a process in any case.
fn node_seat(config: &Config, member: &Member, worker: &Path) -> Option<Seat> {
    let (address, node) = (member.node.as_ref()?, config.node.as_ref()?);
    let options = LinkOptions {
        name: member.name.clone(),
        address: address.clone(),
        lanes: sessions(member),
        identity: node.identity.clone(),
    };
    let connector =
        ProcessConnector::link(worker, options).environment(environment(config, member));
    Some(Seat {
        connector: Arc::new(NodeConnector {
            connector,
            lanes: sessions(member),
            trusted: member.trusted,
            connected: RecentTokens::default(),
        }),
        name: member.name.clone(),
        member: member.name.clone(),
        weight: member.weight,
        timeout: member.timeout,
    })
}

/// The environment of a process that loads a member's module: the member's own variables, and none that holds a PIN.
pub fn environment(config: &Config, member: &Member) -> Environment {
    let home = member.user.as_ref().and_then(User::home);
    let home = home.map(|home| ("HOME".to_owned(), home.to_string_lossy().into_owned()));
    let set = home.into_iter().chain(member.env.iter().cloned());
    environment_with(config, set.collect())
}

/// The same with these variables, for a process of no member.
pub fn environment_with(config: &Config, set: Vec<(String, String)>) -> Environment {
    let pins = config.tokens.iter().map(|member| &member.pin);
    let pins = pins.chain(config.listeners.iter().map(|listener| &listener.pin));
    let withheld = pins.flatten().filter_map(|pin| match pin {
        PinSource::Env(name) => Some(name.clone()),
        PinSource::File(_) | PinSource::Credential(_) => None,
    });
    Environment::new(set, withheld.collect())
}

/// The options of the module crate for a member's token; reads the PIN.
pub fn open_options(member: &Member, state: &Path) -> Result<Options> {
    let pin = member.pin.as_ref().map(PinSource::read);
    Ok(Options {
        module: member.module.clone(),
        slot: member.uri.clone(),
        pin: pin.transpose().map_err(|error| error.at(&member.name))?,
        sessions: sessions(member),
        state: state.to_owned(),
        name: member.name.clone(),
        copies: member.copies,
        member: None,
        uri: None,
    })
}

/// A member that is another host.
struct NodeConnector {
    connector: ProcessConnector,
    /// At most so many operations at once.
    lanes: u32,
    trusted: bool,
    /// That host itself says what has changed on it.
    connected: RecentTokens,
}

impl NodeConnector {
    fn newest(&self) -> Result<Arc<RemoteToken>> {
        let newest = self.connected.newest();
        newest.ok_or_else(|| Error::lost("the link to the other host has ended"))
    }
}

impl Connector for NodeConnector {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        let token = self.connector.start()?;
        self.connected.add(&token);
        Ok(token)
    }

    fn care(&self) -> Care {
        Care {
            look: true,
            ..Care::default()
        }
    }

    fn remote(&self) -> bool {
        true
    }

    fn trusted(&self) -> bool {
        self.trusted
    }

    fn outgrown(&self) -> Result<bool> {
        let token = self.newest()?;
        let (was, now) = (token.info(), token.inquire()?);
        let lanes = now.lanes.clamp(1, self.lanes.max(1));
        Ok(now.mechanisms != was.mechanisms || lanes != was.lanes)
    }

    fn connect_probe(&self) -> Result<Arc<dyn Token>> {
        Ok(self.newest()?)
    }
}

/// Reads the PIN anew for each connection: a corrected one is good without a restart.
struct MemberConnector {
    member: Member,
    environment: Environment,
    isolation: Isolation,
    care: Care,
    state: PathBuf,
    worker: PathBuf,
    name: String,
    /// Whether it is being added and has not been connected yet.
    is_new: AtomicBool,
}

impl MemberConnector {
    fn options(&self) -> Result<Options> {
        let mut options = open_options(&self.member, &self.state)?;
        options.name.clone_from(&self.name);
        options.member = Some(self.member.name.clone());
        let is_new = self.is_new.load(Ordering::Relaxed);
        options.uri = is_new.then(|| self.member.uri.to_string());
        Ok(options)
    }

    fn start(&self, options: Options) -> Result<Arc<dyn Token>> {
        ProcessConnector::confined(&self.worker, options, Sandbox::of(&self.member))
            .environment(self.environment.clone())
            .connect()
    }
}

impl Connector for MemberConnector {
    fn connect(&self) -> Result<Arc<dyn Token>> {
        let options = self.options()?;
        let token = match self.isolation {
            Isolation::Thread => ThreadConnector::new(options).connect(),
            Isolation::Process => self.start(options),
        }?;
        self.is_new.store(false, Ordering::Relaxed);
        Ok(token)
    }

    fn care(&self) -> Care {
        self.care
    }

    fn trusted(&self) -> bool {
        self.member.trusted
    }

    /// A process of its own, also beside a module that is in this one.
    fn connect_probe(&self) -> Result<Arc<dyn Token>> {
        let mut options = open_options(&self.member, &self.state)?;
        options.name = format!("{}, looking", self.member.name);
        options.member = Some(self.member.name.clone());
        options.sessions = 1;
        self.start(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
        [pool]
        label = "web"
        [[token]]
        name = "hsm1"
        module = "/vendor.so"
        uri = "pkcs11:token=hsm1"
        pin = { env = "PIN1" }
        env = { SOFTHSM2_CONF = "/x" }
        [[token]]
        name = "hsm2"
        module = "/vendor.so"
        uri = "pkcs11:token=hsm2"
        pin = { env = "PIN2" }
    "#;

    #[test]
    fn a_worker_inherits_no_pin_of_any_member() {
        let config = hsmux_config::parse(Path::new("/etc/hsmux/hsmux.toml"), TWO).unwrap();
        let mut worker = std::process::Command::new("worker");
        environment(&config, &config.tokens[0]).apply(&mut worker);
        let told: Vec<_> = worker.get_envs().collect();
        for pin in ["PIN1", "PIN2"] {
            assert!(told.contains(&(pin.as_ref(), None)), "{told:?}");
        }
        let own = ("SOFTHSM2_CONF".as_ref(), Some("/x".as_ref()));
        assert!(told.contains(&own), "{told:?}");
    }

    #[test]
    fn a_software_token_has_more_sessions_than_a_device() {
        let of = |module: &str, more: &str| {
            let text = TWO.replace("/vendor.so", module);
            let text = text.replace("uri =", &format!("{more}\nuri ="));
            let config = hsmux_config::parse(Path::new("/etc/hsmux/hsmux.toml"), &text).unwrap();
            sessions(&config.tokens[0])
        };
        assert_eq!(of("/libsofthsm2.so", ""), 8);
        assert_eq!(of("/libsofthsm2.so", "sessions = 9"), 9);
        assert_eq!(of("/vendor.so", ""), 4);
    }

    #[test]
    fn a_worker_with_a_user_of_its_own_has_its_home() {
        let text = TWO.replacen("uri =", "user = \"root\"\nuri =", 1);
        let config = hsmux_config::parse(Path::new("/etc/hsmux/hsmux.toml"), &text).unwrap();
        for (member, home) in [(0, User::Id(0).home()), (1, None)] {
            let mut worker = std::process::Command::new("worker");
            environment(&config, &config.tokens[member]).apply(&mut worker);
            let mut told = worker.get_envs();
            let set = told.find(|(name, _)| *name == "HOME");
            assert_eq!(set.and_then(|(_, value)| Some(value?.into())), home);
        }
    }
}
