//! How long the head of a request may be, how many requests a connection may have at once, and what of their bodies may
//! come before it is read.

use hsmux_suite::{Http2Settings, Rig, Setup};

use crate::connection::Connection;
use crate::frames::{WINDOW_UPDATE, connect, read_whole};
use crate::rig::{Broker, METERED};

#[test]
fn heads_and_requests_at_once_have_limits() {
    let broker = Broker::of(Rig::empty(Setup::Daemon, 1), METERED);
    // What is read at once may be half longer than 64 KiB.
    for (length, is_taken) in [(60_000, true), (110_000, false)] {
        let field = "x".repeat(length);
        let request = format!("GET /healthz HTTP/1.1\r\nHost: broker\r\nX-Long: {field}\r\n\r\n");
        let mut client = Connection::tcp(&broker.url);
        // A broker that reads no further may break off.
        let answer = client.say(request.as_bytes());
        let answer = answer.and_then(|()| client.answer());
        let is_answered = answer.is_ok_and(|answer| answer.status == 200);
        assert_eq!(is_answered, is_taken, "{length}");
    }
    let settings = Http2Settings::read(&mut connect(&broker, &[]));
    assert_eq!(settings.longest_head(), Some(16 << 10));
    assert_eq!(settings.requests_at_once(), Some(256));
}

/// As the broker says when a connection begins (RFC 9113, section 6.9.2): 65,535 bytes of all requests, and what it adds.
#[test]
fn bodies_that_nobody_has_read_have_a_window() {
    let broker = Broker::of(Rig::empty(Setup::Daemon, 1), METERED);
    let mut client = connect(&broker, &[]);
    assert_eq!(Http2Settings::read(&mut client).window(), Some(128 << 10));
    let added = loop {
        if let (WINDOW_UPDATE, _, 0, payload) = read_whole(&mut client) {
            break u32::from_be_bytes(payload.try_into().expect("four bytes"));
        }
    };
    assert_eq!(65_535 + added, 256 << 10);
}
