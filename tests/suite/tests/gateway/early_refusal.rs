//! Early refusal of handshakes that no token would sign for in time.

use std::thread;
use std::time::{Duration, Instant};

use hsmux_suite::{MemberConfig, PATIENCE, StandIn, until};

use crate::lost_tokens::{all, cards};
use crate::rig::{ASK, BOTH, FOLDER, Gateway};

/// Duration of a signature on the card, as the gateway has measured it.
const SHOWN: Duration = Duration::from_secs(5);

/// A card with one session and the key of `ec.pem`, and a token with the key of `rsa.pem`. The default site has the
/// first certificate alone, `both.test` has both.
fn card_and_token() -> (Gateway, StandIn) {
    let (mut rig, cards) = cards(&["card"]);
    for member in &mut rig.config.members {
        *member = member.clone().with("sessions = 1");
    }
    rig.config.members.push(MemberConfig::softhsm("hsm1"));
    let sites = format!(
        "[[site]]\ncertificates = [\"ec.pem\"]\n{FOLDER}\n\
         [[site]]\nnames = [\"both.test\"]\n{BOTH}\n{FOLDER}"
    );
    let gateway = Gateway::start(rig, "sign_timeout = \"50s\"", &sites);
    (gateway, cards)
}

/// Asserts that `both.test` is served with the certificate of this name.
fn both_by(gateway: &Gateway, name: &str) {
    let ask = ASK.replace("a.test", "both.test");
    let said = gateway.s_client("-tls1_3 -servername both.test", &ask);
    let served = said.contains(&format!("CN = {name}")) && said.contains("a page");
    assert!(served, "not by {name}: {said}");
}

/// The card has shown that a signature takes five seconds, so at most nine fit into 43 of the 50 seconds. The card
/// hangs until the test releases it: a handshake that ends before was ended by the gateway. A client is not refused if
/// another certificate will do.
#[test]
fn handshakes_that_would_wait_too_long_are_refused_at_once() {
    let (gateway, mut cards) = card_and_token();
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
            // The estimated wait shrinks until the first signature should be nearly done.
            until(
                "the first has been with the card for long",
                PATIENCE,
                || (begun.elapsed() > SHOWN).then_some(()),
            );
        }
        let last = clients.pop().expect("a client");
        let last = last.join().expect("its answer");
        last.never_says("a page").never_says("timed out");
        // One is on the card, and one waits: the first to wait is never refused.
        let admitted = clients.len();
        assert!(admitted >= 2, "{admitted} wait");

        let said = gateway.s_client("-tls1_3", "");
        assert!(said.contains("alert internal error"), "{said}");
        let said = gateway.s_client("-tls1_3 -sess_in session", ASK);
        assert!(said.contains("Reused"), "{said}");
        assert!(said.contains("a page"), "{said}");
        both_by(&gateway, "rsa");
        assert_eq!(waiting(), admitted as u64, "the others were not to end");
        cards.set_all("");
        all(clients)
    });
    for answer in answers {
        answer.says("a page");
    }
    ask().says("a page");
    both_by(&gateway, "ec");
    assert_eq!(refused(), 2);
    assert_eq!(gateway.metric("hsmux_gateway_signatures_failed_total"), 0);
}
