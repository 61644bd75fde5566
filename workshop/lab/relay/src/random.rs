//! Reproducible random numbers: the same frames of the same traffic are lost each time.

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// A generator (xorshift64*).
#[derive(Debug)]
pub struct Random {
    /// Never 0.
    state: u64,
}

impl Default for Random {
    fn default() -> Self {
        Self { state: SEED }
    }
}

impl Random {
    /// Returns a number from 0 to less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() * end) >> 32
    }

    /// Returns a number above 0 and at most 1.
    pub fn share(&mut self) -> f64 {
        (self.next() + 1) as f64 / (1u64 << 32) as f64
    }

    /// Returns 32 random bits.
    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }
}
