//! A logical volume as a device.

use std::sync::Arc;

use cheetah_device::linear::Linear;
use cheetah_device::stripe::Stripe;
use cheetah_device::window::Window;
use cheetah_device::{ByteRange, DynDevice, Result};

/// A logical volume whose bytes all lie on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalVolume {
    /// The name of its volume group.
    pub group: String,
    /// Its name in that.
    pub name: String,
    /// Its identifier, without hyphens.
    pub id: String,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Its parts, in order. Linear parts that follow each other on the device are one.
    pub(super) parts: Vec<Part>,
}

/// A part of a logical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// A range of the device.
    Linear(ByteRange),
    /// Ranges of the device, of one length, that take turns, each for `unit_bytes`.
    Striped { unit_bytes: u64, stripes: Vec<ByteRange> },
}

impl LogicalVolume {
    /// Its name, as the kernel's device mapper has it: group and volume with a hyphen between them, their own hyphens doubled.
    pub fn label(&self) -> String {
        let doubled = |name: &str| name.replace('-', "--");
        format!("{}-{}", doubled(&self.group), doubled(&self.name))
    }

    /// Its place in the device, if it lies there in one piece.
    pub fn in_one_piece(&self) -> Option<ByteRange> {
        match &self.parts[..] {
            [Part::Linear(range)] => Some(*range),
            _ => None,
        }
    }

    /// Its pieces in order, in the offsets of the device; `None` if it is striped.
    pub fn pieces(&self) -> Option<Vec<ByteRange>> {
        let piece = |part: &Part| match part {
            Part::Linear(range) => Some(*range),
            Part::Striped { .. } => None,
        };
        self.parts.iter().map(piece).collect()
    }

    /// Each range of the device that holds some of it.
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> {
        self.parts
            .iter()
            .flat_map(|part| match part {
                Part::Linear(range) => std::slice::from_ref(range),
                Part::Striped { stripes, .. } => stripes,
            })
            .copied()
    }

    /// Shows it, over a device with the offsets of the one in which it was found.
    ///
    /// # Errors
    ///
    /// If it lies beyond the device.
    pub fn over(&self, below: &DynDevice) -> Result<DynDevice> {
        let window = |range: &ByteRange| Ok(Arc::new(Window::new(Arc::clone(below), *range)?) as DynDevice);
        let shown = |part: &Part| match part {
            Part::Linear(range) => window(range),
            Part::Striped { unit_bytes, stripes } => {
                let stripes = stripes.iter().map(window).collect::<Result<_>>()?;
                Ok(Arc::new(Stripe::new(*unit_bytes, stripes)?) as DynDevice)
            }
        };
        if let [part] = &self.parts[..] {
            return shown(part);
        }
        Ok(Arc::new(Linear::new(self.parts.iter().map(shown).collect::<Result<_>>()?)?))
    }
}
