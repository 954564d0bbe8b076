//! A token's module in the daemon itself (`isolation = "thread"`), which signs on the gateway's own threads: what becomes
//! of everybody else when it hangs on all of those that do not rest.

use std::thread;

use hsmux_suite::{PATIENCE, StandIn, until};

use crate::h2;
use crate::lost::{all, cards, start};
use crate::rig::Gateway;

/// What the daemon calls the gateway's threads.
const SERVING: &str = "hsmux-gateway";

/// More than the gateway has threads.
const MANY: usize = 16;

const ANSWERS: &str = "parallel = true\nfast_sign = true";
const HANGS: &str = "parallel = true\nfast_sign = true\nhang_in_sign = true";

fn gateway() -> (Gateway, StandIn) {
    let (mut rig, mut cards) = cards(&["card"]);
    cards.set_all(ANSWERS);
    for member in &mut rig.config.members {
        // It is not given up before the test lets it go.
        member.more = "isolation = \"thread\"\nsessions = 32\ntimeout = \"10m\"\n".into();
    }
    (start(rig, "sign_timeout = \"10m\""), cards)
}

/// How many handshakes hang on the gateway's own threads.
fn serving(cards: &StandIn) -> usize {
    let hung = cards.hung("card");
    hung.iter().filter(|thread| *thread == SERVING).count()
}

/// One for each CPU, as many as do not rest.
fn most() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Until work is known to be short it is handed over: that all threads hang takes a few tries.
#[test]
fn a_token_that_hangs_on_all_threads_holds_up_nobody_else() {
    let (gateway, mut cards) = gateway();
    let mut open = h2::Client::open(&gateway.address);
    let ask = || gateway.curl("a.test", "/page.txt", "--max-time 250");
    until("all threads hang but the one that rests", PATIENCE, || {
        for _ in 0..20 {
            ask().says("a page");
        }
        let before = (cards.hung("card").len(), serving(&cards));
        cards.set_all(HANGS);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..MANY).map(|_| scope.spawn(ask)).collect();
            // Who comes after those on the gateway's threads is read by the one that rested.
            until("each handshake hangs somewhere", PATIENCE, || {
                (cards.hung("card").len() == before.0 + MANY).then_some(())
            });
            let hung = serving(&cards) - before.1;
            let served = || gateway.metric("hsmux_gateway_requests_total{class=\"2xx\"}");
            let count = served();
            open.ask("a.test", "/page.txt");
            until("who was there before is served", PATIENCE, || {
                (served() == count + 1).then_some(())
            });
            cards.set_all(ANSWERS);
            for answer in all(clients) {
                answer.says("a page");
            }
            (hung >= most()).then_some(())
        })
    });
}
