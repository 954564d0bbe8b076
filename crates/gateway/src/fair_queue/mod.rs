//! A fair queue of signatures: a state machine without threads, clocks, locks or I/O.
//!
//! Sources take turns, and so do the subnets of one source. A source is in doubt while most of its signatures have not
//! completed a handshake. Other sources come before it, and it has one slow signature at a time on each seat. So an
//! attacker that does not use its signatures delays the others by the rest of one.

mod history;
mod source_queue;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use hsmux_token::KeyCapacity;

use crate::source::{ClientSource, subnet};
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

struct Group<T> {
    queues: HashMap<ClientSource, SourceQueue<T>>,
    /// Waiting sources: those in doubt come last, and then by their turn.
    order: BTreeMap<(bool, u64), ClientSource>,
    begun: usize,
    begun_in_doubt: usize,
    /// Duration of the last signature.
    took: Option<Duration>,
    /// How often others were served in the turn of a source in doubt.
    passed: u32,
}

/// After so many turns given to others, a source in doubt has its own: none waits for ever.
const PASSES: u32 = 8;

/// A shorter signature delays others too little to matter.
const SLOW: Duration = Duration::from_millis(10);

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
        let state = self.group(group);
        (state.order.is_empty() && state.has_room(capacity, in_doubt))
            .then(|| state.grant(group, source, in_doubt, now))
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
        let source = state.choose(capacity)?;
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
            group.begun -= 1;
            group.begun_in_doubt -= usize::from(grant.in_doubt);
            if made {
                group.took = Some(now.saturating_duration_since(grant.since));
            }
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

impl<T> Group<T> {
    fn new() -> Self {
        Self {
            queues: HashMap::new(),
            order: BTreeMap::new(),
            begun: 0,
            begun_in_doubt: 0,
            took: None,
            passed: 0,
        }
    }

    fn is_idle(&self) -> bool {
        self.begun == 0 && self.order.is_empty()
    }

    fn has_room(&self, capacity: KeyCapacity, in_doubt: bool) -> bool {
        let is_fast = self.took.is_some_and(|took| took < SLOW);
        let most = if in_doubt && !is_fast {
            capacity.members
        } else {
            usize::MAX
        };
        self.begun < capacity.uses && (!in_doubt || self.begun_in_doubt < most)
    }

    fn grant<G: Clone>(
        &mut self,
        group: &G,
        source: ClientSource,
        in_doubt: bool,
        now: Instant,
    ) -> Grant<G> {
        self.begun += 1;
        self.begun_in_doubt += usize::from(in_doubt);
        Grant {
            group: group.clone(),
            source,
            since: now,
            in_doubt,
        }
    }

    fn push(&mut self, source: ClientSource, in_doubt: bool, client: IpAddr, number: u64, work: T) {
        let queue = self.queues.entry(source).or_insert_with(|| {
            self.order.insert((in_doubt, number), source);
            SourceQueue::new(in_doubt, number)
        });
        queue.push(client, number, work);
    }

    /// The source that is next.
    fn choose(&mut self, capacity: KeyCapacity) -> Option<ClientSource> {
        let first = |in_doubt: bool| {
            let all = self.order.range((in_doubt, 0)..=(in_doubt, u64::MAX));
            let first = all.map(|((_, turn), source)| (*turn, *source)).next();
            first.filter(|_| self.has_room(capacity, in_doubt))
        };
        let (trusted, doubted) = (first(false), first(true));
        let has_waited = matches!((trusted, doubted), (Some(one), Some(other)) if other.0 < one.0);
        match trusted {
            Some((_, source)) if !has_waited || self.passed < PASSES => {
                self.passed = if has_waited { self.passed + 1 } else { 0 };
                Some(source)
            }
            _ => {
                let (_, source) = doubted?;
                self.passed = 0;
                Some(source)
            }
        }
    }

    /// Drops a source without entries.
    fn tidy(&mut self, source: ClientSource) {
        if let Some(queue) = self.queues.get(&source)
            && queue.is_empty()
        {
            self.order.remove(&queue.key());
            self.queues.remove(&source);
        }
    }
}
