//! Random numbers that follow from a seed, for simulations.

/// A generator of random numbers, the same ones for the same seed (xorshift64*).
pub struct Random(u64);

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        // Seeds in a row begin far apart, and 0 would stay 0.
        Self((seed.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `many` times; never if that is 0.
    pub fn one_in(&mut self, many: u64) -> bool {
        many > 0 && self.below(many) == 0
    }

    /// One of these, of which there are some.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// Fills the bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.number().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}
