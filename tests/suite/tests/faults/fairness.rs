//! Two users of one daemon: whatever one does with sixty connections, the other one keeps its share.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use hsmux_suite::{Rig, Setup};
use hsmux_token::ck::{CKM_ECDSA, CKM_RSA_PKCS};
use hsmux_token::{Class, Mechanism, ObjectId, Operation, Secret, Verb};
use hsmux_wire::{Call, Item, VERSION};

use crate::raw::{client, log_in, named};
use crate::swarm::{Plan, Swarm, User};

pub const HONEST: u32 = 20_002;
const HOSTILE: u32 = 20_001;

/// As in the report of the weakness.
const CONNECTIONS: usize = 60;

/// How long a rate is counted.
const WINDOW: Duration = Duration::from_millis(700);

/// A busy machine takes CPUs from either side: the median of so many ratios is judged.
const ROUNDS: usize = 3;

/// What an answer is worth waiting for.
const REMAINING_US: u64 = 30_000_000;

/// A daemon that both users may connect to, with slow stand-ins.
fn rig(labels: &[&str]) -> Rig {
    shared_by_users(labels, SLOW_US)
}

/// A daemon that all users may connect to, with stand-ins that take so many microseconds for everything.
pub fn shared_by_users(labels: &[&str], service_time_us: u32) -> Rig {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", labels);
    tokens.set_module("settled = true");
    tokens.set_all(&format!(
        "service_time_us = {service_time_us}\nfast_sign = true"
    ));
    for member in &mut rig.config.members {
        *member = member.clone().with("sessions = 1");
    }
    rig.start();
    let allow = |path: &str, mode| {
        fs::set_permissions(rig.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("", 0o755);
    allow("hsmux.sock", 0o666);
    rig
}

pub fn key(rig: &Rig, label: &str) -> ObjectId {
    let client = client(rig, VERSION..=VERSION);
    log_in(rig, &client);
    named(&client, Class::PRIVATE_KEY, label).expect(label)
}

pub fn signatures(key: ObjectId, count: usize, bytes: usize) -> Call {
    signatures_by(CKM_ECDSA, key, count, bytes)
}

fn signatures_by(mechanism: u64, key: ObjectId, count: usize, bytes: usize) -> Call {
    let operation = || Operation::Use {
        verb: Verb::Sign,
        key: key.into(),
        mechanism: Mechanism::plain(mechanism),
        data: vec![7; bytes].into(),
    };
    let item = |_| Item {
        behalf: None,
        operation: operation(),
        remaining_us: REMAINING_US,
    };
    Call::Execute((0..count).map(item).collect())
}

/// Signatures a second of one connection that asks for the next as soon as it has one.
pub fn rate(user: &mut User, call: &Call) -> f64 {
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < WINDOW {
        user.ask(call);
        count += 1;
    }
    f64::from(count) / begun.elapsed().as_secs_f64()
}

fn plan(rig: &Rig, call: Call) -> Plan {
    Plan {
        socket: rig.path("hsmux.sock"),
        uid: HOSTILE,
        connections: CONNECTIONS,
        first: Call::Login(Secret::new(rig.pin().into_bytes())),
        call,
    }
}

/// The honest user's rate while others ask for this, over its rate without them: the median.
fn ratio(what: &str, rig: &Rig, key: ObjectId, call: Call) -> f64 {
    let honest = signatures(key, 1, 32);
    let plan = plan(rig, call);
    let mut user = User::log_in(rig, HONEST);
    let mut ratios = [0.0; ROUNDS];
    for ratio in &mut ratios {
        let alone = rate(&mut user, &honest);
        let swarm = Swarm::start(plan.clone());
        swarm.wait_until_it_works();
        let beside = rate(&mut user, &honest);
        let answers = swarm.end();
        let kept = beside / alone;
        println!(
            "{what}: {alone:.0}/s alone, {beside:.0}/s beside {CONNECTIONS} connections of another \
             user with {answers:.0} answers/s: {kept:.2}"
        );
        *ratio = kept;
    }
    ratios.sort_by(f64::total_cmp);
    ratios[ROUNDS / 2]
}

/// A token that does one thing at a time, and nothing fast: what is shared is its time.
const SLOW_US: u32 = 20_000;

/// Half of the token's time, or all of it; the rest is for a machine that is busy otherwise.
const HALF: f64 = 0.4;
const WHOLE: f64 = 0.6;

#[test]
fn work_of_one_user_leaves_another_half_of_the_token() {
    let mut rig = rig(&["a"]);
    let [ec, rsa] = ["ec", "rsa"].map(|label| key(&rig, label));
    let random = |len| {
        Call::Execute(vec![Item {
            behalf: None,
            operation: Operation::Random { len },
            remaining_us: REMAINING_US,
        }])
    };
    for (what, call) in [
        ("one signature", signatures(ec, 1, 32)),
        ("64 signatures", signatures(ec, 64, 32)),
        ("RSA signatures", signatures_by(CKM_RSA_PKCS, rsa, 1, 32)),
        ("signatures of 64 KiB", signatures(ec, 1, 64 << 10)),
        ("random bytes", random(32)),
    ] {
        let kept = ratio(what, &rig, ec, call);
        assert!(kept >= HALF, "{what}: {kept:.2} of the rate is left");
    }
    rig.stop();
}

#[test]
fn calls_of_one_user_that_need_no_token_leave_another_its_rate() {
    let mut rig = rig(&["a"]);
    let ec = key(&rig, "ec");
    let wrong = Secret::new(b"not the PIN".to_vec());
    for (what, call) in [
        ("the catalogue", Call::Catalogue { known: 0 }),
        ("information", Call::Info),
        ("too many operations", signatures(ec, 1024, 32)),
        ("no operation", Call::Execute(Vec::new())),
        ("wrong PINs", Call::Login(wrong)),
    ] {
        let kept = ratio(what, &rig, ec, call);
        assert!(kept >= WHOLE, "{what}: {kept:.2} of the rate is left");
    }
    rig.stop();
}

/// Nobody else's login waits for those of a user who floods the daemon with them.
#[test]
fn a_user_logs_in_beside_a_flood_of_logins() {
    let mut rig = rig(&["a"]);
    let right = Secret::new(rig.pin().into_bytes());
    let swarm = Swarm::start(plan(&rig, Call::Login(right)));
    swarm.wait_until_it_works();
    let begun = Instant::now();
    for _ in 0..5 {
        User::log_in(&rig, HONEST);
    }
    let took = begun.elapsed() / 5;
    let each = Duration::from_secs(1).div_f64(swarm.end());
    println!("a login took {took:?} where {CONNECTIONS} others took {each:?} each");
    // One is under way and one is its own: a queue for all would hold sixty of the others.
    assert!(took < 15 * each, "{took:?}; {each:?} each");
    rig.stop();
}
