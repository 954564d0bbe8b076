//! Which connections a worker's thread hears next: users take turns, and each turn is one use.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use rustix::event::epoll;

use super::connection::{ConnectionReader, MOST_USES, ReadResult};
use super::round::Round;
use super::{Direct, HOME, TOGETHER};

impl Direct {
    /// Ends connections whose program has hung up, or the daemon, while uses are still to be done.
    pub(super) fn end_hung_up(&self, events: &[epoll::Event], unfinished: &mut Vec<u64>) {
        let has_hung_up = |number: &u64| {
            let mut of_number = events.iter().filter(|event| event.data.u64() == *number);
            of_number.any(|event| {
                let flags = event.flags;
                flags.contains(epoll::EventFlags::HUP)
            })
        };
        unfinished.retain(|number| {
            let hung_up = has_hung_up(number);
            if hung_up {
                self.remove(&mut self.readers.lock(), number & !HOME);
            }
            !hung_up
        });
    }

    /// Which of the connections that are ready are heard together, before what they ask for is done.
    pub(super) fn turns<'a>(&self, ready: &'a mut Vec<u64>) -> std::slice::Chunks<'a, u64> {
        if self.users.load(Ordering::Relaxed) > 1 {
            self.keep_one_of_each_user(ready);
            return ready.chunks(1);
        }
        if self.shared.load(Ordering::Relaxed) == 0 {
            return ready.chunks(TOGETHER);
        }
        let is_at_home = |number: &u64| number & HOME != 0;
        // Of the others one in each round: the kernel has woken this thread for it, perhaps, and nobody else.
        let other = ready.iter().copied().find(|number| !is_at_home(number));
        ready.retain(is_at_home);
        ready.extend(other);
        ready.chunks(1)
    }

    /// The connection of each user whose turn was the longest ago; the user first whose last turn was.
    fn keep_one_of_each_user(&self, ready: &mut Vec<u64>) {
        let mut readers = self.readers.lock();
        let mut last_turns = HashMap::new();
        for reader in readers.values() {
            let last = last_turns
                .entry(reader.connection.account)
                .or_insert(reader.turn);
            *last = reader.turn.max(*last);
        }
        ready.retain(|number| readers.contains_key(&(number & !HOME)));
        let reader = |number: &u64| &readers[&(number & !HOME)];
        ready.sort_by_cached_key(|number| {
            let reader = reader(number);
            let order = (!reader.is_unfinished(), !reader.home, reader.turn);
            (reader.connection.account, order)
        });
        ready.dedup_by_key(|number| reader(number).connection.account);
        ready.sort_by_key(|number| last_turns[&reader(number).connection.account]);
        for number in ready {
            if let Some(reader) = readers.get_mut(&(*number & !HOME)) {
                reader.turn = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
            }
        }
    }

    pub(super) fn hear(&self, ready: &[u64], round: &mut Round) {
        // Users take turns by uses, not by frames.
        let several_users = self.users.load(Ordering::Relaxed) > 1;
        let most = if several_users {
            1
        } else {
            TOGETHER / ready.len().max(1)
        };
        let most = most.clamp(1, MOST_USES);
        let mut readers = self.readers.lock();
        for number in ready {
            let number = number & !HOME;
            let Some(reader) = readers.get_mut(&number) else {
                continue;
            };
            let goes_on = match reader.hear(&mut round.chunk[..]) {
                ReadResult::Nothing => true,
                ReadResult::Asked => {
                    let refused = round.add(number, reader.take(most));
                    refused.is_none_or(|refused| reader.finish(refused.into_iter(), &mut round.out))
                }
                ReadResult::Ended => false,
            };
            if !goes_on {
                self.remove(&mut readers, number);
            }
        }
    }

    /// Adds the connections of this turn to those of which uses are still to be done, and removes the others.
    pub(super) fn note_unfinished(&self, turn: &[u64], unfinished: &mut Vec<u64>) {
        let readers = self.readers.lock();
        let is_unfinished = |number: &u64| {
            let reader = readers.get(&(number & !HOME));
            reader.is_some_and(ConnectionReader::is_unfinished)
        };
        unfinished.retain(|number| !turn.contains(number) && is_unfinished(number));
        unfinished.extend(turn.iter().filter(|number| is_unfinished(number)));
    }
}
