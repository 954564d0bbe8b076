//! Whose source is served next where sources of several users are ready: a state machine without descriptors.

use std::collections::HashMap;
use std::time::Duration;

use hsmux_token::FairShares;

/// Whose a source is: see [`super::Source::user`].
pub(crate) type User = u64;

/// A source that is ready, with what it is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready<F> {
    pub user: User,
    pub id: u64,
    pub what: F,
}

/// The sources of one round, and what each user has had of the reactor's time.
pub(super) struct Turns<F> {
    shares: FairShares<User>,
    /// The source of each user that was served last.
    last: HashMap<User, u64>,
    ready: Vec<Ready<F>>,
    queues: Vec<UserQueue>,
}

/// The sources of one user, which begin with the one after the last that was served.
struct UserQueue {
    user: User,
    /// Their places in `ready`.
    first: usize,
    len: usize,
    begin: usize,
    taken: usize,
}

/// Users whose last source is remembered: past it each begins with its oldest source.
const REMEMBERED: usize = 1024;

impl<F: Copy> Turns<F> {
    pub fn new() -> Self {
        Self {
            shares: FairShares::default(),
            last: HashMap::new(),
            ready: Vec::new(),
            queues: Vec::new(),
        }
    }

    /// Another round begins, with these sources. What was left of the last one is ready still.
    pub fn begin(&mut self, ready: impl Iterator<Item = Ready<F>>) {
        self.ready.clear();
        self.queues.clear();
        self.ready.extend(ready);
        self.ready
            .sort_unstable_by_key(|ready| (ready.user, ready.id));
        let mut first = 0;
        for of_user in self.ready.chunk_by(|one, other| one.user == other.user) {
            let user = of_user[0].user;
            let last = self.last.get(&user).copied();
            let begin = last.map_or(0, |last| of_user.partition_point(|ready| ready.id <= last));
            self.queues.push(UserQueue {
                user,
                first,
                len: of_user.len(),
                begin,
                taken: 0,
            });
            first += of_user.len();
        }
    }

    /// The next source: of the user that has had the least time.
    pub fn next(&mut self) -> Option<Ready<F>> {
        let left = self
            .queues
            .iter_mut()
            .filter(|queue| queue.taken < queue.len);
        let queue = left.min_by_key(|queue| self.shares.had(queue.user))?;
        let at = queue.first + (queue.begin + queue.taken) % queue.len;
        queue.taken += 1;
        Some(self.ready[at])
    }

    /// It has taken so long.
    pub fn took(&mut self, source: &Ready<F>, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.shares.charge(source.user, nanos.max(1));
        if self.last.len() >= REMEMBERED {
            self.last.clear();
        }
        self.last.insert(source.user, source.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(sources: &[(User, u64)]) -> impl Iterator<Item = Ready<()>> {
        let one = |&(user, id)| Ready { user, id, what: () };
        sources.iter().map(one)
    }

    /// So many sources of each round are served, each for as long as `cost` says; their ids.
    fn serve(
        turns: &mut Turns<()>,
        sources: &[(User, u64)],
        each_round: usize,
        rounds: usize,
        cost: impl Fn(User) -> u64,
    ) -> Vec<(User, u64)> {
        let mut served = Vec::new();
        for _ in 0..rounds {
            turns.begin(ready(sources));
            for _ in 0..each_round {
                let Some(next) = turns.next() else { break };
                turns.took(&next, Duration::from_nanos(cost(next.user)));
                served.push((next.user, next.id));
            }
        }
        served
    }

    #[test]
    fn each_source_of_a_user_has_its_turn_though_all_are_ready_in_each_round() {
        let mut turns = Turns::new();
        let sources: Vec<_> = (1..=60).map(|id| (7, id)).collect();
        let served = serve(&mut turns, &sources, 1, 120, |_| 10);
        let ids: Vec<_> = served.iter().map(|(_, id)| *id).collect();
        let expected: Vec<_> = (1..=60).chain(1..=60).collect();
        assert_eq!(ids, expected);
    }

    #[test]
    fn sixty_sources_of_one_user_have_the_time_of_one_of_another() {
        let mut turns = Turns::new();
        let mut sources: Vec<_> = (1..=60).map(|id| (7, id)).collect();
        sources.push((8, 61));
        let cost = |user| if user == 7 { 50 } else { 10 };
        let served = serve(&mut turns, &sources, 3, 1000, cost);
        let of = |user| served.iter().filter(|(of, _)| *of == user).count() as u64;
        // One in each round at most: it is served in nearly every one.
        assert!(of(8) >= 990, "{} of 1000 rounds", of(8));
    }

    #[test]
    fn a_user_that_was_away_is_next_and_saves_nothing() {
        let mut turns = Turns::new();
        serve(&mut turns, &[(7, 1)], 1, 1000, |_| 100);
        let both = [(7, 1), (8, 2)];
        let served = serve(&mut turns, &both, 1, 40, |_| 100);
        assert_eq!(served[0].0, 8);
        assert_eq!(served.iter().filter(|(user, _)| *user == 8).count(), 20);
    }

    #[test]
    fn a_round_serves_each_source_once() {
        let mut turns = Turns::new();
        let both = [(7, 1), (8, 2), (7, 3)];
        let mut served = serve(&mut turns, &both, 9, 1, |_| 1);
        served.sort_unstable();
        assert_eq!(served, [(7, 1), (7, 3), (8, 2)]);
    }
}
