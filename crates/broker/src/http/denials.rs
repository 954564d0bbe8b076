//! Denials on the trail: for strangers the first of each address, for known clients the first hundred, then a count
//! for each minute. A client without rights cannot fill the trail.

use std::net::IpAddr;
use std::sync::Arc;

use hsmux_audit::{Actor, Event, RepeatCount, Repeats};

use super::limits::{Address, network};
use crate::auth::ClientIdentity;

/// Current addresses and clients, each with its denials since the first.
#[derive(Default)]
pub struct Denials {
    strangers: Repeats<IpAddr>,
    known: Repeats<String>,
}

/// So many denials of a known client have a line each.
const LINES: u64 = 100;

impl Denials {
    /// Counts a denial; returns whether it gets a line of its own.
    pub fn has_line(&self, client: &ClientIdentity, address: Address) -> bool {
        if client.is_known() {
            return self.known.is_among(Some(client.name().to_owned()), LINES);
        }
        self.strangers.is_first(network(address))
    }

    /// The counts of all whose minute is over, or of all at the end.
    pub fn lines(&self, end: bool) -> Vec<Event> {
        let strangers = self.strangers.over(end).into_iter();
        let strangers = strangers.map(|(address, count)| {
            let peer = address.map(|address| address.to_string());
            let peer = peer.unwrap_or_else(|| "other addresses".into());
            line(Actor::client("anonymous", peer), count)
        });
        let known = self.known.over(end).into_iter();
        let known = known.map(|(name, count)| {
            let actor = Actor {
                actor: Some(name.unwrap_or_else(|| "other clients".into())),
                ..Actor::default()
            };
            line(actor, count)
        });
        strangers.chain(known).collect()
    }
}

fn line(actor: Actor, count: RepeatCount) -> Event {
    Event::act(&Arc::new(actor), "broker-denied", count.fields()).outcome("permission denied")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_line(denials: &Denials) -> String {
        let [line] = &denials.lines(true)[..] else {
            panic!("one line");
        };
        serde_json::to_string(line).unwrap()
    }

    #[test]
    fn the_first_of_each_address_and_the_number_of_the_others() {
        let denials = Denials::default();
        let nobody = ClientIdentity::new(Vec::new());
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().ok());
        let has_line = |address| denials.has_line(&nobody, address);
        assert!(has_line(one) && has_line(other));
        assert!(!has_line(one) && !has_line(one));
        let line = only_line(&denials);
        assert!(line.contains(r#""peer":"192.0.2.1""#) && line.contains(r#""count":2"#));
    }

    #[test]
    fn the_first_hundred_of_a_client_and_the_number_of_the_others() {
        let denials = Denials::default();
        let [one, other] = ["cn:one", "uid:7"].map(|name| ClientIdentity::new(vec![name.into()]));
        let lines = (0..LINES + 3).filter(|_| denials.has_line(&one, None));
        assert_eq!(lines.count() as u64, LINES);
        assert!(denials.has_line(&other, None), "another's lines");
        let line = only_line(&denials);
        assert!(line.contains(r#""actor":"cn:one""#) && line.contains(r#""count":3"#));
    }
}
