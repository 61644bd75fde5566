//! The pattern of a stream.

use std::fmt;

/// The direction of a stream through the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Towards the end.
    Up,
    /// Towards the start.
    Down,
}

/// The pattern of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Adjacent reads.
    Sequential(Direction),
    /// Records at equal distances, with gaps between them.
    Strided {
        /// The direction of the stream.
        direction: Direction,
        /// Bytes from the start of one record to the start of the next.
        step: u64,
        /// Bytes in a record.
        record: u64,
    },
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = |direction: &Direction| if *direction == Direction::Up { "forward" } else { "backward" };
        match self {
            Self::Sequential(direction) => f.write_str(arrow(direction)),
            Self::Strided { direction, step, record } => {
                write!(f, "{}, {} every {}", arrow(direction), crate::Size(*record), crate::Size(*step))
            }
        }
    }
}
