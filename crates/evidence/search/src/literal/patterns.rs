//! The bytes of patterns.

/// Patterns, each with a number.
pub struct Patterns {
    all: Vec<Vec<u8>>,
    ignore_case: bool,
}

impl Patterns {
    /// Patterns that are numbered from 0 on. If the case of ASCII letters is ignored, they have small ones.
    pub const fn new(all: Vec<Vec<u8>>, ignore_case: bool) -> Self {
        Self { all, ignore_case }
    }

    /// The number of patterns.
    pub const fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether the case of ASCII letters is ignored.
    pub const fn ignores_case(&self) -> bool {
        self.ignore_case
    }

    /// The bytes of a pattern; none if there is no such pattern.
    pub fn bytes(&self, number: u32) -> &[u8] {
        self.all.get(number as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether `bytes` begin with a pattern.
    pub fn begins(&self, number: u32, bytes: &[u8]) -> bool {
        let pattern = self.bytes(number);
        bytes.get(..pattern.len()).is_some_and(|there| match self.ignore_case {
            true => there.eq_ignore_ascii_case(pattern),
            false => there == pattern,
        })
    }
}
