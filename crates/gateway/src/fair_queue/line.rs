//! The waiting signatures of one source. Its subnets take turns.

use std::collections::VecDeque;
use std::net::IpAddr;

pub struct Line<T> {
    pub in_doubt: bool,
    /// The source with the lowest number is next.
    pub turn: u64,
    /// One of each subnet; the first is next.
    addresses: VecDeque<Address<T>>,
    len: usize,
}

/// Never empty.
struct Address<T> {
    client: IpAddr,
    /// In ascending order of their numbers.
    waiting: VecDeque<(u64, T)>,
}

impl<T> Line<T> {
    pub fn new(in_doubt: bool, turn: u64) -> Self {
        Self {
            in_doubt,
            turn,
            addresses: VecDeque::new(),
            len: 0,
        }
    }

    pub fn key(&self) -> (bool, u64) {
        (self.in_doubt, self.turn)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, client: IpAddr, number: u64, work: T) {
        self.len += 1;
        match self.at(client) {
            Some(at) => self.addresses[at].waiting.push_back((number, work)),
            None => self.addresses.push_back(Address {
                client,
                waiting: VecDeque::from([(number, work)]),
            }),
        }
    }

    /// Takes out the next one.
    pub fn pop(&mut self) -> Option<T> {
        let mut address = self.addresses.pop_front()?;
        let (_, work) = address.waiting.pop_front()?;
        self.len -= 1;
        if !address.waiting.is_empty() {
            self.addresses.push_back(address);
        }
        Some(work)
    }

    pub fn cancel(&mut self, client: IpAddr, number: u64) -> Option<T> {
        let at = self.at(client)?;
        let waiting = &mut self.addresses[at].waiting;
        let place = waiting.binary_search_by_key(&number, |(number, _)| *number);
        let (_, work) = waiting.remove(place.ok()?)?;
        self.shrink(at);
        Some(work)
    }

    /// Takes out the last one of the subnet with the most.
    pub fn evict(&mut self) -> Option<T> {
        let all = self.addresses.iter().enumerate();
        let (at, _) = all.max_by_key(|(_, address)| address.waiting.len())?;
        let (_, work) = self.addresses[at].waiting.pop_back()?;
        self.shrink(at);
        Some(work)
    }

    pub fn len_of(&self, client: IpAddr) -> usize {
        self.at(client)
            .map_or(0, |at| self.addresses[at].waiting.len())
    }

    /// How many the subnet with the most has.
    pub fn most(&self) -> usize {
        let each = self.addresses.iter().map(|address| address.waiting.len());
        each.max().unwrap_or(0)
    }

    /// How many would come before one more of this subnet.
    pub fn before(&self, client: IpAddr) -> usize {
        let own = self.len_of(client);
        let each = self.addresses.iter();
        each.map(|address| {
            address
                .waiting
                .len()
                .min(own + usize::from(address.client != client))
        })
        .sum()
    }

    fn at(&self, client: IpAddr) -> Option<usize> {
        self.addresses
            .iter()
            .position(|address| address.client == client)
    }

    /// Counts one that was taken out, and drops a subnet without any.
    fn shrink(&mut self, at: usize) {
        self.len -= 1;
        if self.addresses[at].waiting.is_empty() {
            self.addresses.remove(at);
        }
    }
}
