//! Tokens and clients that go away while handshakes wait.

use std::process::{Command, Stdio};
use std::thread::{self, ScopedJoinHandle};

use hsmux_suite::{Finished, PATIENCE, Rig, StandIn, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{FOLDER, Gateway, certify_public};

/// Cards of the stand-in, and the certificate `ec.pem` for their key.
pub fn cards(labels: &[&str]) -> (Rig, StandIn) {
    let mut rig = Gateway::prepare();
    rig.config.members.clear();
    let cards = rig.stand_in("cards", labels);
    for member in &mut rig.config.members {
        *member = member.clone().with("timeout = \"60s\"");
    }
    rig.start();
    certify_public(&rig, "ec");
    rig.stop();
    (rig, cards)
}

/// A gateway with that certificate and these lines.
pub fn start(rig: Rig, lines: &str) -> Gateway {
    let site = format!("[[site]]\ncertificates = [\"ec.pem\"]\n{FOLDER}");
    Gateway::start(rig, lines, &site)
}

/// A gateway on cards that take so many microseconds for a signature.
fn on_cards(labels: &[&str], micros: u64) -> (Gateway, StandIn) {
    let (rig, mut cards) = cards(labels);
    cards.set_all(&format!("service_time_us = {micros}"));
    (start(rig, "sign_timeout = \"120s\""), cards)
}

#[test]
fn tokens_do_not_sign_for_clients_that_have_gone() {
    let (gateway, mut cards) = on_cards(&["card1", "card2"], 1000);
    cards.set_all("service_time_us = 2000000");
    let before = served(&gateway);
    let client = || {
        Command::new("openssl")
            .args(["s_client", "-connect", &gateway.address])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a client")
    };
    let mut clients: Vec<_> = (0..40).map(|_| client()).collect();
    let waiting = || gateway.metric("hsmux_gateway_signatures_waiting");
    until("most of them wait", PATIENCE, || {
        (waiting() > 20).then_some(())
    });
    for client in &mut clients {
        client.kill().expect("a client to end");
        client.wait().expect("its end");
    }
    until("nobody is waited for", PATIENCE, || {
        (waiting() == 0).then_some(())
    });
    cards.set_all("service_time_us = 1000");
    // It waits behind the rest of the queue.
    gateway.curl("a.test", "/page.txt", "").says("a page");
    let signed = served(&gateway) - before;
    assert!(signed < 30, "{signed} signatures, most of them for nobody");
}

/// The number of operations that the tokens have done.
fn served(gateway: &Gateway) -> u64 {
    let status = gateway.rig.status();
    let members = status["members"].as_array().expect("members");
    let each = members.iter().map(|member| member["served"].as_u64());
    each.map(|served| served.expect("a number")).sum()
}

/// The answers of all clients.
pub fn all(clients: Vec<ScopedJoinHandle<'_, Finished>>) -> Vec<Finished> {
    let answers = clients.into_iter().map(ScopedJoinHandle::join);
    answers.map(|answer| answer.expect("a client")).collect()
}

/// Handshakes that wait at once. The cards hang until the test releases them.
const WAITING: u64 = 100;

#[test]
fn no_handshake_fails_when_a_token_is_lost() {
    let (gateway, mut cards) = on_cards(&["card1", "card2", "card3"], 1000);
    // The first worker is that of `card1` only before the card is lost.
    let workers = until("all cards are in service", PATIENCE, || {
        let workers = gateway.rig.workers();
        (workers.len() == 3).then_some(workers)
    });
    let worker = Pid::from_raw(workers[0].cast_signed()).expect("a process");
    cards.set_all("hang_in_sign = true");
    let answers = thread::scope(|scope| {
        let ask = || gateway.curl("a.test", "/page.txt", "--max-time 250");
        let clients: Vec<_> = (0..WAITING).map(|_| scope.spawn(ask)).collect();
        until("all wait for signatures", PATIENCE, || {
            let waiting = gateway.metric("hsmux_gateway_signatures_waiting");
            (waiting == WAITING && !cards.hung("card1").is_empty()).then_some(())
        });
        kill_process(worker, Signal::KILL).expect("a worker to kill");
        cards.set("card1", "present = false");
        for card in ["card2", "card3"] {
            cards.set(card, "");
        }
        all(clients)
    });
    for answer in answers {
        answer.says("a page");
    }
    let count = |name: &str| gateway.metric(&format!("hsmux_gateway_signatures_{name}"));
    assert_eq!((count("total"), count("failed_total")), (WAITING, 0));
}
