//! The plan of a run, derived from its seed.

use std::time::Duration;

use cheetah_redundancy::Redundancy;

use crate::network::Weather;
use crate::process::Shape;
use crate::random::Random;

/// What one run does.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub shape: Shape,
    pub spares: usize,
    pub weather: Weather,
    pub duration: Duration,
    pub bounds: Bounds,
    /// How the drive is sealed, if it is.
    pub seal: Option<SealPlan>,
}

/// A sealed drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealPlan {
    /// Nodes go back to old snapshots of their content.
    pub rolls_back: bool,
}

/// The bounds of the faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// Within what the layout survives: no error may reach the user.
    Survived,
    /// The writer may die together with as many members as the layout survives. The content that it was writing may be
    /// lost; all other content must return.
    WithWriter,
    /// More members than the layout survives.
    Exceeded,
}

impl Plan {
    /// The plan that follows from a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x0070_6c61_6e00);
        let (redundancy, members) = match random.below(8) {
            0 | 1 => (Redundancy::Mirror { copies: 2 }, 2 + random.below(3)),
            2 => (Redundancy::Mirror { copies: 3 }, 3 + random.below(2)),
            3..=5 => (Redundancy::Parity { parities: 1 }, 3 + random.below(3)),
            _ => (Redundancy::Parity { parities: 2 }, 4 + random.below(3)),
        };
        let members = members as usize;
        let shape = Shape {
            redundancy,
            members,
            unit: 4096 << random.below(2),
            cycles: 2 + random.below(4),
            region_bytes: 16384 << random.below(3),
        };
        let storm = random.below(4);
        Self {
            seed,
            shape,
            spares: 1 + random.below(2) as usize,
            weather: Weather { stalled_ppm: storm * 6000, broken_ppm: storm * 2000, latency: true },
            duration: Duration::from_secs(20 + random.below(40)),
            bounds: match random.below(8) {
                0 | 1 => Bounds::Exceeded,
                2 | 3 => Bounds::WithWriter,
                _ => Bounds::Survived,
            },
            seal: None,
        }
    }

    /// The same, of a sealed drive.
    pub fn sealed(seed: u64) -> Self {
        let plan = Self::of(seed);
        let mut random = Random::new(seed ^ 0x7365_616c_6564);
        let shape = Shape { cycles: plan.shape.cycles * 2, ..plan.shape };
        Self { shape, seal: Some(SealPlan { rolls_back: random.below(4) == 0 }), ..plan }
    }
}
