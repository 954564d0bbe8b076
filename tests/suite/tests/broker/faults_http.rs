//! Tokens that are lost, busy or slow, clients that go away, and a daemon that reloads and ends: as clients see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use hsmux_suite::{PATIENCE, Rig, Setup, StandIn, until};
use rustix::process::Signal;

use crate::connection::Connection;
use crate::rig::Broker;

const SECTION: &str = r#"
[broker]
listen = ["127.0.0.1:0"]

[[policy]]
clients = ["token:app"]
keys = ["label:*"]
allow = ["*"]
"#;

/// More than run and wait at once.
const MANY: usize = 64;

const SIGN: &str = "/v1/transit/sign/label:ec";
const TEXT: &str = r#"{"input": "dGV4dA=="}"#;

fn standin(labels: &[&str], pool: &str) -> (Broker, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let tokens = rig.stand_in("vendor", labels);
    for member in &mut rig.config.members {
        // A call that hangs is this test's doing.
        member.more.push_str("timeout = \"10m\"\n");
    }
    rig.config.pool.push_str(pool);
    (Broker::of(rig, SECTION), tokens)
}

fn sign(broker: &Broker) -> Connection {
    let mut connection = Connection::tcp(&broker.url);
    connection
        .send("POST", SIGN, &broker.token, TEXT)
        .expect("send");
    connection
}

/// Waits until so many operations run or wait in the pool.
fn wait_for_operations(broker: &Broker, count: u64) {
    until(&format!("{count} operations run or wait"), PATIENCE, || {
        let status = broker.rig.status();
        let members = status["members"].as_array().expect("members");
        let running: u64 = members
            .iter()
            .filter_map(|member| member["in_flight"].as_u64())
            .sum();
        let waiting = status["pool"]["waiting"].as_u64().expect("how many wait");
        (running + waiting == count).then_some(())
    });
}

