//! Where a client is: one that has many addresses counts once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// An address of IPv4, or a /48 of IPv6: as many as one customer of a network may have (RFC 6177).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientSource(u64, bool);

impl ClientSource {
    /// Of a client's address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(u32::from(address)), false),
            IpAddr::V6(address) => Self((u128::from(address) >> 80) as u64, true),
        }
    }
}

/// The client within its source: an address of IPv4, or the first of a /64 of IPv6, of which one host has all.
pub fn subnet(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)).into(),
    }
}

/// How many connections each source has.
pub struct SourceCounts {
    most: usize,
    held: Mutex<HashMap<ClientSource, usize>>,
}

/// One of them, until this is dropped.
pub struct Counted {
    sources: Arc<SourceCounts>,
    source: ClientSource,
}

impl SourceCounts {
    /// So many of each at most.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            held: Mutex::default(),
        })
    }

    /// One more; `None`: it has as many as it may.
    pub fn count(self: &Arc<Self>, address: IpAddr) -> Option<Counted> {
        let source = ClientSource::of(address);
        let mut held = self.held.lock();
        let count = held.entry(source).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Counted {
            sources: Arc::clone(self),
            source,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Entry::Occupied(mut held) = self.sources.held.lock().entry(self.source) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_source_and_an_address_of_ipv4_is() {
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
    fn a_source_has_so_many_and_others_have_theirs() {
        let sources = SourceCounts::new(2);
        let count = |address: &str| sources.count(address.parse().unwrap());
        let first = count("2001:db8::1");
        let second = count("2001:db8::2");
        assert!(first.is_some() && second.is_some());
        assert!(count("2001:db8:0:3::").is_none());
        assert!(count("192.0.2.1").is_some());
        drop(first);
        assert!(count("2001:db8::3").is_some());
        drop(second);
        assert!(sources.held.lock().is_empty());
    }
}
