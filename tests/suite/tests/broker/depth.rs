//! How much waits, as `/metrics` has it, while slow tokens are busy.

use std::thread;

use hsmux_suite::{PATIENCE, Rig, SOFTHSM, Setup, StandIn, until};

use crate::connection::Connection;
use crate::rig::{Broker, METERED};

const TOKENS: [&str; 2] = ["hsm1", "hsm2"];
const CLIENTS: u32 = 12;
const TEXT: &str = r#"{"plaintext": "c2VjcmV0"}"#;

/// Tokens of one session each, which take their time from now on.
fn slow() -> (Broker, StandIn) {
    let mut rig = Rig::empty(Setup::Daemon, TOKENS.len());
    let mut tokens = StandIn::new(&rig.path(""), "slow", &TOKENS);
    tokens.set_module(&format!("forward = \"{SOFTHSM}\""));
    let member = |member: hsmux_suite::MemberConfig| member.with("sessions = 1\ntimeout = \"10m\"");
    rig.config.members = tokens.members().map(member).collect();
    let broker = Broker::of(rig, METERED).known();
    for key in ["app-busy", "app-idle"] {
        broker.good(
            "POST",
            &format!("keys/{key}"),
            r#"{"type": "aes256-gcm96"}"#,
        );
        broker.good("POST", &format!("encrypt/{key}"), TEXT);
    }
    (broker, tokens)
}

#[test]
fn what_waits_is_counted_by_token_and_by_key_until_it_has_ended() {
    let (broker, mut tokens) = slow();
    let queue = |token: &str| {
        broker.metric(&format!(
            "hsmux_token_queue{{token=\"{token}\",worker=\"{token}\"}}"
        ))
    };
    let of_key = |key: &str| {
        broker.metric(&format!(
            "hsmux_broker_operations_in_flight{{key=\"{key}\"}}"
        ))
    };
    let all = || {
        let (tokens, keys) = (TOKENS.map(queue), ["app-busy", "app-idle"].map(of_key));
        (tokens, broker.metric("hsmux_pool_queue"), keys)
    };
    let nothing = ([0.0; 2], 0.0, [0.0; 2]);
    assert_eq!(all(), nothing);

    // Each text takes until the test has seen what it looks for.
    tokens.set_all("hang_in_sign = true");
    thread::scope(|scope| {
        let ask = || {
            let mut client = Connection::tcp(&broker.url);
            let path = "/v1/transit/encrypt/app-busy";
            let answer = client.ask("POST", path, &broker.token, TEXT);
            assert_eq!(answer.expect("an answer").status, 200);
        };
        for _ in 0..CLIENTS {
            scope.spawn(ask);
        }
        // One of them is with each token, and either could serve what waits.
        let waiting = f64::from(CLIENTS - 2);
        let expected = ([waiting; 2], waiting, [f64::from(CLIENTS), 0.0]);
        until("all wait", PATIENCE, || (all() == expected).then_some(()));
        tokens.set_all("service_time_us = 20000");
    });
    until("nothing waits", PATIENCE, || {
        (all() == nothing).then_some(())
    });
}
