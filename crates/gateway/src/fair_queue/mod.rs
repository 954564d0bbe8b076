//! A fair queue of signatures: a state machine without threads, clocks, locks or I/O.
//!
//! Sources take turns, and so do the subnets of one source. A source is in doubt while most of its signatures have not
//! completed a handshake: other sources come before it. A source that has not completed more handshakes
//! than it left open has one slow signature at a time on each seat, and all sources in doubt have one together. So an
//! attacker that does not use its signatures delays the others by the rest of one.

mod group;
mod history;
mod source_queue;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Instant;

use hsmux_token::KeyCapacity;

use crate::source::{ClientSource, subnet};
use group::Group;
use history::Histories;
use source_queue::SourceQueue;

/// `G` names a group of members that signs; groups share nothing. `T` is a waiting entry.
pub struct FairQueue<G, T> {
    limits: Limits,
    groups: HashMap<G, Group<T>>,
    histories: Histories,
    waiting: usize,
    turns: u64,
}

/// How many may wait.
#[derive(Clone, Copy)]
pub struct Limits {
    pub all: usize,
    pub of_source: usize,
}

/// A signature that has begun. Give it back with [`FairQueue::end`].
#[derive(Debug)]
pub struct Grant<G> {
    group: G,
    source: ClientSource,
    since: Instant,
    in_doubt: bool,
}

/// Identifies a waiting entry, to cancel it.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    client: IpAddr,
    number: u64,
}

impl<G> Grant<G> {
    /// The group that signs.
    pub fn group(&self) -> &G {
        &self.group
    }
}

/// If there are more groups, idle ones are dropped: seats come and go.
const GROUPS: usize = 64;

