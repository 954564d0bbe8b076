//! Equal shares of what several owners want at the same time: start-time fair queueing (Goyal, Vin and Cheng, 1996),
//! in which the owner that has had least is served next.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

#[cfg(test)]
mod tests;

/// How many of a bounded number of places one owner may take: half of what others have not. So there is one for
/// whoever comes next.
pub fn share(places: usize, of_others: usize) -> usize {
    places.saturating_sub(of_others).div_ceil(2)
}

/// What each owner has had. An owner that asked for nothing saves nothing: it starts level with the others.
#[derive(Debug)]
pub struct FairShares<K> {
    had: HashMap<K, u64>,
    /// What the owner that was served last had had by then. Nobody counts as having had less.
    floor: u64,
    /// With so many owners, those that are level with the floor are forgotten.
    sweep_at: usize,
}

/// Owners that are remembered at least.
const REMEMBERED: usize = 64;

/// Owners that are remembered at most: with more, all start level again.
const MOST_REMEMBERED: usize = 4096;

impl<K> Default for FairShares<K> {
    fn default() -> Self {
        Self {
            had: HashMap::new(),
            floor: 0,
            sweep_at: REMEMBERED,
        }
    }
}

impl<K: Copy + Eq + Hash> FairShares<K> {
    /// What this owner has had: the owner with the least is next.
    pub fn had(&self, owner: K) -> u64 {
        let had = self.had.get(&owner).copied();
        had.unwrap_or_default().max(self.floor)
    }

    /// The same beyond what everybody counts as having had.
    pub fn ahead(&self, owner: K) -> u64 {
        self.had(owner) - self.floor
    }

    /// The owner is served with work of this cost.
    pub fn charge(&mut self, owner: K, cost: u64) {
        self.charge_before(owner, cost, u64::MAX);
    }

    /// The same before others who could not be served: of those that wait the one that has had `least` keeps its claim.
    pub fn charge_before(&mut self, owner: K, cost: u64, least: u64) {
        let before = self.had(owner);
        self.floor = self.floor.max(before.min(least));
        if self.had.len() >= self.sweep_at {
            self.sweep();
        }
        self.had.insert(owner, before.saturating_add(cost));
    }

    fn sweep(&mut self) {
        self.had.retain(|_, had| *had > self.floor);
        if self.had.len() >= MOST_REMEMBERED {
            self.had.clear();
        }
        self.sweep_at = (2 * self.had.len()).max(REMEMBERED);
    }
}

/// A bounded queue with a line for each owner. Owners take turns; each line is first in, first out.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    bound: usize,
    len: usize,
    lines: HashMap<K, VecDeque<(u64, T)>>,
    shares: FairShares<K>,
    sequence: u64,
}

/// What a full queue has no place for.
#[derive(Debug, PartialEq, Eq)]
pub struct Displaced<T>(pub T);

impl<K: Copy + Eq + Hash, T> FairQueue<K, T> {
    /// For so many entries of all owners.
    pub fn new(bound: usize) -> Self {
        Self {
            bound: bound.max(1),
            len: 0,
            lines: HashMap::new(),
            shares: FairShares::default(),
            sequence: 0,
        }
    }

    /// Entries of all owners.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an entry. If the queue is full, the owner with the most entries loses its newest one: perhaps this one.
    pub fn push(&mut self, owner: K, entry: T) -> Option<Displaced<T>> {
        self.sequence += 1;
        let line = self.lines.entry(owner).or_default();
        line.push_back((self.sequence, entry));
        let own = line.len();
        self.len += 1;
        if self.len <= self.bound {
            return None;
        }
        let longest = self.lines.iter().max_by_key(|(_, line)| line.len());
        // Nobody makes room for an owner that has as many.
        let loser = longest
            .filter(|(_, line)| line.len() > own)
            .map_or(owner, |(loser, _)| *loser);
        let (_, entry) = self.lines.get_mut(&loser)?.pop_back()?;
        self.removed(loser);
        Some(Displaced(entry))
    }

    /// The oldest entry of the owner that has had the fewest turns.
    pub fn pop(&mut self) -> Option<T> {
        let turn = |(owner, line): (&K, &VecDeque<(u64, T)>)| {
            let (sequence, _) = line.front()?;
            Some((self.shares.had(*owner), *sequence, *owner))
        };
        let turns = self.lines.iter().filter_map(turn);
        let (.., owner) = turns.min_by_key(|(had, sequence, _)| (*had, *sequence))?;
        let (_, entry) = self.lines.get_mut(&owner)?.pop_front()?;
        self.shares.charge(owner, 1);
        self.removed(owner);
        Some(entry)
    }

    /// Takes everything out.
    pub fn drain(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    fn removed(&mut self, owner: K) {
        self.len -= 1;
        if self.lines.get(&owner).is_some_and(VecDeque::is_empty) {
            self.lines.remove(&owner);
        }
    }
}
