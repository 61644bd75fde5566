//! Stacking the devices of a drive's nodes into one device.

use std::sync::Arc;

use cheetah_device::linear::Linear;
use cheetah_device::stripe::Stripe;
use cheetah_device::window::Window;
use cheetah_device::{ByteRange, Device as _, DynDevice, Error};

use super::{DriveFile, Set, places};
use crate::layout::kind::Layout;

/// Stacks the nodes' devices (in file order) into sets, and the sets into the drive. Not for a drive with
/// redundancy.
pub(crate) fn stack(file: &DriveFile, devices: Vec<DynDevice>) -> cheetah_device::Result<DynDevice> {
    let mut devices = devices.into_iter();
    let mut over = |set: &Set| -> cheetah_device::Result<DynDevice> {
        let nodes = devices.by_ref().take(set.nodes.len()).collect();
        Ok(match set.layout() {
            Layout::Linear => Arc::new(Linear::new(nodes)?),
            Layout::Stripe { unit } => Arc::new(Stripe::new(unit, nodes)?),
            Layout::Mirror { .. } | Layout::Parity { .. } => {
                return Err(Error::Invalid("a set with redundancy is no stack of its nodes".into()));
            }
        })
    };
    let sets = file.sets.iter().map(&mut over).collect::<cheetah_device::Result<Vec<_>>>()?;
    places::stack(&file.sets, sets)
}

/// Cuts the sets, which hold whole granules, to the drive's size.
pub(crate) fn exact_size(file: &DriveFile, sets: DynDevice) -> cheetah_device::Result<DynDevice> {
    if sets.geometry().size == file.size {
        return Ok(sets);
    }
    Ok(Arc::new(Window::new(sets, ByteRange::new(0, file.size))?))
}
