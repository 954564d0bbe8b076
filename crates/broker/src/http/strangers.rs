//! What strangers are denied, as the trail has it: the first of each address, and how many more there were in the
//! minute after it. Nobody who may do nothing fills the trail.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsmux_audit::{Actor, Event};
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::limits::{Address, network};

/// Addresses of now, each with what has been denied since its first.
#[derive(Default)]
pub struct Strangers(Mutex<HashMap<Address, Tally>>);

struct Tally {
    since: Instant,
    more: u64,
}

/// How long denials of an address are counted before they are a line.
const MINUTE: Duration = Duration::from_secs(60);

/// So many addresses at once; what comes from others is counted under no address.
const MANY: usize = 1000;

impl Strangers {
    /// Counts a denial; whether it is one that has a line of its own.
    pub fn is_first(&self, address: Address) -> bool {
        let mut tallies = self.0.lock();
        let mut address = network(address);
        if tallies.len() >= MANY && !tallies.contains_key(&address) {
            address = None;
        }
        let mut first = false;
        let tally = tallies.entry(address).or_insert_with(|| {
            first = true;
            Tally {
                since: Instant::now(),
                more: 0,
            }
        });
        tally.more += u64::from(!first);
        first
    }

    /// What was counted of those whose minute is over; of all at the end.
    pub fn lines(&self, end: bool) -> Vec<Event> {
        let mut tallies = self.0.lock();
        let over = tallies.extract_if(|_, tally| end || tally.since.elapsed() >= MINUTE);
        let counted = over.filter(|(_, tally)| tally.more > 0);
        counted
            .map(|(address, tally)| line(address, &tally))
            .collect()
    }
}

fn line(address: Address, tally: &Tally) -> Event {
    let peer = address.map_or_else(|| "other addresses".into(), |address| address.to_string());
    let actor = Actor::client("anonymous", peer);
    let seconds = tally.since.elapsed().as_secs().max(1);
    let fields: Map<String, Value> = [
        ("count".to_owned(), tally.more.into()),
        ("seconds".to_owned(), seconds.into()),
    ]
    .into_iter()
    .collect();
    Event::act(&Arc::new(actor), "broker-denied", fields).outcome("permission denied")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn counts(strangers: &Strangers) -> Vec<String> {
        let lines = strangers.lines(true);
        let text = |line: &Event| serde_json::to_string(line).unwrap();
        lines.iter().map(text).collect()
    }

    #[test]
    fn the_first_of_each_address_and_the_number_of_the_others() {
        let strangers = Strangers::default();
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().ok());
        assert!(strangers.is_first(one) && strangers.is_first(other));
        assert!(!strangers.is_first(one) && !strangers.is_first(one));
        assert!(strangers.lines(false).is_empty(), "its minute is not over");
        let [line] = &counts(&strangers)[..] else {
            panic!("one line");
        };
        assert!(line.contains(r#""peer":"192.0.2.1""#) && line.contains(r#""count":2"#));
        assert!(strangers.is_first(one), "another minute");
    }

    #[test]
    fn however_many_addresses_there_are() {
        let strangers = Strangers::default();
        let address = |n: u32| Some(IpAddr::from(n.to_be_bytes()));
        let many = u32::try_from(MANY).unwrap();
        let first = |n: &u32| strangers.is_first(address(*n));
        assert_eq!((0..2 * many).filter(first).count(), MANY + 1);
        let [line] = &counts(&strangers)[..] else {
            panic!("one line");
        };
        let others = format!(r#""count":{}"#, MANY - 1);
        assert!(
            line.contains("other addresses") && line.contains(&others),
            "{line}"
        );
    }
}
