//! Which of the free seats runs a request.

use std::time::Instant;

use super::Scheduler;
use crate::Policy;
use crate::seatset::SeatSet;

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// By the policy; `None` when there is no seat.
    pub(super) fn choose(&mut self, free: SeatSet, now: Instant) -> Option<usize> {
        let mut seats = free.iter();
        let (first, second) = (seats.next(), seats.next());
        match self.policy {
            Policy::FirstAvailable => first,
            // The usual case; nobody's credit changes by it either.
            _ if second.is_none() => first,
            Policy::LeastLoaded => self.least_loaded(free, now),
            Policy::RoundRobin => self.take_turns(free),
        }
    }

    /// Of the free workers of the least loaded token, one that is about as good and has run last: its
    /// caches are warm. Where none is free, the least loaded.
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

    /// Smooth weighted round-robin: everybody gains its weight, the richest pays for all.
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
