//! Handshakes that no token would sign for in time.

use std::thread;
use std::time::{Duration, Instant};

use hsmux_suite::{PATIENCE, until};

use crate::lost::{all, cards, start};
use crate::rig::ASK;

/// What the card takes for a signature, as far as anybody knows.
const SHOWN: Duration = Duration::from_secs(5);

/// The card has shown that it takes five seconds, so that no more than nine wait in 43 of the 50 seconds. It answers only
/// when the test says so: what ends before was ended by the gateway.
#[test]
fn who_would_be_signed_for_too_late_is_refused_at_once() {
    let (mut rig, mut cards) = cards(&["card"]);
    for member in &mut rig.config.members {
        *member = member.clone().with("sessions = 1");
    }
    let gateway = start(rig, "sign_timeout = \"50s\"");
    cards.set_all(&format!("service_time_us = {}", SHOWN.as_micros()));
    let first = gateway.s_client("-tls1_3 -sess_out session", ASK);
    assert!(first.contains("a page"), "{first}");
    cards.set_all("hang_in_sign = true");

    let ask = || gateway.curl("a.test", "/page.txt", "");
    let waiting = || gateway.metric("hsmux_gateway_signatures_waiting");
    let refused = || gateway.metric("hsmux_gateway_refused_total{reason=\"busy\"}");
    let begun = Instant::now();
    let answers = thread::scope(|scope| {
        let mut clients = Vec::new();
        while refused() == 0 {
            assert!(clients.len() < 10, "{} are to wait", clients.len());
            clients.push(scope.spawn(ask));
            until("it waits, or is refused", PATIENCE, || {
                (waiting() == clients.len() as u64 || refused() > 0).then_some(())
            });
            // Until it is thought to be nearly done every moment makes the others' wait shorter.
            until(
                "the first has been with the card for long",
                PATIENCE,
                || (begun.elapsed() > SHOWN).then_some(()),
            );
        }
        let last = clients.pop().expect("a client");
        let last = last.join().expect("its answer");
        last.never_says("a page").never_says("timed out");
        // One is with the card, and nobody is refused while nobody else waits.
        let admitted = clients.len();
        assert!(admitted >= 2, "{admitted} wait");

        let said = gateway.s_client("-tls1_3", "");
        assert!(said.contains("alert internal error"), "{said}");
        let said = gateway.s_client("-tls1_3 -sess_in session", ASK);
        assert!(said.contains("Reused"), "{said}");
        assert!(said.contains("a page"), "{said}");
        assert_eq!(waiting(), admitted as u64, "the others were not to end");
        cards.set_all("");
        all(clients)
    });
    for answer in answers {
        answer.says("a page");
    }
    ask().says("a page");
    assert_eq!(refused(), 2);
    assert_eq!(gateway.metric("hsmux_gateway_signatures_failed_total"), 0);
}
