//! Clients of HTTP/2 that send small frames without end.

use std::io::{Read, Write};

use hsmux_suite::{Rig, Setup};

use crate::frames::{
    ACK, DATA, END_STREAM, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, connect, drain, frame, get,
    read,
};
use crate::rig::{Broker, METERED};

const CLOSED: &str = "hsmux_broker_closed_total{reason=\"flood\"}";

fn start() -> Broker {
    Broker::of(Rig::empty(Setup::Daemon, 1), METERED).known()
}

/// Says this so often and reads what is answered; `false`: the connection has ended.
fn survives(broker: &Broker, times: u32, say: impl Fn(u32) -> Vec<u8>) -> bool {
    let mut client = connect(broker, &[]);
    for time in 0..times {
        if client.write_all(&say(time)).is_err() || time % 50 == 0 && !drain(&mut client) {
            return false;
        }
    }
    // The answer to this one is after all others.
    let last = [0xab; 8];
    if client.write_all(&frame(PING, 0, 0, &last)).is_err() {
        return false;
    }
    let (mut heard, mut bytes) = (Vec::new(), [0; 16384]);
    while let Ok(read @ 1..) = client.read(&mut bytes) {
        heard.extend_from_slice(&bytes[..read]);
        if heard.windows(last.len()).any(|part| part == last) {
            return true;
        }
    }
    false
}

/// Its token is nobody's: anybody on the network can do it.
#[test]
fn floods_of_small_frames_end_their_connection() {
    let broker = start();
    let ping = |_| frame(PING, 0, 0, &[7; 8]);
    let unasked = |_| frame(PING, ACK, 0, &[7; 8]);
    let settings = |_| frame(SETTINGS, 0, 0, &[]);
    let update = |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
    let reset = |time: u32| {
        let stream = 2 * time + 1;
        [
            get(stream, "/healthz"),
            frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
        ]
        .concat()
    };
    let closed = || broker.metric(CLOSED);
    assert!(survives(&broker, 500, ping));
    assert!(survives(&broker, 500, settings));
    assert!(closed().abs() < 0.5);
    let beside = &mut connect(&broker, &[]);
    assert!(!survives(&broker, 20_000, ping));
    assert!(!survives(&broker, 20_000, settings));
    assert!(!survives(&broker, 50_000, update));
    assert!((closed() - 3.0).abs() < 0.5, "{}", closed());
    // One is enough: h2 would write a line of the log for each.
    assert!(!survives(&broker, 1, unasked));
    assert!((closed() - 4.0).abs() < 0.5, "{}", closed());
    // h2 itself may end it before.
    assert!(!survives(&broker, 20_000, reset));
    // Other connections and their requests go on.
    assert!(drain(beside));
    let (status, _) = broker.ask("POST", "keys/app-gcm", "");
    assert_eq!(status, 200);
    let log = broker.rig.daemon.as_ref().expect("a daemon").log();
    assert!(!log.contains("never sent"), "{log}");
}

/// As clients of gRPC measure a connection: for each part that they receive.
#[test]
fn a_client_that_is_sent_something_may_measure_its_connection() {
    let broker = start();
    let mut client = connect(&broker, &[]);
    for time in 0..1500 {
        let ping = frame(PING, 0, 0, &[7; 8]);
        let asked = [get(2 * time + 1, "/healthz"), ping.clone(), ping].concat();
        client.write_all(&asked).expect("a request");
        while !matches!(read(&mut client), (DATA, flags, _) if flags & END_STREAM != 0) {}
    }
    assert!(broker.metric(CLOSED).abs() < 0.5);
}
