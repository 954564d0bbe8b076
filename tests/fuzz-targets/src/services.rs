//! Packets between the daemon and the services, and the events in them.

use hsmux_audit::Event;
use hsmux_wire::fuzzing::{FuzzedLink, PassedDescriptor};
use serde_json::{Map, Value};

use crate::pieces::split;

/// The service that may record events.
const SERVICE: &str = "broker";

/// A packet of either end, with a descriptor or without.
pub fn packets(input: &[u8]) {
    thread_local! {
        static LINK: FuzzedLink = FuzzedLink::default();
    }
    let Some((how, packet)) = split(input) else {
        return;
    };
    let text = String::from_utf8_lossy(packet);
    let descriptor = match how & 3 {
        0 => PassedDescriptor::Nothing,
        1 => PassedDescriptor::Socket,
        2 => PassedDescriptor::Sealed(&text),
        _ => PassedDescriptor::TwoSockets,
    };
    LINK.with(|link| {
        if let Ok(message) = link.attend(packet, descriptor) {
            let written = link.of_service(message);
            let again = link.attend(&written, descriptor);
            let again = again.expect("a packet that was written");
            assert_eq!(link.of_service(again), written);
        }
        if let Ok(message) = link.hear(packet, descriptor) {
            let written = link.of_daemon(&message);
            let again = link.hear(&written, descriptor);
            let again = again.expect("a packet that was written");
            assert_eq!(link.of_daemon(&again), written);
        }
    });
}

/// The fields of an event, in any order.
fn fields(event: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(event).expect("JSON that was written")
}

/// An event, as the daemon reads it before it is on the trail.
pub fn events(input: &[u8]) {
    let Ok(event) = Event::of_service(SERVICE, input) else {
        return;
    };
    let written = event.to_bytes();
    assert!(written.len() <= Event::MAX_BYTES, "{}", written.len());
    let again = Event::of_service(SERVICE, &written).expect("an event that was written");
    assert_eq!(fields(&again.to_bytes()), fields(&written));
}
