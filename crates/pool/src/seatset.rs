//! Sets of seats, as bits.

use hsmux_token::Members;

/// A set of seats by their index. Copied freely: four words, no allocation.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct SeatSet([u64; 4]);

impl SeatSet {
    /// Indexes are below this.
    pub const LIMIT: usize = 256;

    pub const EMPTY: Self = Self([0; 4]);

    pub fn of(seat: usize) -> Self {
        std::iter::once(seat).collect()
    }

    pub fn insert(&mut self, seat: usize) {
        self.0[seat / 64] |= 1 << (seat % 64);
    }

    pub fn remove(&mut self, seat: usize) {
        self.0[seat / 64] &= !(1 << (seat % 64));
    }

    pub fn set(&mut self, seat: usize, member: bool) {
        if member {
            self.insert(seat);
        } else {
            self.remove(seat);
        }
    }

    pub fn contains(&self, seat: usize) -> bool {
        self.0[seat / 64] >> (seat % 64) & 1 == 1
    }

    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn and(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    pub fn or(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    pub fn minus(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// As bits, by which others name it.
    pub fn bits(&self) -> Members {
        self.0
    }

    /// In growing order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let mut words = self.0;
        let mut at = 0;
        std::iter::from_fn(move || {
            while *words.get(at)? == 0 {
                at += 1;
            }
            let bit = words[at].trailing_zeros() as usize;
            words[at] &= words[at] - 1;
            Some(at * 64 + bit)
        })
    }

    fn zip(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let mut joined = *self;
        for (word, other) in joined.0.iter_mut().zip(other.0) {
            *word = join(*word, other);
        }
        joined
    }
}

impl FromIterator<usize> for SeatSet {
    fn from_iter<I: IntoIterator<Item = usize>>(seats: I) -> Self {
        let mut set = Self::EMPTY;
        seats.into_iter().for_each(|seat| set.insert(seat));
        set
    }
}

impl std::fmt::Debug for SeatSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let seats = [0, 63, 64, 200, 255];
        let mut set: SeatSet = seats.into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), seats);
        set.remove(64);
        assert!(!set.contains(64) && set.contains(63));
        assert_eq!(set.minus(&set), SeatSet::EMPTY);
        assert_eq!(
            SeatSet::of(7).or(&SeatSet::of(9)).and(&SeatSet::of(9)),
            SeatSet::of(9)
        );
    }
}
