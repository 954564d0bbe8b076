//! The waiting signatures of one source. Its subnets take turns.

use std::collections::VecDeque;
use std::net::IpAddr;

pub struct SourceQueue<T> {
    pub in_doubt: bool,
    /// The source with the lowest number is next.
    pub turn: u64,
    /// One of each subnet; the first is next.
    subnets: VecDeque<SubnetQueue<T>>,
    len: usize,
}

/// Never empty.
struct SubnetQueue<T> {
    subnet: IpAddr,
    /// In ascending order of their numbers.
    waiting: VecDeque<(u64, T)>,
}

impl<T> SourceQueue<T> {
    pub fn new(in_doubt: bool, turn: u64) -> Self {
        Self {
            in_doubt,
            turn,
            subnets: VecDeque::new(),
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

    pub fn push(&mut self, subnet: IpAddr, number: u64, work: T) {
        self.len += 1;
        match self.at(subnet) {
            Some(at) => self.subnets[at].waiting.push_back((number, work)),
            None => self.subnets.push_back(SubnetQueue {
                subnet,
                waiting: VecDeque::from([(number, work)]),
            }),
        }
    }

    /// Takes out the next one.
    pub fn pop(&mut self) -> Option<T> {
        let mut queue = self.subnets.pop_front()?;
        let (_, work) = queue.waiting.pop_front()?;
        self.len -= 1;
        if !queue.waiting.is_empty() {
            self.subnets.push_back(queue);
        }
        Some(work)
    }

    pub fn cancel(&mut self, subnet: IpAddr, number: u64) -> Option<T> {
        let at = self.at(subnet)?;
        let waiting = &mut self.subnets[at].waiting;
        let position = waiting.binary_search_by_key(&number, |(number, _)| *number);
        let (_, work) = waiting.remove(position.ok()?)?;
        self.shrink(at);
        Some(work)
    }

    /// Takes out the last one of the subnet with the most.
    pub fn evict(&mut self) -> Option<T> {
        let all = self.subnets.iter().enumerate();
        let (at, _) = all.max_by_key(|(_, queue)| queue.waiting.len())?;
        let (_, work) = self.subnets[at].waiting.pop_back()?;
        self.shrink(at);
        Some(work)
    }

    pub fn len_of(&self, subnet: IpAddr) -> usize {
        self.at(subnet)
            .map_or(0, |at| self.subnets[at].waiting.len())
    }

    /// How many the subnet with the most has.
    pub fn most(&self) -> usize {
        let each = self.subnets.iter().map(|queue| queue.waiting.len());
        each.max().unwrap_or(0)
    }

    /// How many would come before one more of this subnet.
    pub fn before(&self, subnet: IpAddr) -> usize {
        let own = self.len_of(subnet);
        let ahead = |queue: &SubnetQueue<T>| {
            let turns = own + usize::from(queue.subnet != subnet);
            queue.waiting.len().min(turns)
        };
        self.subnets.iter().map(ahead).sum()
    }

    fn at(&self, subnet: IpAddr) -> Option<usize> {
        self.subnets.iter().position(|queue| queue.subnet == subnet)
    }

    /// Counts one that was taken out, and drops a subnet without any.
    fn shrink(&mut self, at: usize) {
        self.len -= 1;
        if self.subnets[at].waiting.is_empty() {
            self.subnets.remove(at);
        }
    }
}
