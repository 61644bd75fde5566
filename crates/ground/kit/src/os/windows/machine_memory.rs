//! The memory of this machine.

use std::mem::size_of;

use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

use super::checked;
use crate::machine_memory::MachineMemory;

/// This machine's memory now. What can still be committed limits what is available: where there is no page file, programs may have
/// reserved memory that they do not use.
pub fn machine_memory() -> Option<MachineMemory> {
    let mut found = MEMORYSTATUSEX { dwLength: u32::try_from(size_of::<MEMORYSTATUSEX>()).ok()?, ..Default::default() };
    // SAFETY: the call writes the structure, whose size it is told.
    checked(unsafe { GlobalMemoryStatusEx(&raw mut found) }).ok()?;
    let available_bytes = found.ullAvailPhys.min(found.ullAvailPageFile);
    Some(MachineMemory { total_bytes: found.ullTotalPhys, available_bytes })
}
