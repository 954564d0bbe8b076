//! Waiting requests, in one line for each owner, each kind of work and each distinct set of seats that
//! can serve them.
//!
//! A free seat looks at the head of each line that it can serve. There are few owners and few distinct sets, because
//! keys share their replicas. There may be many requests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use hsmux_token::FairShares;

use super::Term;
use crate::owner::{Cost, Owner};
use crate::seatset::SeatSet;

/// Identifies a waiting request, to take it out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    deadline: Instant,
    sequence: u64,
}

pub(super) struct QueueEntry<W> {
    sequence: u64,
    pub term: Term,
    pub work: W,
}

pub(super) struct Queue<W> {
    lines: Vec<QueueLine<W>>,
    due: BTreeMap<Ticket, SeatSet>,
    sequence: u64,
    /// The shares of groups of owners.
    shares: FairShares<Owner>,
    /// The shares of owners within their group.
    within: FairShares<Owner>,
}

pub(super) struct QueueLine<W> {
    pub owner: Owner,
    able: SeatSet,
    /// New keys, see [`Term::is_slow`].
    pub is_slow: bool,
    /// See [`Cost::is_long`]. Shorter requests do not wait behind one that is left waiting.
    pub is_long: bool,
    /// By growing sequence number.
    waiting: VecDeque<QueueEntry<W>>,
}

/// The most lines with which empty ones are kept for the next request.
const KEPT: usize = 32;

