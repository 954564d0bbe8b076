//! Traces that are turned on, sent elsewhere and turned off while requests run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use hsmux_suite::{PATIENCE, Rig, Setup, until};

use crate::collector::Collector;
use crate::connection::Connection;
use crate::rig::{Broker, METERED};
use crate::traces::{ask, id, number};

/// The log's words for a collector.
const TRACED: &str = "requests are traced collector";

/// Clients that ask one thing after the other.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(broker: &Broker) -> Self {
        let mut load = Self {
            stop: Arc::default(),
            answered: Arc::default(),
            clients: Vec::new(),
        };
        for _ in 0..3 {
            let (url, token) = (broker.url.clone(), broker.token.clone());
            let (stop, answered) = (Arc::clone(&load.stop), Arc::clone(&load.answered));
            load.clients.push(thread::spawn(move || {
                let mut connection = Connection::tcp(&url);
                while !stop.load(Ordering::Acquire) {
                    let answer = connection.ask("POST", "/v1/transit/random/8", &token, "");
                    let answer = answer.expect("an answer");
                    assert_eq!(answer.status, 200, "{answer:?}");
                    answered.fetch_add(1, Ordering::AcqRel);
                }
            }));
        }
        load
    }

    /// Waits until each is served on.
    fn goes_on(&self) {
        let before = self.answered.load(Ordering::Acquire);
        until("the clients are served", PATIENCE, || {
            (self.answered.load(Ordering::Acquire) >= before + 50).then_some(())
        });
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Release);
        for client in self.clients {
            client.join().expect("a client that lost nothing");
        }
    }
}

#[test]
fn a_reload_changes_where_spans_go_and_loses_no_request() {
    let mut broker = Broker::of(Rig::empty(Setup::Daemon, 1), METERED);
    let module = broker.rig.config.module.clone();
    let write = |broker: &mut Broker, traces: &str| {
        broker.rig.config.module = format!("{module}\n{traces}");
        broker.rig.write_config();
    };
    let [first, second, third] = [(); 3].map(|()| Collector::start());
    let to = |collector: &Collector| format!("[traces]\nendpoint = \"{}\"\n", collector.url);
    let reload = |broker: &Broker, says: &str| {
        let said = || {
            let log = broker.rig.daemon.as_ref().expect("a daemon").log();
            log.matches(says).count()
        };
        let before = said();
        broker.rig.hsmux("reload").ok().says("traces changed");
        // The daemon and the broker's process.
        until("both have taken it over", PATIENCE, || {
            (said() >= before + 2).then_some(())
        });
    };
    let traced = |broker: &Broker, number| ask(broker, &id(number), true, "random/8", "");
    let load = Load::start(&broker);
    load.goes_on();
    traced(&broker, 1);

    write(&mut broker, &to(&first));
    reload(&broker, TRACED);
    load.goes_on();
    traced(&broker, 2);
    // What waits for the collector that was is sent there.
    write(&mut broker, &to(&second));
    reload(&broker, TRACED);
    assert!(!first.trace(&id(2)).is_empty());
    traced(&broker, 3);
    assert!(!second.trace(&id(3)).is_empty());
    load.goes_on();
    let exported = || number(&broker, "hsmux_traces_exported_total");
    assert!(exported() >= Some(2.0), "{:?}", exported());

    // Nobody but those who have decided.
    write(&mut broker, &format!("{}sample = 0.0\n", to(&third)));
    reload(&broker, TRACED);
    load.goes_on();
    traced(&broker, 4);
    for (wrong, why) in [
        ("endpoint = \"collector:4318\"", "neither with http:"),
        ("endpoint = \"http://collector\"\nsample = 7", "from 0 to 1"),
        (
            "endpoint = \"https://collector\"\nca = \"missing.pem\"",
            "missing.pem",
        ),
    ] {
        write(&mut broker, &format!("[traces]\n{wrong}\n"));
        broker.rig.hsmux("reload").fails().says(why);
    }
    traced(&broker, 5);
    assert!(!third.trace(&id(4)).is_empty());
    assert!(!third.trace(&id(5)).is_empty());

    write(&mut broker, "");
    reload(&broker, "requests are traced no longer");
    load.goes_on();
    traced(&broker, 6);
    load.stop();
    broker.rig.stop();
    assert_eq!(third.requests(), [id(4), id(5)]);
    for collector in [&first, &second, &third] {
        assert!(collector.spans_of(&id(1)).is_empty());
        assert!(collector.spans_of(&id(6)).is_empty());
    }
}
