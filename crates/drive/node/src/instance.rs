//! The instance id, which identifies one run of a node.

use std::fmt;

use cheetah_kit::random::{self, NoRandomNumbers};

/// 128 random bits, new at each start. A client that wrote to one instance and finds another can conclude that its
/// content is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance(u128);

impl Instance {
    /// Creates a random id.
    pub fn random() -> Result<Self, NoRandomNumbers> {
        random::bits_128().map(Self)
    }

    /// Whether `text` is this id, in 32 lower-case hex digits.
    pub fn is(&self, text: &str) -> bool {
        self.to_string() == text
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
