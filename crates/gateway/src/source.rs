//! Sources of connections: a client with many addresses counts once.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use hsmux_token::Slots;
use parking_lot::Mutex;

use crate::activity::Activity;

/// An address of IPv4, or a /48 of IPv6, which one customer may have (RFC 6177).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientSource(u64, bool);

impl ClientSource {
    /// The source of a client's address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(u32::from(address)), false),
            IpAddr::V6(address) => Self((u128::from(address) >> 80) as u64, true),
        }
    }
}

/// The subnet of a client: an address of IPv4, or the first address of a /64 of IPv6, which one host may have.
pub fn subnet(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)).into(),
    }
}

/// The connections of each source.
pub struct SourceSlots {
    most: usize,
    slots: Mutex<Slots<ClientSource, Arc<Activity>>>,
}

/// A counted connection, until this is dropped.
pub struct SourceSlot {
    sources: Arc<SourceSlots>,
    source: ClientSource,
    number: u64,
}

/// How many connections are searched for an idle one.
const LOOKS: usize = 4096;

impl SourceSlots {
    /// At most so many connections of each source.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            slots: Mutex::default(),
        })
    }

    /// Counts one more. `None`: its source has reached the limit.
    pub fn count(
        self: &Arc<Self>,
        address: IpAddr,
        activity: &Arc<Activity>,
    ) -> Option<SourceSlot> {
        let source = ClientSource::of(address);
        let mut slots = self.slots.lock();
        if slots.of(source) >= self.most {
            return None;
        }
        Some(SourceSlot {
            sources: Arc::clone(self),
            source,
            number: slots.insert(source, Arc::clone(activity)),
        })
    }
}

impl SourceSlot {
    /// Ends an idle connection of the source with the most, to make room for this one. Returns whether there was one.
    pub fn evict_another(&self) -> bool {
        let mut slots = self.sources.slots.lock();
        let evicted = slots.evict_for(self.source, LOOKS, |activity| activity.is_idle());
        drop(slots);
        evicted.inspect(|activity| activity.evict()).is_some()
    }
}

impl Drop for SourceSlot {
    fn drop(&mut self) {
        let removed = self.sources.slots.lock().remove(self.source, self.number);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_ipv4_address_or_an_ipv6_network() {
        let source = |address: &str| ClientSource::of(address.parse().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:0:1"));
        assert_eq!(source("2001:db8::1"), source("2001:db8:0:ffff::1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:1::1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_ne!(source("0.0.0.1"), source("0:0:1::"));
    }

    #[test]
    fn a_source_of_ipv6_has_subnets_of_64_bits() {
        let subnet = |address: &str| subnet(address.parse().unwrap()).to_string();
        assert_eq!(subnet("2001:db8::ffff:0:0:1"), "2001:db8::");
        assert_eq!(subnet("2001:db8:0:1::1"), "2001:db8:0:1::");
        assert_eq!(subnet("::ffff:192.0.2.1"), "192.0.2.1");
    }

    #[test]
    fn each_source_has_its_own_limit() {
        let sources = SourceSlots::new(2);
        let count = |address: &str| sources.count(address.parse().unwrap(), &Activity::new());
        let first = count("2001:db8::1");
        let second = count("2001:db8::2");
        assert!(first.is_some() && second.is_some());
        assert!(count("2001:db8:0:3::").is_none());
        assert!(count("192.0.2.1").is_some());
        drop(first);
        assert!(count("2001:db8::3").is_some());
        drop(second);
        assert!(sources.slots.lock().is_empty());
    }

    #[test]
    fn an_idle_connection_of_the_source_with_the_most_is_evicted_once() {
        let sources = SourceSlots::new(10);
        let count = |address: &str| {
            let activity = Activity::new();
            activity.begin();
            let counted = sources.count(address.parse().unwrap(), &activity);
            (counted.unwrap(), activity)
        };
        let many: Vec<_> = (0..3).map(|_| count("192.0.2.1")).collect();
        many[0].1.mark_busy();
        let (few, _) = count("192.0.2.2");
        assert!(few.evict_another());
        let evicted = many.iter().map(|(_, activity)| activity.is_evicted());
        assert_eq!(evicted.collect::<Vec<_>>(), [false, true, false]);
        assert!(!many[2].0.evict_another());
        assert!(few.evict_another() && !few.evict_another());
        drop((many, few));
        assert!(sources.slots.lock().is_empty());
    }
}
