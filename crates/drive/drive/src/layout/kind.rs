//! The layouts of a drive over its nodes.

use cheetah_device::placement::Layout as Placed;
use cheetah_device::{Result, Size};
use cheetah_redundancy::Redundancy;

/// The default stripe unit in bytes.
pub const UNIT_BYTES_DEFAULT: u64 = 64 << 10;

/// The stripe unit of a sealed drive, in sealed units, unless the drive is small.
const SEALED_UNITS: u64 = 16;

/// The default stripe unit, in bytes, of a drive of `size` bytes over this number of nodes that is sealed in units of
/// `sealed_unit` bytes.
///
/// A sealed unit that lies on two nodes takes two requests, and is written twice when it is overwritten. With the
/// default unit of other drives, each sealed unit of 64 KiB would lie on two. With this one, each 16th does. Nodes hold
/// whole cycles, whose size rises with the square of their number, so small drives have a smaller unit.
pub fn unit_of_sealed(sealed_unit: u64, size: u64, nodes: usize) -> u64 {
    let cycle_units = (nodes as u64).saturating_mul(nodes as u64);
    let mut unit = sealed_unit.saturating_mul(SEALED_UNITS);
    while unit > UNIT_BYTES_DEFAULT && unit.saturating_mul(cycle_units) > size / 8 {
        unit /= 2;
    }
    unit
}

/// How a drive's bytes map to its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One node after the other. The loss of a node loses its bytes.
    Linear,
    /// Round robin (RAID 0). The loss of a node loses the content.
    Stripe {
        /// Consecutive bytes on one node: a power of two from 4 KiB to 4 MiB.
        unit: u64,
    },
    /// Round robin, and every unit is on `copies` nodes.
    Mirror {
        /// As for a stripe.
        unit: u64,
        /// Copies of each unit: 2 to 4.
        copies: usize,
    },
    /// Round robin, with parity of the units of all nodes (RAID 5 or 6).
    Parity {
        /// As for a stripe.
        unit: u64,
        /// Parity units of each group: 1 or 2.
        parities: usize,
    },
}

impl Layout {
    /// The default layout over this number of nodes: the one that survives a loss at the lowest cost.
    pub const fn default_over(nodes: usize, unit: u64) -> Self {
        match nodes {
            0 | 1 => Self::Linear,
            2 => Self::Mirror { unit, copies: 2 },
            _ => Self::Parity { unit, parities: 1 },
        }
    }

    /// The layout over this number of nodes that survives this number of losses at the lowest cost.
    pub const fn surviving(losses: usize, nodes: usize, unit: u64) -> Self {
        match losses {
            0 => Self::Stripe { unit },
            1 | 2 if nodes >= losses + 2 => Self::Parity { unit, parities: losses },
            _ => Self::Mirror { unit, copies: losses + 1 },
        }
    }

    /// The redundancy and the unit; `None` if there is no redundancy.
    pub const fn redundancy(self) -> Option<(Redundancy, u64)> {
        match self {
            Self::Linear | Self::Stripe { .. } => None,
            Self::Mirror { unit, copies } => Some((Redundancy::Mirror { copies }, unit)),
            Self::Parity { unit, parities } => Some((Redundancy::Parity { parities }, unit)),
        }
    }

    /// The number of nodes that may be lost without losing a byte.
    pub const fn losses_max(self) -> usize {
        match self.redundancy() {
            Some((redundancy, _)) => redundancy.losses_max(),
            None => 0,
        }
    }

    /// The stripe unit in bytes; `None` if linear.
    pub const fn unit(self) -> Option<u64> {
        match self {
            Self::Linear => None,
            Self::Stripe { unit } | Self::Mirror { unit, .. } | Self::Parity { unit, .. } => Some(unit),
        }
    }

    /// Fails, with the reason, if a number is out of range.
    pub fn check(self) -> Result<()> {
        if let Some((redundancy, _)) = self.redundancy() {
            redundancy.check()?;
        }
        Ok(Placed::Stripe { unit: self.unit().unwrap_or(UNIT_BYTES_DEFAULT) }.check()?)
    }

    /// In words, without the nodes: `stripe of 64KiB`.
    pub fn describe(self) -> String {
        match self {
            Self::Linear => "linear".to_owned(),
            Self::Stripe { unit } => format!("stripe of {}", Size(unit)),
            Self::Mirror { unit, copies } => format!("mirror of {copies} copies in units of {}", Size(unit)),
            Self::Parity { unit, parities: 1 } => format!("parity in units of {}", Size(unit)),
            Self::Parity { unit, parities } => format!("{parities} parities in units of {}", Size(unit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_survives_a_loss_wherever_that_is_possible() {
        let losses = |nodes| Layout::default_over(nodes, UNIT_BYTES_DEFAULT).losses_max();
        assert_eq!([0, 1, 2, 3, 9].map(losses), [0, 0, 1, 1, 1]);
    }

    #[test]
    fn few_sealed_units_lie_on_two_nodes_and_small_drives_waste_little() {
        assert_eq!(unit_of_sealed(64 << 10, 1 << 30, 3), 1 << 20);
        assert_eq!(unit_of_sealed(64 << 10, 20 << 20, 3), 256 << 10);
        assert_eq!(unit_of_sealed(64 << 10, 1 << 20, 3), UNIT_BYTES_DEFAULT);
        assert_eq!(unit_of_sealed(64 << 10, 1 << 30, 40), UNIT_BYTES_DEFAULT);
        assert_eq!(unit_of_sealed(4 << 10, 1 << 30, 3), UNIT_BYTES_DEFAULT);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let unit = UNIT_BYTES_DEFAULT;
        for layout in [
            Layout::Mirror { unit, copies: 1 },
            Layout::Mirror { unit, copies: 5 },
            Layout::Parity { unit, parities: 0 },
            Layout::Parity { unit, parities: 3 },
            Layout::Parity { unit: 5000, parities: 1 },
            Layout::Stripe { unit: 0 },
        ] {
            assert!(layout.check().is_err(), "{layout:?}");
        }
    }
}
