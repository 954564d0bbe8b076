//! The number of requests that keep some seats busy.

use std::time::Duration;

use hsmux_token::KeyCapacity;

use super::Scheduler;
use super::load::SeatLoad;
use crate::seatset::SeatSet;

/// The way to a seat matters for operations shorter than this.
const BRIEF: Duration = Duration::from_millis(10);

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// The uses that keep these seats busy. At least one, so that a caller learns that the seats are away.
    pub(super) fn key_capacity(&self, able: &SeatSet) -> KeyCapacity {
        let seats = able
            .iter()
            .filter_map(|seat| self.seats.get(seat)?.as_ref());
        let (count, uses) = seats.fold((0, 0), |(count, uses), load| {
            (count + 1, uses + load.key_capacity())
        });
        KeyCapacity {
            uses: uses.max(1),
            members: count.max(1),
        }
    }
}

impl<W, C> SeatLoad<W, C> {
    /// Fast tokens get the next operations in advance. At a slow token one more would only wait there.
    fn key_capacity(&self) -> usize {
        let is_brief = (Duration::from_nanos(1)..BRIEF).contains(&self.latency());
        self.capacity.lanes * self.depth().max(1 + usize::from(is_brief))
    }
}
