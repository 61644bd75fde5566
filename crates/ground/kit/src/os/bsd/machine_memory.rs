//! The memory of this machine, as sysctl(3) has it.

use std::ffi::CStr;
use std::ptr::null_mut;

use crate::machine_memory::MachineMemory;

#[cfg(target_os = "freebsd")]
const TOTAL_BYTES: &CStr = c"hw.physmem";
#[cfg(target_os = "macos")]
const TOTAL_BYTES: &CStr = c"hw.memsize";

/// Pages that are free, or whose content can be dropped or is stored in a file. What ZFS caches counts as used.
#[cfg(target_os = "freebsd")]
const AVAILABLE_PAGES: &[&CStr] = &[c"vm.stats.vm.v_free_count", c"vm.stats.vm.v_inactive_count"];
/// As above. Programs may mark memory of theirs as purgeable.
#[cfg(target_os = "macos")]
const AVAILABLE_PAGES: &[&CStr] =
    &[c"vm.page_free_count", c"vm.page_pageable_external_count", c"vm.page_purgeable_count"];

/// This machine's memory now. `None` if the system does not tell.
pub fn machine_memory() -> Option<MachineMemory> {
    let total_bytes = number(TOTAL_BYTES)?;
    let mut pages = number(AVAILABLE_PAGES.first()?)?;
    for name in AVAILABLE_PAGES.iter().skip(1) {
        // One that the system does not have counts as none.
        pages = pages.saturating_add(number(name).unwrap_or(0));
    }
    let page_bytes = u64::try_from(rustix::param::page_size()).ok()?;
    let available_bytes = pages.checked_mul(page_bytes)?.min(total_bytes);
    Some(MachineMemory { total_bytes, available_bytes })
}

/// A number of 32 or 64 bits.
fn number(name: &CStr) -> Option<u64> {
    let mut bytes = [0u8; 8];
    let mut len = bytes.len();
    // SAFETY: the name ends with a zero; the call writes at most `len` bytes, and how many it wrote.
    let failed = unsafe { libc::sysctlbyname(name.as_ptr(), bytes.as_mut_ptr().cast(), &raw mut len, null_mut(), 0) };
    match (failed, len) {
        (0, 8) => Some(u64::from_ne_bytes(bytes)),
        (0, 4) => Some(u32::from_ne_bytes(*bytes.first_chunk()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_the_memory_is_available() {
        let memory = machine_memory().unwrap();
        assert!(0 < memory.available_bytes && memory.available_bytes <= memory.total_bytes, "{memory:?}");
        assert_eq!(number(c"no.such.name"), None);
    }
}
