//! Three hosts with a token each that hold the same keys, and each with the two others as members.

use hsmux_suite::{PATIENCE, Rig, Setup, until};

use crate::cable::Cable;
use crate::pair::{FILES, Load, address_after, member};

/// The names of the hosts.
pub const NAMES: [&str; 3] = ["web1", "web2", "web3"];

/// The hosts, in the order of their names.
pub struct Trio {
    pub hosts: Vec<Rig>,
    /// `cables[from][to]`; none leads from a host to itself, but it is there.
    pub cables: Vec<Vec<Cable>>,
}

impl Trio {
    /// All run, and each has the tokens of the others.
    pub fn start() -> Self {
        let first = Rig::prepare(Setup::Daemon, 1);
        first.hsmux("node ca init").ok();
        let others = NAMES[1..].iter().map(|_| {
            let other = Rig::empty(Setup::Daemon, 1);
            other.softhsm.import("hsm1", &first.keys);
            other
        });
        let others: Vec<_> = others.collect();
        let mut hosts = vec![first];
        hosts.extend(others);
        for (name, host) in NAMES.iter().zip(&hosts) {
            let enroll = hosts[0].hsmux(&format!("node enroll {name} --out"));
            enroll.arg(host.path("node")).ok();
        }
        let lay = |_| NAMES.iter().map(|_| Cable::lay()).collect();
        let mut trio = Self {
            hosts,
            cables: NAMES.iter().map(lay).collect(),
        };
        for number in 0..NAMES.len() {
            trio.start_host(number);
        }
        trio.wait_for_all();
        trio
    }

    /// Starts a host, and leads the cables of the others there.
    fn start_host(&mut self, number: usize) {
        let mut sections = format!("\n[node]\nlisten = [\"127.0.0.1:0\"]\n{FILES}\n");
        for other in others(number) {
            let (name, cable) = (NAMES[other], self.cables[number][other].address());
            // Nobody waits for a time-out: what runs on a host moves when it is taken for dead.
            let both = format!(
                "[[peer]]\nname = \"{name}\"\n\
                 [[token]]\nnode = \"{cable}\"\nname = \"{name}\"\ntimeout = \"10m\"\n"
            );
            sections.push_str(&both);
        }
        let host = &mut self.hosts[number];
        "deadline = \"20m\"".clone_into(&mut host.config.pool);
        host.config.module = sections;
        let address = address_after(host, Rig::start_daemon);
        for other in others(number) {
            self.cables[other][number].lead_to(&address);
        }
    }

    /// Waits until each has the tokens of the others.
    pub fn wait_for_all(&self) {
        for host in &self.hosts {
            host.wait_for_members(NAMES.len());
        }
    }

    /// Waits until no other host has this one among those that serve.
    fn wait_until_missed(&self, number: usize) {
        for other in others(number) {
            wait_until_lost(&self.hosts[other], NAMES[number]);
        }
    }

    /// The cables from and to a host.
    fn cables_of(&self, number: usize) -> impl Iterator<Item = &Cable> {
        let both = move |other: usize| [&self.cables[number][other], &self.cables[other][number]];
        others(number).flat_map(both)
    }
}

/// The hosts beside this one.
fn others(number: usize) -> impl Iterator<Item = usize> {
    (0..NAMES.len()).filter(move |other| *other != number)
}

fn wait_until_lost(host: &Rig, name: &str) {
    until(&format!("{name} is missed"), PATIENCE, || {
        (member(host, name)["in_service"] == 0).then_some(())
    });
}

#[test]
fn three_hosts_of_which_one_after_the_other_is_lost_under_load() {
    let mut trio = Trio::start();
    let mut loads: Vec<_> = trio.hosts.iter().map(Load::start).collect();
    loads.iter_mut().for_each(Load::goes_on);

    // One that is cut off goes on with its own token, and so do the others.
    trio.cables_of(2).for_each(Cable::cut);
    trio.wait_until_missed(2);
    for other in others(2) {
        wait_until_lost(&trio.hosts[2], NAMES[other]);
    }
    loads.iter_mut().for_each(Load::goes_on);
    trio.cables_of(2).for_each(Cable::mend);
    trio.wait_for_all();
    loads.iter_mut().for_each(Load::goes_on);

    // One that dies takes its own programs with it, and no request of others.
    loads.pop().expect("a load").nothing_failed();
    trio.hosts[2].kill_to_the_last();
    trio.wait_until_missed(2);
    loads.iter_mut().for_each(Load::goes_on);
    trio.start_host(2);
    trio.wait_for_all();
    loads.push(Load::start(&trio.hosts[2]));
    loads.iter_mut().for_each(Load::goes_on);

    // One that is restarted as an administrator does it.
    loads.remove(1).nothing_failed();
    trio.hosts[1].stop();
    trio.wait_until_missed(1);
    loads.iter_mut().for_each(Load::goes_on);
    trio.start_host(1);
    trio.wait_for_all();
    loads.push(Load::start(&trio.hosts[1]));
    loads.iter_mut().for_each(Load::goes_on);
    loads.into_iter().for_each(Load::nothing_failed);
}
