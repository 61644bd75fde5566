//! The version of a unit.

use std::fmt;

/// Bits of the counter within an epoch.
const COUNTER_BITS: u32 = 40;
/// The highest epoch.
pub const EPOCH_MAX: u32 = (1 << (64 - COUNTER_BITS)) - 1;
/// The highest counter of an epoch.
pub const COUNTER_MAX: u64 = (1 << COUNTER_BITS) - 1;

/// The version of a unit: the writer's epoch, and the number of the sealing within that epoch. No two sealings of a
/// drive have the same one. 0 stands for a unit that holds zeros and is not stored. A later stamp is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(u64);

impl Stamp {
    /// The unit holds zeros, and nothing on the device below belongs to it.
    pub const HOLE: Self = Self(0);

    /// The stamp of the sealing with number `counter` in `epoch`, both from 1; `None` beyond the limits.
    pub const fn new(epoch: u32, counter: u64) -> Option<Self> {
        if epoch == 0 || epoch > EPOCH_MAX || counter == 0 || counter > COUNTER_MAX {
            return None;
        }
        Some(Self((epoch as u64) << COUNTER_BITS | counter))
    }

    /// Reads a stamp from its bytes.
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    /// Returns its bytes, most significant first.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Its bytes as 16 hex digits.
    pub fn to_hex(self) -> String {
        format!("{:016x}", self.0)
    }

    /// The stamp with these 16 hex digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let are_digits = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        are_digits.then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten()
    }

    /// The writer's epoch.
    pub const fn epoch(self) -> u32 {
        (self.0 >> COUNTER_BITS) as u32
    }

    /// The number of the sealing in its epoch.
    pub const fn counter(self) -> u64 {
        self.0 & COUNTER_MAX
    }

    /// The stamp of the `n`th sealing after this one in its epoch; a hole is followed by holes. `None` beyond the limits.
    pub const fn after(self, n: u64) -> Option<Self> {
        if self.is_hole() {
            return Some(self);
        }
        match self.counter().checked_add(n) {
            Some(counter) => Self::new(self.epoch(), counter),
            None => None,
        }
    }

    /// Whether it stands for a hole.
    pub const fn is_hole(self) -> bool {
        self.0 == 0
    }

    /// Whether a unit can have it: a hole, or a sealing of an epoch.
    pub const fn is_valid(self) -> bool {
        self.is_hole() || self.epoch() > 0 && self.counter() > 0
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch(), self.counter())
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_stamp_is_greater() {
        let stamp = |epoch, counter| Stamp::new(epoch, counter).unwrap();
        assert!(Stamp::HOLE < stamp(1, 1));
        assert!(stamp(1, COUNTER_MAX) < stamp(2, 1));
        assert!(stamp(2, 1) < stamp(2, 2));
        let last = stamp(EPOCH_MAX, COUNTER_MAX);
        assert_eq!((last.epoch(), last.counter()), (EPOCH_MAX, COUNTER_MAX));
        assert_eq!(Stamp::from_bytes(last.to_bytes()), last);
        assert_eq!(Stamp::from_hex(&last.to_hex()), Some(last));
        assert_eq!(["", "+00000000000000f", "0f"].map(Stamp::from_hex), [None; 3]);
        assert_eq!(Stamp::new(EPOCH_MAX + 1, 1), None);
        assert_eq!(Stamp::new(1, COUNTER_MAX + 1), None);
        assert_eq!(Stamp::new(1, 0), None);
        assert_eq!(Stamp::new(0, 1), None);
    }
}
