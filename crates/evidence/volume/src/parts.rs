//! The parts of a volume that is put together, and where each lies on the device that holds it.

use std::sync::Arc;

use cheetah_device::linear::Linear;
use cheetah_device::placement::Layout;
use cheetah_device::stripe::Stripe;
use cheetah_device::window::Window;
use cheetah_device::{ByteRange, DynDevice, Result};

/// The parts of a volume, in order. Linear parts that follow each other on the device are one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parts(Vec<Part>);

/// A part of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// A range of the device.
    Linear(ByteRange),
    /// Ranges of the device, of one length, that take turns, each for `unit_bytes`.
    Striped { unit_bytes: u64, stripes: Vec<ByteRange> },
}

impl Part {
    /// Makes a part of ranges that take turns; one range is a linear part. `None` if units of this size are not supported, or a
    /// range ends within one.
    pub fn striped(unit_bytes: u64, stripes: Vec<ByteRange>) -> Option<Self> {
        if let [range] = stripes[..] {
            return Some(Self::Linear(range));
        }
        let are_whole = |unit: u64| stripes.iter().all(|range| range.len.is_multiple_of(unit));
        let is_supported = Layout::Stripe { unit: unit_bytes }.check().is_ok() && are_whole(unit_bytes);
        is_supported.then_some(Self::Striped { unit_bytes, stripes })
    }

    fn over(&self, below: &DynDevice) -> Result<DynDevice> {
        match self {
            Self::Linear(range) => window(below, range),
            Self::Striped { unit_bytes, stripes } => {
                let stripes = stripes.iter().map(|range| window(below, range)).collect::<Result<_>>()?;
                Ok(Arc::new(Stripe::new(*unit_bytes, stripes)?))
            }
        }
    }
}

impl Parts {
    /// Adds a part, to the last one if it follows that on the device.
    pub fn push(&mut self, part: Part) {
        match (self.0.last_mut(), &part) {
            (Some(Part::Linear(last)), Part::Linear(range)) if last.end() == range.offset => last.len += range.len,
            _ => self.0.push(part),
        }
    }

    /// The place in the device, if there is one only.
    pub fn in_one_piece(&self) -> Option<ByteRange> {
        match self.0[..] {
            [Part::Linear(range)] => Some(range),
            _ => None,
        }
    }

    /// The places in order; `None` if some of it is striped.
    pub fn pieces(&self) -> Option<Vec<ByteRange>> {
        let piece = |part: &Part| match part {
            Part::Linear(range) => Some(*range),
            Part::Striped { .. } => None,
        };
        self.0.iter().map(piece).collect()
    }

    /// Each range of the device that holds some of it.
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> {
        self.0
            .iter()
            .flat_map(|part| match part {
                Part::Linear(range) => std::slice::from_ref(range),
                Part::Striped { stripes, .. } => stripes,
            })
            .copied()
    }

    /// Shows the volume over the device. Fails if a part lies beyond it.
    pub fn over(&self, below: &DynDevice) -> Result<DynDevice> {
        match &self.0[..] {
            [part] => part.over(below),
            parts => Ok(Arc::new(Linear::new(parts.iter().map(|part| part.over(below)).collect::<Result<_>>()?)?)),
        }
    }
}

fn window(below: &DynDevice, range: &ByteRange) -> Result<DynDevice> {
    Ok(Arc::new(Window::new(Arc::clone(below), *range)?))
}
