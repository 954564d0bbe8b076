//! A token that goes while handshakes wait for it.

use std::thread;

use hsmux_suite::{PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{FOLDER, Gateway, certify_public};

#[test]
fn a_token_that_is_lost_takes_no_handshake_with_it() {
    let mut rig = Gateway::prepare();
    rig.config.members.clear();
    let mut cards = rig.stand_in("cards", &["card1", "card2"]);
    cards.set_all("service_time_us = 250000");
    rig.start();
    certify_public(&rig, "ec");
    rig.stop();
    let site = format!("[[site]]\ncertificates = [\"ec.pem\"]\n{FOLDER}");
    let gateway = Gateway::start(rig, "sign_timeout = \"120s\"", &site);
    // Before it is lost: from then on it has none, and the other's would be the first.
    let workers = until("both cards are in service", PATIENCE, || {
        let workers = gateway.rig.workers();
        (workers.len() == 2).then_some(workers)
    });
    let worker = Pid::from_raw(workers[0].cast_signed()).expect("a process");
    let answers = thread::scope(|scope| {
        let ask = || gateway.curl("a.test", "/page.txt", "");
        let clients: Vec<_> = (0..24).map(|_| scope.spawn(ask)).collect();
        until("handshakes wait for signatures", PATIENCE, || {
            (gateway.metric("hsmux_gateway_signatures_waiting") > 4).then_some(())
        });
        cards.set("card1", "present = false");
        kill_process(worker, Signal::KILL).expect("a worker to kill");
        let answers = clients
            .into_iter()
            .map(|client| client.join().expect("a client"));
        answers.collect::<Vec<_>>()
    });
    for answer in answers {
        answer.says("a page");
    }
    assert_eq!(gateway.metric("hsmux_gateway_signatures_failed_total"), 0);
}
