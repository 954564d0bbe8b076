//! Handshakes whose signature comes too late, or finds the queue full.

use std::thread;

use hsmux_suite::{PATIENCE, until};

use crate::h2;
use crate::lost_tokens::{cards, start};
use crate::rig::Gateway;

const HANGS: &str = "hang_in_sign = true";

/// Handshakes without a signature, by both metrics.
fn unsigned(gateway: &Gateway) -> (u64, u64) {
    (
        gateway.metric("hsmux_gateway_signatures_failed_total"),
        gateway.metric("hsmux_gateway_refused_total{reason=\"unsigned\"}"),
    )
}

fn until_unsigned(gateway: &Gateway, count: u64) {
    until("it is counted", PATIENCE, || {
        (unsigned(gateway) == (count, count)).then_some(())
    });
}

/// The card hangs until the test releases it: a handshake that ends before was ended by the gateway.
#[test]
fn a_handshake_ends_at_its_signature_deadline() {
    let (rig, mut cards) = cards(&["card"]);
    let gateway = start(rig, "sign_timeout = \"1s\"");
    let mut open = h2::Client::open(&gateway.address);
    until("its handshake", PATIENCE, || {
        (gateway.metric("hsmux_gateway_handshakes_total") == 1).then_some(())
    });
    cards.set_all(HANGS);
    // Shorter than the card's own time limit of a minute.
    let refused = gateway.curl("a.test", "/page.txt", "--max-time 30");
    refused.never_says("a page").never_says("timed out");
    until_unsigned(&gateway, 1);
    assert_eq!(gateway.metric("hsmux_gateway_signatures_waiting"), 0);
    open.ask("a.test", "/page.txt");
    until("who was there before is served", PATIENCE, || {
        (gateway.metric("hsmux_gateway_requests_total{class=\"2xx\"}") == 1).then_some(())
    });
    cards.set_all("");
    until("handshakes are signed again", PATIENCE, || {
        let answer = gateway.curl("a.test", "/page.txt", "");
        answer.out.contains("a page").then_some(())
    });
}

/// One signature is on the card, and one fills the queue.
#[test]
fn a_handshake_that_finds_the_queue_full_is_refused_at_once() {
    let (mut rig, mut cards) = cards(&["card"]);
    rig.config.pool.push_str("\nqueue = 1");
    for member in &mut rig.config.members {
        *member = member.clone().with("sessions = 1");
    }
    let gateway = start(rig, "sign_timeout = \"50s\"");
    let ask = || gateway.curl("a.test", "/page.txt", "");
    cards.set_all(HANGS);
    let waiting = || gateway.metric("hsmux_gateway_signatures_waiting");
    let answers = thread::scope(|scope| {
        let clients = [1, 2].map(|count| {
            let client = scope.spawn(ask);
            until("it waits for its signature", PATIENCE, || {
                (waiting() == count).then_some(())
            });
            client
        });
        ask().never_says("a page").never_says("timed out");
        let refused = || gateway.metric("hsmux_gateway_refused_total{reason=\"busy\"}");
        until("it is counted", PATIENCE, || (refused() == 1).then_some(()));
        assert_eq!(waiting(), 2, "the others were not to be refused");
        cards.set_all("");
        clients.map(|client| client.join().expect("a client"))
    });
    for answer in answers {
        answer.says("a page");
    }
    assert_eq!(unsigned(&gateway), (0, 0));
}