impl<W> Queue<W> {
    pub fn new() -> Self {
        Self {
            lines: Vec::new(),
            due: BTreeMap::new(),
            sequence: 0,
            shares: FairShares::default(),
            within: FairShares::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// The number of requests that this seat can serve.
    pub fn len_for(&self, seat: usize) -> usize {
        let lines = self.lines.iter().filter(|line| line.able.contains(seat));
        lines.map(|line| line.waiting.len()).sum()
    }

    /// The number of requests that only these seats can serve.
    pub fn len_within(&self, seats: &SeatSet) -> usize {
        let within =
            |line: &&QueueLine<W>| !line.able.is_empty() && line.able.minus(seats).is_empty();
        let lines = self.lines.iter().filter(within);
        lines.map(|line| line.waiting.len()).sum()
    }

    /// The last deadline of these requests, if there are any.
    pub fn latest_within(&self, seats: &SeatSet) -> Option<Instant> {
        let within = |able: &SeatSet| !able.is_empty() && able.minus(seats).is_empty();
        let mut latest = self.due.iter().rev();
        let (ticket, _) = latest.find(|(_, able)| within(able))?;
        Some(ticket.deadline)
    }

    pub fn nearest(&self) -> Option<Instant> {
        self.due
            .first_key_value()
            .map(|(ticket, _)| ticket.deadline)
    }

    pub fn push(&mut self, able: SeatSet, term: Term, work: W) -> Ticket {
        self.sequence += 1;
        let sequence = self.sequence;
        self.put(
            able,
            QueueEntry {
                sequence,
                term,
                work,
            },
        )
    }

    /// The next request for this seat, among lines for which `of` holds. The group that has had the least comes first,
    /// then the owner that has had the least, then the oldest request. Answers its line and cost.
    pub fn first(&self, seat: usize, of: impl Fn(&QueueLine<W>) -> bool) -> Option<(usize, Cost)> {
        let heads = self.lines.iter().enumerate().filter_map(|(at, line)| {
            let fits = line.able.contains(seat) && of(line);
            let head = fits.then(|| line.waiting.front())??;
            let group = self.shares.had(line.owner.group());
            Some((group, self.within.ahead(line.owner), head.sequence, at))
        });
        let (.., at) = heads.min()?;
        Some((at, self.lines[at].waiting.front()?.term.cost))
    }

    /// Takes out the head of a line.
    pub fn pop(&mut self, at: usize) -> Option<QueueEntry<W>> {
        let owner = self.lines[at].owner;
        let lines = self.lines.iter().filter(|line| !line.waiting.is_empty());
        let owners = lines.map(|line| line.owner);
        let groups = owners.clone().map(|of| self.shares.had(of.group()));
        let least = groups.min()?;
        let beside = owners.filter(|of| of.group() == owner.group());
        let least_beside = beside.map(|of| self.within.had(of)).min()?;
        let waiting = self.lines[at].waiting.pop_front()?;
        let cost = waiting.term.cost.bytes;
        self.shares.charge_before(owner.group(), cost, least);
        if matches!(owner, Owner::Broker(_)) {
            self.within.charge_before(owner, cost, least_beside);
        }
        self.due.remove(&waiting.ticket());
        self.tidy(at);
        Some(waiting)
    }

    /// All that wait, each with the seats that can serve it.
    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = (SeatSet, Term, &W)> {
        let lines = self.lines.iter();
        lines.flat_map(|line| {
            let waiting = line.waiting.iter();
            waiting.map(|waiting| (line.able, waiting.term, &waiting.work))
        })
    }

    /// True if anything waits that this seat can serve.
    #[cfg(test)]
    pub fn has_for(&self, seat: usize) -> bool {
        self.lines
            .iter()
            .any(|line| line.able.contains(seat) && !line.waiting.is_empty())
    }

    /// Takes a request out. `None` if it no longer waits.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<W> {
        let able = self.due.remove(&ticket)?;
        let found = self.lines.iter().enumerate().find_map(|(at, line)| {
            let place = || {
                let waiting = &line.waiting;
                waiting.binary_search_by_key(&ticket.sequence, |waiting| waiting.sequence)
            };
            Some((at, (line.able == able).then(place)?.ok()?))
        });
        let (at, place) = found?;
        let waiting = self.lines[at].waiting.remove(place)?;
        self.tidy(at);
        Some(waiting.work)
    }

    /// Takes out the newest request of the owner that has the most requests, if that is more than this owner would
    /// have. The group with the most requests is searched, or else this owner's group.
    pub fn displace(&mut self, owner: Owner) -> Option<W> {
        let (mut owners, mut groups) = (HashMap::new(), HashMap::new());
        for line in self.lines.iter().filter(|line| line.owner != Owner::Pool) {
            *owners.entry(line.owner).or_insert(0) += line.waiting.len();
            *groups.entry(line.owner.group()).or_insert(0) += line.waiting.len();
        }
        let has = |all: &HashMap<_, _>, of: Owner| all.get(&of).copied().unwrap_or(0);
        let (len, largest) = groups.iter().map(|(of, len)| (*len, *of)).max()?;
        let is_other = len > has(&groups, owner.group()) + 1;
        let group = if is_other { largest } else { owner.group() };
        let of_group = owners.iter().filter(|(of, _)| of.group() == group);
        let (len, loser) = of_group.map(|(of, len)| (*len, *of)).max()?;
        if !is_other && len <= has(&owners, owner) + 1 {
            return None;
        }
        let of_loser = self.lines.iter().filter(|line| line.owner == loser);
        let newest = of_loser.filter_map(|line| line.waiting.back());
        let ticket = newest.max_by_key(|waiting| waiting.sequence)?.ticket();
        self.cancel(ticket)
    }

    /// Takes out all requests for which `unwanted` holds.
    pub fn take_out(&mut self, unwanted: impl Fn(&W) -> bool) -> Vec<W> {
        let all = self.lines.iter().flat_map(|line| &line.waiting);
        let unwanted = all.filter(|waiting| unwanted(&waiting.work));
        let tickets: Vec<_> = unwanted.map(QueueEntry::ticket).collect();
        let out = tickets.into_iter().map(|ticket| self.cancel(ticket));
        out.flatten().collect()
    }

    /// Takes out all requests whose deadline has passed.
    pub fn expire(&mut self, now: Instant) -> Vec<W> {
        let mut expired = Vec::new();
        while let Some((&ticket, _)) = self.due.first_key_value() {
            if ticket.deadline > now {
                break;
            }
            expired.extend(self.cancel(ticket));
        }
        expired
    }

    /// Routes each request again. Takes out those that no seat can serve.
    pub fn reroute<E>(&mut self, mut route: impl FnMut(&W) -> Result<SeatSet, E>) -> Vec<(W, E)> {
        let mut all: Vec<_> = self.lines.drain(..).flat_map(|line| line.waiting).collect();
        all.sort_unstable_by_key(|waiting| waiting.sequence);
        self.due.clear();
        let mut refused = Vec::new();
        for waiting in all {
            match route(&waiting.work) {
                Ok(able) => {
                    self.put(able, waiting);
                }
                Err(error) => refused.push((waiting.work, error)),
            }
        }
        refused
    }

    fn put(&mut self, able: SeatSet, waiting: QueueEntry<W>) -> Ticket {
        let ticket = waiting.ticket();
        self.due.insert(ticket, able);
        let (cost, is_slow) = (waiting.term.cost, waiting.term.is_slow());
        let (owner, is_long) = (cost.owner, cost.is_long());
        let its = |line: &&mut QueueLine<W>| {
            let kind = (line.owner, line.able, line.is_slow, line.is_long);
            kind == (owner, able, is_slow, is_long)
        };
        match self.lines.iter_mut().find(its) {
            Some(line) => line.waiting.push_back(waiting),
            None => self.lines.push(QueueLine {
                owner,
                able,
                is_slow,
                is_long,
                waiting: VecDeque::from([waiting]),
            }),
        }
        ticket
    }

    fn tidy(&mut self, at: usize) {
        if self.lines.len() > KEPT && self.lines[at].waiting.is_empty() {
            self.lines.swap_remove(at);
        }
    }
}

impl<W> QueueEntry<W> {
    fn ticket(&self) -> Ticket {
        Ticket {
            deadline: self.term.deadline,
            sequence: self.sequence,
        }
    }
}