#[test]
fn lost_tokens_are_503_until_they_are_back() {
    let (broker, mut tokens) = standin(&["a", "b"], "");
    let mut connection = Connection::tcp(&broker.url);
    let mut ask = || {
        connection
            .ask("POST", SIGN, &broker.token, TEXT)
            .expect("an answer")
    };
    assert_eq!(ask().status, 200);
    tokens.set_all("present = false");
    let lost = until("both are lost", PATIENCE, || {
        let answer = ask();
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(lost.status, 503, "{lost:?}");
    assert!(lost.retry_after() >= Some(1), "{lost:?}");
    until("the broker is not ready", PATIENCE, || {
        let mut connection = Connection::tcp(&broker.url);
        let answer = connection.ask("GET", "/readyz", "", "").expect("an answer");
        (answer.status == 503).then_some(())
    });
    tokens.set_all("");
    until("they are back", PATIENCE, || {
        let answer = ask();
        assert!([200, 503].contains(&answer.status), "{answer:?}");
        (answer.status == 200).then_some(())
    });
}

#[test]
fn a_full_queue_is_503_with_retry_after_and_loses_nobody() {
    let (broker, mut tokens) = standin(&["a"], "\nqueue = 2");
    tokens.set("a", "hang_in_sign = true");
    let (tell, answers) = channel();
    for _ in 0..MANY {
        let (mut connection, tell) = (sign(&broker), tell.clone());
        thread::spawn(move || tell.send(connection.answer()));
    }
    // None of those that run or wait is answered yet.
    let next = || {
        answers
            .recv_timeout(PATIENCE)
            .expect("in time")
            .expect("an answer")
    };
    let refused = next();
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.retry_after() >= Some(1), "{refused:?}");
    tokens.set("a", "");
    let served = (1..MANY).filter(|_| match next() {
        answer if answer.status == 503 => answer.retry_after().is_none(),
        answer => {
            assert_eq!(answer.status, 200, "{answer:?}");
            true
        }
    });
    let served = served.count();
    assert!(served >= 2, "{served}");
}

#[test]
fn a_client_that_goes_away_takes_nothing_with_it() {
    let (broker, mut tokens) = standin(&["a"], "");
    tokens.set("a", "hang_in_sign = true");
    let gone: Vec<_> = (0..8).map(|_| sign(&broker)).collect();
    let mut stays = sign(&broker);
    wait_for_operations(&broker, 9);
    drop(gone);
    let mut half = Connection::tcp(&broker.url);
    half.say(b"POST /v1/transit/sign/label:ec HTTP/1.1\r\nHost: broker\r\nContent-")
        .expect("send");
    drop(half);
    tokens.set("a", "");
    let answer = stays.answer().expect("an answer");
    assert_eq!(answer.status, 200, "{answer:?}");
    wait_for_operations(&broker, 0);
    broker.good("POST", "sign/label:ec", TEXT);
}

/// No token works for them either.
#[test]
fn what_a_client_that_is_gone_has_asked_for_leaves_the_queue() {
    let (broker, mut tokens) = standin(&["a", "b"], "");
    tokens.set_all("hang_in_sign = true");
    let gone: Vec<_> = (0..MANY).map(|_| sign(&broker)).collect();
    wait_for_operations(&broker, MANY as u64);
    let waiting = || broker.rig.status()["pool"]["waiting"].as_u64();
    assert!(waiting() > Some(0));
    drop(gone);
    // Sooner than a member that hangs is let go, or a request's own deadline comes.
    until("nothing waits", Duration::from_secs(8), || {
        (waiting() == Some(0)).then_some(())
    });
    tokens.set_all("");
    wait_for_operations(&broker, 0);
    broker.good("POST", "sign/label:ec", TEXT);
}

#[test]
fn reloading_loses_no_request() {
    let (mut broker, _tokens) = standin(&["a", "b"], "");
    let (stop, answered) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (url, token) = (broker.url.clone(), broker.token.clone());
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            thread::spawn(move || {
                let mut connection = Connection::tcp(&url);
                while !stop.load(Ordering::Acquire) {
                    let answer = connection
                        .ask("POST", SIGN, &token, TEXT)
                        .expect("an answer");
                    assert_eq!(answer.status, 200, "{answer:?}");
                    answered.fetch_add(1, Ordering::AcqRel);
                }
            })
        })
        .collect();
    let module = broker.rig.config.module.clone();
    for round in 0..3 {
        // Another policy each time, so that there is something to take over.
        broker.rig.config.module = format!(
            "{module}\n[[policy]]\nclients = [\"token:app\"]\nkeys = [\"round-{round}\"]\nallow = [\"read\"]\n"
        );
        broker.rig.reload();
        until("the policy is taken over", PATIENCE, || {
            let (status, _) = broker.ask("GET", &format!("keys/round-{round}"), "");
            (status == 404).then_some(())
        });
        let before = answered.load(Ordering::Acquire);
        until("the clients are served", PATIENCE, || {
            (answered.load(Ordering::Acquire) >= before + 20).then_some(())
        });
    }
    stop.store(true, Ordering::Release);
    for client in clients {
        client.join().expect("a client that lost nothing");
    }
}

#[test]
fn ending_answers_what_runs() {
    let (mut broker, mut tokens) = standin(&["a"], "");
    tokens.set("a", "hang_in_sign = true");
    let running: Vec<_> = (0..6).map(|_| sign(&broker)).collect();
    // One that is open and asks for nothing does not hold it up.
    let mut idle = Connection::tcp(&broker.url);
    let answer = idle.ask("GET", "/healthz", "", "").expect("an answer");
    assert_eq!(answer.status, 200);
    wait_for_operations(&broker, 6);
    let mut daemon = broker.rig.daemon.take().expect("a daemon");
    daemon.signal(Signal::TERM);
    idle.wait_for_end();
    tokens.set("a", "");
    for mut connection in running {
        let answer = connection.answer().expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let status = daemon.wait();
    assert!(status.success(), "{status}\n{}", daemon.log());
}
