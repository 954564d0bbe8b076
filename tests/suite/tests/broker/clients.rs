//! Two clients of one broker: whatever one does with many connections, the other one keeps its share of a slow token.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hsmux_suite::{PATIENCE, Rig, Setup, StandIn, until};

use crate::connection::{Connection, request, tcp};
use crate::rig::Broker;

const SECTION: &str = r#"
[broker]
listen = ["127.0.0.1:0"]

[[policy]]
clients = ["token:app", "token:other"]
keys = ["label:*"]
allow = ["*"]
"#;

const SIGN: &str = "/v1/transit/sign/label:ec";
const ITEM: &str = r#"{"input": "dGV4dA=="}"#;

/// Each has 32 items at the pool, so all of them fill its queue of 1,024.
const CONNECTIONS: usize = 40;
const ITEMS: usize = 100;

/// How long a rate is counted.
const WINDOW: Duration = Duration::from_secs(2);

/// A busy machine takes CPUs from either side: the median of so many ratios is judged.
const ROUNDS: usize = 3;

/// A broker over a token that does one thing at a time, in 50 ms: on a busy machine a client needs some of this time to
/// ask again.
fn slow() -> (Broker, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", &["a"]);
    tokens.set_module("settled = true");
    tokens.set_all("service_time_us = 50000\nfast_sign = true");
    rig.config.members[0].more.push_str("sessions = 1\n");
    (Broker::of(rig, SECTION), tokens)
}

/// Signatures a second of a client that asks for the next as soon as it has one.
fn rate(connection: &mut Connection, token: &str) -> f64 {
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < WINDOW {
        let answer = connection.ask("POST", SIGN, token, ITEM);
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        count += 1;
    }
    f64::from(count) / begun.elapsed().as_secs_f64()
}

fn waiting(broker: &Broker) -> u64 {
    let status = broker.rig.status();
    status["pool"]["waiting"].as_u64().expect("how many wait")
}

#[test]
fn batches_of_one_client_leave_another_its_share() {
    let (broker, _tokens) = slow();
    let made = broker.rig.hsmux("token-auth create other").ok();
    let other = made.out.trim().to_owned();
    let items = vec![ITEM; ITEMS].join(",");
    let batch = format!("{{\"batch_input\": [{items}]}}");
    let batch = request("POST", SIGN, &broker.token, &batch);
    let mut connection = Connection::tcp(&broker.url);
    let mut ratios = [0.0; ROUNDS];
    for ratio in &mut ratios {
        let quiet = rate(&mut connection, &other);
        let send = |_| {
            let mut stream = tcp(&broker.url);
            stream.write_all(batch.as_bytes()).expect("a batch");
            stream
        };
        let batches: Vec<TcpStream> = (0..CONNECTIONS).map(send).collect();
        until("the queue is nearly full", PATIENCE, || {
            (waiting(&broker) >= 900).then_some(())
        });
        let beside = rate(&mut connection, &other);
        *ratio = beside / quiet;
        println!(
            "{quiet:.0}/s alone, {beside:.0}/s beside {CONNECTIONS} batches of another client"
        );
        drop(batches);
        until("they have gone", PATIENCE, || {
            (waiting(&broker) == 0).then_some(())
        });
    }
    ratios.sort_by(f64::total_cmp);
    let kept = ratios[ROUNDS / 2];
    assert!(kept >= 0.4, "{kept:.2} of the rate is left");
}
