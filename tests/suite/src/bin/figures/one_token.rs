//! One SoftHSM token, P-256: the cost of the pool, and the gain of worker processes.

use std::time::Duration;

use hsmux_bench::compare::{Bound, CompareReport, Goal, Variant};
use hsmux_suite::{Process, Rig, SOFTHSM, Setup, until};
use hsmux_token::Result;

use crate::Effort;
use crate::client::BenchClient;

const P11_KIT_CLIENT: &str = "/usr/lib/x86_64-linux-gnu/pkcs11/p11-kit-client.so";

/// The pool in the program, `isolation = "thread"`.
pub fn embedded(effort: Effort) -> Result<CompareReport> {
    let mut rig = Rig::prepare(Setup::Embedded, 1);
    configure(&mut rig, "isolation = \"thread\"");
    rig.write_config();
    let direct = BenchClient::past(&rig, SOFTHSM);
    let embedded = BenchClient::of(&rig);
    let mut contest = Contest::new(effort);
    for threads in [1, 2] {
        contest.variant("direct", &direct, threads);
        contest.variant("embedded", &embedded, threads);
        contest.goal("embedded", "direct", threads, Bound::RateRatioAtLeast(0.95));
    }
    contest.run("One SoftHSM token, P-256: the embedded pool against direct calls")
}

/// The daemon with its defaults, and with two workers on the one token, against `p11-kit server`.
pub fn through_the_daemon(effort: Effort) -> Result<CompareReport> {
    let [rig, two_workers] = ["", "workers = 2\nsessions = 1"].map(|more| {
        let mut rig = Rig::prepare(Setup::Daemon, 1);
        configure(&mut rig, more);
        rig.start();
        rig
    });
    let (_server, address) = p11_kit_server(&rig);
    let direct = BenchClient::past(&rig, SOFTHSM);
    let daemon = BenchClient::of(&rig);
    let two_workers = BenchClient::of(&two_workers);
    let p11_kit = BenchClient::past(&rig, P11_KIT_CLIENT).with("P11_KIT_SERVER_ADDRESS", address);
    let mut contest = Contest::new(effort);
    contest.variant("direct", &direct, 1);
    contest.variant("daemon", &daemon, 1);
    contest.goal("daemon", "direct", 1, Bound::AddedMedianAtMost(40.0));
    for threads in [4, 16] {
        contest.variant("direct", &direct, threads);
        contest.variant("daemon", &daemon, threads);
        contest.variant("two workers", &two_workers, threads);
        contest.variant("p11-kit", &p11_kit, threads);
        contest.goal("daemon", "p11-kit", threads, Bound::RateRatioAtLeast(2.0));
        contest.goal(
            "two workers",
            "direct",
            threads,
            Bound::RateRatioAtLeast(1.0),
        );
    }
    contest.run("One SoftHSM token, P-256: the daemon against direct calls and p11-kit server")
}

/// Adds lines to the configuration of the rig's only member.
fn configure(rig: &mut Rig, more: &str) {
    for member in &mut rig.config.members {
        *member = member.clone().with(more);
    }
}

/// `p11-kit server` on the same token, and its address.
fn p11_kit_server(rig: &Rig) -> (Process, String) {
    let socket = rig.path("p11-kit");
    let server = rig
        .run("p11-kit")
        .args(&format!("server --foreground --provider {SOFTHSM} --name"))
        .arg(&socket)
        .arg("pkcs11:token=hsm1");
    let server = Process::start("p11-kit-server", &rig.path(""), server);
    until(
        "the socket of p11-kit server",
        Duration::from_secs(20),
        || socket.exists().then_some(()),
    );
    (server, format!("unix:path={}", socket.display()))
}

/// Ways to the same token, each with several numbers of threads.
struct Contest<'a> {
    effort: Effort,
    variants: Vec<Variant<'a>>,
    goals: Vec<Goal>,
}

impl<'a> Contest<'a> {
    fn new(effort: Effort) -> Self {
        Self {
            effort,
            variants: Vec::new(),
            goals: Vec::new(),
        }
    }

    fn variant(&mut self, way: &str, client: &BenchClient<'a>, threads: usize) {
        let (client, turn) = (client.clone(), self.effort.turn);
        let run = move || client.sign(threads, turn);
        self.variants.push(Variant::new(name(way, threads), run));
    }

    fn goal(&mut self, of: &str, against: &str, threads: usize, bound: Bound) {
        self.goals.push(Goal {
            of: name(of, threads),
            against: name(against, threads),
            bound,
        });
    }

    fn run(self, title: &str) -> Result<CompareReport> {
        self.effort.compare(title, self.variants, &self.goals)
    }
}

fn name(way: &str, threads: usize) -> String {
    match threads {
        1 => format!("{way}, 1 thread"),
        _ => format!("{way}, {threads} threads"),
    }
}
