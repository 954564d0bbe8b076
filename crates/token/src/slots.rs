//! Slots of a bounded number of connections. If all are taken, the user with the most connections gives up its oldest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// Connections by user, each in the order in which they came.
#[derive(Debug)]
pub struct Slots<K, T> {
    users: HashMap<K, BTreeMap<u64, T>>,
    /// How many each user has, so that the one with the most is found at once.
    counts: BTreeSet<(usize, K)>,
    /// Where [`Self::evict_for`] goes on to look at each user's connections: after those that it has seen busy.
    seen: HashMap<K, u64>,
    len: usize,
    next: u64,
}

impl<K, T> Default for Slots<K, T> {
    fn default() -> Self {
        Self {
            users: HashMap::new(),
            counts: BTreeSet::new(),
            seen: HashMap::new(),
            len: 0,
            next: 0,
        }
    }
}

impl<K: Copy + Ord + Hash, T> Slots<K, T> {
    /// Slots that are taken.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no slot is taken.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Slots of one user.
    pub fn of(&self, user: K) -> usize {
        self.users.get(&user).map_or(0, BTreeMap::len)
    }

    /// Takes a slot; answers its number, for [`Self::remove`].
    pub fn insert(&mut self, user: K, connection: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.change(user, |all| all.insert(number, connection));
        number
    }

    /// Frees a slot, if it is still taken.
    pub fn remove(&mut self, user: K, number: u64) -> Option<T> {
        self.change(user, |all| all.remove(&number))
    }

    /// The user with the most slots, and how many these are.
    pub fn largest(&self) -> Option<(K, usize)> {
        self.counts.last().map(|&(count, user)| (user, count))
    }

    /// Frees a slot of a user: of its oldest connection that may go, or of its oldest at all.
    pub fn evict(&mut self, user: K, mut may_go: impl FnMut(&T) -> bool) -> Option<T> {
        let all = self.users.get(&user)?;
        let idle = all.iter().find(|(_, connection)| may_go(connection));
        let (&number, _) = idle.or_else(|| all.first_key_value())?;
        self.remove(user, number)
    }

    /// Frees a slot of another user, for a connection of this one that has a slot already: of the user with the most
    /// slots, its oldest connection that may go. A user with several slots takes none from one that would have fewer
    /// afterwards. It looks at `looks` connections at most, and first at those that it has not seen busy.
    pub fn evict_for(
        &mut self,
        user: K,
        mut looks: usize,
        mut may_go: impl FnMut(&T) -> bool,
    ) -> Option<T> {
        let own = self.of(user);
        let least = if own > 1 { own + 1 } else { 1 };
        let all = self.counts.iter().rev();
        let largest_first = all.take_while(|(count, _)| *count >= least);
        for &(_, other) in largest_first.filter(|(_, other)| *other != user) {
            let Some(all) = self.users.get(&other) else {
                continue;
            };
            let seen = self.seen.entry(other).or_default();
            let in_turn = all.range(*seen..).chain(all.range(..*seen));
            for (&number, connection) in in_turn.take(looks) {
                looks -= 1;
                *seen = number + 1;
                if may_go(connection) {
                    return self.remove(other, number);
                }
            }
            if looks == 0 {
                break;
            }
        }
        None
    }

    fn change<R>(&mut self, user: K, change: impl FnOnce(&mut BTreeMap<u64, T>) -> R) -> R {
        let all = self.users.entry(user).or_default();
        let before = all.len();
        let changed = change(all);
        let now = all.len();
        self.len = self.len - before + now;
        self.counts.remove(&(before, user));
        if now == 0 {
            self.users.remove(&user);
            self.seen.remove(&user);
        } else {
            self.counts.insert((now, user));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_with_most_gives_up_its_oldest_that_may_go() {
        let mut slots = Slots::default();
        slots.insert('a', 0);
        let second = slots.insert('b', 1);
        slots.insert('b', 2);
        slots.insert('b', 3);
        assert_eq!((slots.len(), slots.of('a'), slots.of('b')), (4, 1, 3));
        assert_eq!(slots.largest(), Some(('b', 3)));
        assert_eq!(slots.evict('b', |number| number % 2 == 0), Some(2));
        // None of them may go: then the oldest does.
        assert_eq!(slots.evict('b', |_| false), Some(1));
        assert_eq!(slots.remove('b', second), None);
        assert_eq!((slots.len(), slots.of('b')), (2, 1));
    }

    #[test]
    fn the_oldest_idle_one_of_the_user_with_most_gives_way() {
        let mut slots = Slots::default();
        for (user, busy) in [('a', true), ('a', false), ('b', false), ('b', false)] {
            slots.insert(user, busy);
        }
        slots.insert('c', true);
        slots.insert('b', false);
        let third = slots.insert('b', true);
        let evict = |slots: &mut Slots<_, _>, user| {
            let before = [slots.of('a'), slots.of('b')];
            slots.evict_for(user, 100, |busy: &bool| !busy)?;
            Some([before[0] - slots.of('a'), before[1] - slots.of('b')])
        };
        // a has 2, b 4, c 1.
        assert_eq!(evict(&mut slots, 'c'), Some([0, 1]));
        assert_eq!(evict(&mut slots, 'a'), Some([0, 1]));
        // One that has several takes none from one that has no more, and nobody takes its own.
        assert_eq!(evict(&mut slots, 'a'), None);
        assert_eq!(evict(&mut slots, 'b'), None);
        assert_eq!(evict(&mut slots, 'c'), Some([0, 1]));
        // All of b are busy now: a is the next.
        assert!(slots.remove('b', third).is_some());
        slots.insert('b', true);
        slots.insert('b', true);
        assert_eq!(evict(&mut slots, 'c'), Some([1, 0]));
        assert_eq!(evict(&mut slots, 'c'), None);
        assert_eq!(slots.of('a'), 1);
    }

    #[test]
    fn busy_connections_are_looked_at_so_often_and_not_again_at_once() {
        let mut slots = Slots::default();
        for number in 0..10 {
            slots.insert('a', number);
        }
        slots.insert('b', 10);
        let mut looks = 0;
        let mut evict = |slots: &mut Slots<_, _>| {
            slots.evict_for('b', 4, |number| {
                looks += 1;
                *number == 6
            })
        };
        assert_eq!(evict(&mut slots), None);
        assert_eq!(evict(&mut slots), Some(6));
        assert_eq!(evict(&mut slots), None);
        assert_eq!(looks, 4 + 3 + 4);
    }

    #[test]
    fn users_without_connections_are_forgotten() {
        let mut slots = Slots::default();
        let number = slots.insert(7, ());
        assert_eq!(slots.remove(7, number), Some(()));
        assert_eq!(slots.remove(8, 0), None);
        assert_eq!(slots.evict(7, |()| true), None);
        assert!(slots.is_empty() && slots.users.is_empty() && slots.counts.is_empty());
        assert!(slots.seen.is_empty());
        assert_eq!(slots.largest(), None);
    }
}
