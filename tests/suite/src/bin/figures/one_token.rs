//! One SoftHSM token, P-256: what the pool costs, and what worker processes gain.

use std::time::Duration;

use hsmux_bench::compare::{self, Bound, Goal, Report, Variant};
use hsmux_suite::{Process, Rig, SOFTHSM, Setup, until};
use hsmux_token::Result;

use crate::client::Client;
use crate::turn;

const P11_KIT_CLIENT: &str = "/usr/lib/x86_64-linux-gnu/pkcs11/p11-kit-client.so";

/// Signatures in a turn: one to two seconds of them.
const COUNT: u64 = 15_000;

fn at_least(of: &str, against: &str, bound: f64) -> Goal {
    Goal {
        of: of.into(),
        against: against.into(),
        bound: Bound::RateRatioAtLeast(bound),
    }
}

fn signing<'a>(name: &str, client: &Client<'a>, threads: usize) -> Variant<'a> {
    let client = client.clone();
    Variant::new(name, move || client.sign(threads, COUNT))
}

/// The pool in the program, `isolation = "thread"`.
pub fn embedded(rounds: usize) -> Result<Report> {
    let mut rig = Rig::prepare(Setup::Embedded, 1);
    let member = rig.config.members[0].clone();
    rig.config.members = vec![member.with("isolation = \"thread\"\nsessions = 4")];
    rig.write_config();
    let (direct, embedded) = (Client::past(&rig, SOFTHSM), Client::of(&rig));
    compare::run(
        "One SoftHSM token, P-256: the pool embedded, against direct calls",
        vec![
            signing("direct, 1 thread", &direct, 1),
            signing("embedded, 1 thread", &embedded, 1),
            signing("direct, 2 threads", &direct, 2),
            signing("embedded, 2 threads", &embedded, 2),
        ],
        &[
            at_least("embedded, 1 thread", "direct, 1 thread", 0.95),
            at_least("embedded, 2 threads", "direct, 2 threads", 0.95),
        ],
        rounds,
        turn,
    )
}

/// The daemon and two worker processes on the one token, beside `p11-kit server`.
pub fn through_the_daemon(rounds: usize) -> Result<Report> {
    let mut rig = Rig::prepare(Setup::Daemon, 1);
    let member = rig.config.members[0].clone();
    rig.config.members = vec![member.with("workers = 2\nsessions = 1")];
    rig.start();
    let (_server, address) = p11_kit_server(&rig);
    let direct = Client::past(&rig, SOFTHSM);
    let daemon = Client::of(&rig);
    let p11_kit = Client::past(&rig, P11_KIT_CLIENT).with("P11_KIT_SERVER_ADDRESS", address);
    let added = Goal {
        of: "daemon, 1 thread".into(),
        against: "direct, 1 thread".into(),
        bound: Bound::AddedMedianAtMost(40.0),
    };
    compare::run(
        "One SoftHSM token, P-256: daemon and two workers, against direct calls and p11-kit server",
        vec![
            signing("direct, 1 thread", &direct, 1),
            signing("daemon, 1 thread", &daemon, 1),
            signing("direct, 4 threads", &direct, 4),
            signing("daemon, 4 threads", &daemon, 4),
            signing("p11-kit, 4 threads", &p11_kit, 4),
            signing("direct, 16 threads", &direct, 16),
            signing("daemon, 16 threads", &daemon, 16),
            signing("p11-kit, 16 threads", &p11_kit, 16),
        ],
        &[
            added,
            at_least("daemon, 4 threads", "direct, 4 threads", 1.0),
            at_least("daemon, 16 threads", "direct, 16 threads", 1.0),
            at_least("daemon, 4 threads", "p11-kit, 4 threads", 2.0),
            at_least("daemon, 16 threads", "p11-kit, 16 threads", 2.0),
        ],
        rounds,
        turn,
    )
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
