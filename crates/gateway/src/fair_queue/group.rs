//! The signatures of one group of members: those that have begun, and those that wait.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use hsmux_token::KeyCapacity;

use super::Grant;
use super::source_queue::SourceQueue;
use crate::source::ClientSource;

pub struct Group<T> {
    pub queues: HashMap<ClientSource, SourceQueue<T>>,
    /// Waiting sources: those in doubt come last, and then by their turn.
    pub order: BTreeMap<(bool, u64), ClientSource>,
    begun: usize,
    begun_in_doubt: usize,
    /// Those of each source, at least one.
    begun_of: HashMap<ClientSource, usize>,
    /// Duration of the last signature.
    took: Option<Duration>,
    /// How often others were served in the turn of a source in doubt.
    passed: u32,
}

/// After so many turns given to others, a source in doubt has its own: none waits for ever.
const PASSES: u32 = 8;

/// A shorter signature delays others too little to matter.
const SLOW: Duration = Duration::from_millis(10);

impl<T> Group<T> {
    pub fn new() -> Self {
        Self {
            queues: HashMap::new(),
            order: BTreeMap::new(),
            begun: 0,
            begun_in_doubt: 0,
            begun_of: HashMap::new(),
            took: None,
            passed: 0,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.begun == 0 && self.order.is_empty()
    }

    fn is_fast(&self) -> bool {
        self.took.is_some_and(|took| took < SLOW)
    }

    pub fn has_room(&self, capacity: KeyCapacity, in_doubt: bool) -> bool {
        let doubted_room = self.is_fast() || self.begun_in_doubt < capacity.members;
        self.begun < capacity.uses && (!in_doubt || doubted_room)
    }

    /// Whether a source that has not proved itself may begin another one. A token may do one at a time, in spite of its
    /// lanes: others would wait for all that such a source has begun.
    pub fn has_room_of(&self, source: ClientSource, capacity: KeyCapacity) -> bool {
        let begun = self.begun_of.get(&source).copied().unwrap_or(0);
        self.is_fast() || begun < capacity.members
    }

    pub fn grant<G: Clone>(
        &mut self,
        group: &G,
        source: ClientSource,
        in_doubt: bool,
        now: Instant,
    ) -> Grant<G> {
        self.begun += 1;
        self.begun_in_doubt += usize::from(in_doubt);
        *self.begun_of.entry(source).or_default() += 1;
        Grant {
            group: group.clone(),
            source,
            since: now,
            in_doubt,
        }
    }

    pub fn push(
        &mut self,
        source: ClientSource,
        in_doubt: bool,
        client: IpAddr,
        number: u64,
        work: T,
    ) {
        let queue = self.queues.entry(source).or_insert_with(|| {
            self.order.insert((in_doubt, number), source);
            SourceQueue::new(in_doubt, number)
        });
        queue.push(client, number, work);
    }

    /// Ends a signature, which was `made` or not.
    pub fn end<G>(&mut self, grant: &Grant<G>, made: bool, now: Instant) {
        self.begun -= 1;
        self.begun_in_doubt -= usize::from(grant.in_doubt);
        if let Entry::Occupied(mut begun) = self.begun_of.entry(grant.source) {
            *begun.get_mut() -= 1;
            if *begun.get() == 0 {
                begun.remove();
            }
        }
        if made {
            self.took = Some(now.saturating_duration_since(grant.since));
        }
    }

    /// The source that is next. Each one that is passed over has begun signatures, so there are few.
    pub fn choose(
        &mut self,
        capacity: KeyCapacity,
        is_proven: impl Fn(ClientSource) -> bool,
    ) -> Option<ClientSource> {
        let first = |in_doubt: bool| {
            if !self.has_room(capacity, in_doubt) {
                return None;
            }
            let all = self.order.range((in_doubt, 0)..=(in_doubt, u64::MAX));
            let mut all = all.map(|((_, turn), source)| (*turn, *source));
            all.find(|(_, source)| is_proven(*source) || self.has_room_of(*source, capacity))
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
    pub fn tidy(&mut self, source: ClientSource) {
        if let Some(queue) = self.queues.get(&source)
            && queue.is_empty()
        {
            self.order.remove(&queue.key());
            self.queues.remove(&source);
        }
    }
}
