//! What strangers are denied, as the trail has it: the first of each address, and how many more there were in the
//! minute after it. Nobody who may do nothing fills the trail.

use std::net::IpAddr;
use std::sync::Arc;

use hsmux_audit::{Actor, Count, Event, Repeats};

use super::limits::{Address, network};

/// Addresses of now, each with what has been denied since its first.
#[derive(Default)]
pub struct Strangers(Repeats<IpAddr>);

impl Strangers {
    /// Counts a denial; whether it is one that has a line of its own.
    pub fn is_first(&self, address: Address) -> bool {
        self.0.is_first(network(address))
    }

    /// What was counted of those whose minute is over; of all at the end.
    pub fn lines(&self, end: bool) -> Vec<Event> {
        let counted = self.0.over(end).into_iter();
        counted
            .map(|(address, count)| line(address, count))
            .collect()
    }
}

fn line(address: Address, count: Count) -> Event {
    let peer = address.map_or_else(|| "other addresses".into(), |address| address.to_string());
    let actor = Arc::new(Actor::client("anonymous", peer));
    Event::act(&actor, "broker-denied", count.fields()).outcome("permission denied")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_address_and_the_number_of_the_others() {
        let strangers = Strangers::default();
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().ok());
        assert!(strangers.is_first(one) && strangers.is_first(other));
        assert!(!strangers.is_first(one) && !strangers.is_first(one));
        let [line] = &strangers.lines(true)[..] else {
            panic!("one line");
        };
        let line = serde_json::to_string(line).unwrap();
        assert!(line.contains(r#""peer":"192.0.2.1""#) && line.contains(r#""count":2"#));
    }
}