impl<G: Clone + Eq + Hash, T> FairQueue<G, T> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            groups: HashMap::new(),
            histories: Histories::default(),
            waiting: 0,
            turns: 0,
        }
    }

    /// Begins a signature at once, if none waits and there is room.
    pub fn begin(
        &mut self,
        group: &G,
        client: IpAddr,
        capacity: KeyCapacity,
        now: Instant,
    ) -> Option<Grant<G>> {
        let source = ClientSource::of(client);
        let in_doubt = self.histories.is_in_doubt(source, now);
        let is_proven = self.histories.is_proven(source, now);
        let state = self.group(group);
        let has_room = state.has_room(capacity, in_doubt)
            && (is_proven || state.has_room_of(source, capacity));
        (state.order.is_empty() && has_room).then(|| state.grant(group, source, in_doubt, now))
    }

    /// Adds an entry. If the queue is full, an entry of the source with the most is evicted and returned. `Err`: the
    /// new entry itself is refused.
    pub fn push(
        &mut self,
        group: &G,
        client: IpAddr,
        work: T,
        now: Instant,
    ) -> Result<(Ticket, Option<T>), T> {
        let (source, client) = (ClientSource::of(client), subnet(client));
        let in_doubt = self.histories.is_in_doubt(source, now);
        let own = self.waiting_of(source);
        let heaviest = if own >= self.limits.of_source {
            Some(source).filter(|_| self.yields_to(source, client))
        } else if self.waiting >= self.limits.all {
            let heaviest = self.heaviest(now);
            let key = heaviest.map_or((0, false), |(key, _)| key);
            let heaviest = heaviest.filter(|_| key > (own + 1, in_doubt));
            heaviest.map(|(_, source)| source)
        } else {
            None
        };
        let full = own >= self.limits.of_source || self.waiting >= self.limits.all;
        if full && heaviest.is_none() {
            return Err(work);
        }
        let evicted = heaviest.and_then(|source| self.evict(source));
        self.turns += 1;
        let number = self.turns;
        self.group(group)
            .push(source, in_doubt, client, number, work);
        self.waiting += 1;
        Ok((Ticket { client, number }, evicted))
    }

    /// Takes the next entry, if there is room.
    pub fn next(
        &mut self,
        group: &G,
        capacity: KeyCapacity,
        now: Instant,
    ) -> Option<(Grant<G>, T)> {
        self.turns += 1;
        let turn = self.turns;
        let state = self.groups.get_mut(group)?;
        let is_proven = |source| self.histories.is_proven(source, now);
        let source = state.choose(capacity, is_proven)?;
        let queue = state.queues.get_mut(&source)?;
        let in_doubt = queue.in_doubt;
        state.order.remove(&queue.key());
        let work = queue.pop();
        queue.turn = turn;
        if queue.is_empty() {
            state.queues.remove(&source);
        } else {
            state.order.insert((in_doubt, turn), source);
        }
        let work = work?;
        self.waiting -= 1;
        Some((state.grant(group, source, in_doubt, now), work))
    }

    /// Ends a signature, which was `made` or not. Call [`Self::next`] after it until that returns `None`.
    pub fn end(&mut self, grant: &Grant<G>, made: bool, now: Instant) {
        if let Some(group) = self.groups.get_mut(&grant.group) {
            group.end(grant, made, now);
            if self.groups.len() > GROUPS {
                self.groups.retain(|_, group| !group.is_idle());
            }
        }
        if made {
            self.histories.made(grant.source, now);
            self.sort(grant.source, now);
        }
    }

    /// Records that a client has completed its handshake with its signature.
    pub fn completed(&mut self, client: IpAddr, now: Instant) {
        let source = ClientSource::of(client);
        self.histories.completed(source, now);
        self.sort(source, now);
    }

    /// Takes out an entry. `None`: it does not wait any more.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        let source = ClientSource::of(ticket.client);
        let cancel = |group: &mut Group<T>| {
            let queue = group.queues.get_mut(&source)?;
            let work = queue.cancel(ticket.client, ticket.number)?;
            group.tidy(source);
            Some(work)
        };
        let work = self.groups.values_mut().find_map(cancel)?;
        self.waiting -= 1;
        Some(work)
    }

    /// A lower bound of the entries that would come before a new one of this client.
    pub fn before(&self, group: &G, client: IpAddr, now: Instant) -> usize {
        let Some(group) = self.groups.get(group) else {
            return 0;
        };
        let (source, client) = (ClientSource::of(client), subnet(client));
        let own = group
            .queues
            .get(&source)
            .map_or(0, |queue| queue.before(client));
        let in_doubt = self.histories.is_in_doubt(source, now);
        let ahead = |(other, queue): (&ClientSource, &SourceQueue<T>)| {
            let counts = *other != source && (in_doubt || !queue.in_doubt);
            if counts { queue.len().min(own + 1) } else { 0 }
        };
        own + group.queues.iter().map(ahead).sum::<usize>()
    }

    /// Whether a new entry of this client would be taken.
    pub fn admits(&self, client: IpAddr) -> bool {
        let (source, client) = (ClientSource::of(client), subnet(client));
        self.waiting_of(source) < self.limits.of_source || self.yields_to(source, client)
    }

    fn group(&mut self, group: &G) -> &mut Group<T> {
        self.groups.entry(group.clone()).or_insert_with(Group::new)
    }

    fn queues_of(&self, source: ClientSource) -> impl Iterator<Item = &SourceQueue<T>> {
        let groups = self.groups.values();
        groups.filter_map(move |group| group.queues.get(&source))
    }

    fn waiting_of(&self, source: ClientSource) -> usize {
        self.queues_of(source).map(SourceQueue::len).sum()
    }

    /// Whether another subnet of a source has more entries than this one.
    fn yields_to(&self, source: ClientSource, client: IpAddr) -> bool {
        let own: usize = self
            .queues_of(source)
            .map(|queue| queue.len_of(client))
            .sum();
        self.queues_of(source).any(|queue| queue.most() > own + 1)
    }

    /// The source with the most entries, and how many.
    fn heaviest(&self, now: Instant) -> Option<((usize, bool), ClientSource)> {
        let sources = self.groups.values().flat_map(|group| group.queues.keys());
        let weigh = |source: &ClientSource| {
            let in_doubt = self.histories.is_in_doubt(*source, now);
            ((self.waiting_of(*source), in_doubt), *source)
        };
        sources.map(weigh).max_by_key(|(key, _)| *key)
    }

    /// Takes out the last entry of the subnet with the most.
    fn evict(&mut self, source: ClientSource) -> Option<T> {
        let groups = self.groups.values_mut();
        let most = |group: &&mut Group<T>| group.queues.get(&source).map_or(0, SourceQueue::most);
        let group = groups.max_by_key(most)?;
        let work = group.queues.get_mut(&source)?.evict();
        group.tidy(source);
        self.waiting -= usize::from(work.is_some());
        work
    }

    /// Moves a source in the order, after its history has changed.
    fn sort(&mut self, source: ClientSource, now: Instant) {
        let in_doubt = self.histories.is_in_doubt(source, now);
        for group in self.groups.values_mut() {
            if let Some(queue) = group.queues.get_mut(&source)
                && queue.in_doubt != in_doubt
            {
                group.order.remove(&queue.key());
                queue.in_doubt = in_doubt;
                group.order.insert(queue.key(), source);
            }
        }
    }
}
