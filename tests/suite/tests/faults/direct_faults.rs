//! Connections that are handed over to a worker: tokens that hang, and programs that write nonsense there.

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hsmux_suite::{PATIENCE, Rig, Setup, StandIn, until};

use crate::direct::{Line, key, served_directly};
use crate::raw::{sign, soon};
use crate::wire::{HALF, MALFORMED, deep, until_the_end};

/// Fast tokens that hang when they are told to, each with one session.
fn tokens(labels: &[&str], timeout: &str) -> (Rig, StandIn) {
    let mut rig = Rig::prepare(Setup::Daemon, 0);
    let mut tokens = rig.stand_in("vendor", labels);
    for member in &mut rig.config.members {
        *member = member
            .clone()
            .with(&format!("timeout = \"{timeout}\"\nsessions = 1"));
    }
    tokens.set_all(FAST);
    rig.start();
    rig.wait_for_members(labels.len());
    (rig, tokens)
}

/// Longer than a program takes to ask again: whoever is preferred for that always has something.
const FAST: &str = "fast_sign = true\nservice_time_us = 200";
const HANGS: &str = "fast_sign = true\nhang_in_sign = true";

/// Of two tokens one does not answer: it keeps one program, and what all the others ask is done by the other token. The
/// kernel may have told the one that hangs alone of another program's request: that program asks the daemon a second
/// later.
#[test]
fn no_program_waits_for_a_token_while_another_is_free() {
    let (rig, mut tokens) = tokens(&["a", "b"], "600s");
    let ec = key(&rig, "ec");
    let clients: [_; 5] = std::array::from_fn(|_| served_directly(&rig, ec));
    let signed: [AtomicU64; 5] = Default::default();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (client, signed) in clients.iter().zip(&signed) {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    client.execute(&sign(ec), soon()).expect("a signature");
                    signed.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        tokens.set("a", HANGS);
        until("a token hangs", PATIENCE, || {
            let is_ours = |thread: &String| thread == "hsmux-direct";
            tokens.hung("a").iter().any(is_ours).then_some(())
        });
        let counts = || {
            signed
                .each_ref()
                .map(|signed| signed.load(Ordering::SeqCst))
        };
        let before = counts();
        until("four programs are served by the other", PATIENCE, || {
            let goes_on = |(now, before): &(u64, u64)| *now > before + 100;
            (counts().into_iter().zip(before).filter(goes_on).count() >= 4).then_some(())
        });
        is_over.store(true, Ordering::SeqCst);
        tokens.set_all(FAST);
    });
}

#[test]
fn a_worker_that_hangs_in_a_use_of_a_program_is_replaced() {
    let (rig, mut tokens) = tokens(&["a"], "2s");
    let ec = key(&rig, "ec");
    let mut line = Line::direct(&rig, ec);
    let workers = rig.workers();
    tokens.set_all("hang_in_sign = true");
    // No daemon knows of this use: the worker ends by itself.
    assert!(line.run(&[sign(ec)]).is_none());
    tokens.set_all("");
    rig.wait_for_members(1);
    assert_ne!(rig.workers(), workers);
    let log = rig.daemon.as_ref().unwrap().log();
    assert!(log.contains("has not returned within 2 s"), "{log}");
    assert!(Line::open(&rig).signs(ec));
}

/// The daemon is asked when a worker has said nothing for a second.
#[test]
fn what_a_token_that_hangs_was_asked_directly_is_done_by_another() {
    let (rig, mut tokens) = tokens(&["a", "b"], "2s");
    let ec = key(&rig, "ec");
    for label in ["a", "b"] {
        let client = served_directly(&rig, ec);
        tokens.set(label, HANGS);
        for _ in 0..20 {
            client.execute(&sign(ec), soon()).unwrap();
        }
        tokens.set_all(FAST);
        rig.wait_for_members(2);
    }
    let client = served_directly(&rig, ec);
    tokens.set_all(HANGS);
    let begun = Instant::now();
    let error = client.execute(&sign(ec), begun + Duration::from_secs(5));
    assert!(error.is_err(), "nobody can: {error:?}");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(7), "{took:?}");
}

#[test]
fn nonsense_ends_its_own_connection_alone() {
    let (rig, _tokens) = tokens(&["a", "b"], "60s");
    let ec = key(&rig, "ec");
    let workers = rig.workers();
    let deep = deep();
    // From the third connection on they are shared.
    let mut others = vec![Line::direct(&rig, ec)];
    for _ in 0..2 {
        let malformed = MALFORMED.iter().copied().chain([deep.as_slice()]);
        for (bytes, is_half) in malformed
            .map(|bytes| (bytes, false))
            .chain(HALF.iter().map(|bytes| (*bytes, true)))
        {
            let line = Line::direct(&rig, ec);
            let mut stream = line.connection.stream().try_clone().unwrap();
            // It may have ended before all is written.
            let _ = stream.write_all(bytes);
            if is_half {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            until_the_end(stream, bytes);
            assert!(others.iter_mut().all(|line| line.signs(ec)), "{bytes:?}");
        }
        others.push(Line::direct(&rig, ec));
        others.push(Line::direct(&rig, ec));
    }
    assert_eq!(rig.workers(), workers);
}
