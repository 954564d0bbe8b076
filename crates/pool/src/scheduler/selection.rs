//! Selects the seat that runs a request.

use std::time::Instant;

use super::Scheduler;
use crate::Policy;
use crate::seatset::SeatSet;

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Selects by the policy. `None` if there is no seat.
    pub(super) fn choose(&mut self, free: SeatSet, now: Instant) -> Option<usize> {
        let mut seats = free.iter();
        let (first, second) = (seats.next(), seats.next());
        match self.policy {
            Policy::FirstAvailable => first,
            // The usual case. With one seat the credits need no change.
            _ if second.is_none() => first,
            Policy::LeastLoaded => self.least_loaded(free, now),
            Policy::RoundRobin => self.take_turns(free),
        }
    }

    /// Selects the least loaded token. Among its free workers that are about as good, the one that ran last is
    /// selected, because its caches are warm. If no worker is free, the least loaded one is selected.
    fn least_loaded(&self, free: SeatSet, now: Instant) -> Option<usize> {
        let load = |seat: usize| self.seats[seat].as_ref();
        let cost = |seat: usize| Some((load(seat)?.cost(now), seat));
        let (least, best) = free.iter().filter_map(cost).min()?;
        let member = load(best)?.capacity.member;
        free.iter()
            .filter_map(|seat| Some((seat, load(seat)?)))
            .filter(|(_, peer)| peer.free() && peer.capacity.member == member)
            .filter(|(_, peer)| peer.cost(now) / 2 <= least)
            .max_by_key(|(_, peer)| peer.last)
            .map_or(Some(best), |(seat, _)| Some(seat))
    }

    /// Smooth weighted round-robin: each seat gains its weight, and the richest one pays the total.
    fn take_turns(&mut self, free: SeatSet) -> Option<usize> {
        let mut total = 0;
        let mut richest: Option<(i64, usize)> = None;
        for seat in free.iter() {
            let load = self.seats.get_mut(seat)?.as_mut()?;
            let weight = i64::from(load.capacity.weight);
            load.credit += weight;
            total += weight;
            if richest.is_none_or(|(credit, _)| load.credit > credit) {
                richest = Some((load.credit, seat));
            }
        }
        let (_, seat) = richest?;
        self.seats[seat].as_mut()?.credit -= total;
        Some(seat)
    }
}
