//! A step of the stack: a layer over a device, which keeps its offsets and may make it longer.

use std::sync::Arc;

use cheetah_device::DynDevice;
use cheetah_device::linear::Linear;
use cheetah_device::memory::Memory;
use cheetah_error::{Error, Result};
use cheetah_unlock::OpenedVolumes;

use super::limits::ALIGNMENT;
use super::volume::Assembled;

/// A step.
#[derive(Clone)]
pub(super) enum Step {
    /// Opened volumes read decrypted in their places.
    Decrypted(OpenedVolumes),
    /// Volumes of the device below get places behind its end: their offsets, in order.
    Behind(Vec<(u64, Assembled)>),
    /// Other sources get places behind the end.
    Beside(Vec<Other>),
}

/// Another source that is read behind the end of the first one.
#[derive(Clone)]
pub(super) struct Other {
    /// Where it begins.
    pub offset: u64,
    /// Which of the other sources it is.
    pub index: usize,
    /// Its content.
    pub device: DynDevice,
}

impl Step {
    pub fn decrypts(&self) -> bool {
        matches!(self, Self::Decrypted(_))
    }

    /// Puts the step over a device.
    pub fn over(&self, below: DynDevice) -> Result<DynDevice> {
        match self {
            Self::Decrypted(volumes) => Ok(volumes.over(below)),
            Self::Beside(sources) => {
                behind(below, sources.iter().map(|other| (other.offset, DynDevice::clone(&other.device))).collect())
            }
            Self::Behind(volumes) => {
                let shown = volumes.iter().map(|(offset, volume)| Ok((*offset, volume.over(&below)?)));
                let shown = shown.collect::<Result<_>>()?;
                behind(below, shown)
            }
        }
    }

    /// The same step over other sources that were opened again, in the same order. One that is missing stays as it was.
    pub fn reopened(&self, others: &[DynDevice]) -> Self {
        let again = |other: &Other| Other {
            device: DynDevice::clone(others.get(other.index).unwrap_or(&other.device)),
            ..other.clone()
        };
        match self {
            Self::Beside(sources) => Self::Beside(sources.iter().map(again).collect()),
            Self::Decrypted(_) | Self::Behind(_) => self.clone(),
        }
    }
}

/// Returns a device, and behind its end others, which begin at these offsets.
fn behind(below: DynDevice, devices: Vec<(u64, DynDevice)>) -> Result<DynDevice> {
    let mut end = below.geometry().size;
    let mut parts = vec![below];
    for (offset, device) in devices {
        match offset.checked_sub(end) {
            Some(0) => {}
            Some(gap @ 1..ALIGNMENT) => parts.push(Arc::new(Memory::new(vec![0; gap as usize]))),
            _ => return Err(Error::failed("the source has not the size that it had when its volumes were looked for")),
        }
        end = offset + device.geometry().size;
        parts.push(device);
    }
    Ok(Arc::new(Linear::new(parts).map_err(Error::device("showing volumes"))?))
}
