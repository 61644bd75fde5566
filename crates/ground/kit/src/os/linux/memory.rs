//! Mappings.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MlockFlags, ProtFlags};

pub(crate) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    map_with(bytes, MapFlags::PRIVATE)
}

pub(crate) fn map_on_demand(bytes: usize) -> io::Result<NonNull<u8>> {
    map_with(bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)
}

fn map_with(bytes: usize, flags: MapFlags) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
    let at = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    Ok(NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?)
}

/// # Safety
///
/// The range is a mapping of ours, as of all functions below.
pub(crate) unsafe fn hide(at: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the range is a mapping, whose content is not changed.
    let (dump, fork) = unsafe {
        (
            mm::madvise(at.as_ptr().cast(), len, Advice::LinuxDontDump),
            mm::madvise(at.as_ptr().cast(), len, Advice::LinuxDontFork),
        )
    };
    Ok(dump.and(fork)?)
}

/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn prefer_huge_pages(at: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: as in `hide`.
    Ok(unsafe { mm::madvise(at.as_ptr().cast(), len, Advice::LinuxHugepage) }?)
}

/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn lock(at: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: as in `hide`.
    Ok(unsafe { mm::mlock(at.as_ptr().cast(), len) }?)
}

/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn lock_as_used(at: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: as in `hide`.
    Ok(unsafe { mm::mlock_with(at.as_ptr().cast(), len, MlockFlags::ONFAULT) }?)
}

/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn fault_in(at: NonNull<u8>, len: usize, locked: &AtomicBool) -> io::Result<()> {
    // SAFETY: the range is a mapping; populating changes nothing that memory in use holds.
    let populated = unsafe {
        match mm::madvise(at.as_ptr().cast(), len, Advice::LinuxPopulateWrite) {
            // A kernel older than 5.14; locking faults in as well.
            Err(Errno::INVAL) if locked.load(Ordering::Relaxed) => mm::mlock(at.as_ptr().cast(), len),
            populated => populated,
        }
    };
    Ok(populated?)
}

/// # Safety
///
/// See [`hide`]; and nothing refers to the range, which is all zeros.
pub(crate) unsafe fn give_back(at: NonNull<u8>, len: usize, locked: &AtomicBool) -> io::Result<()> {
    let (at, locked) = (at.as_ptr().cast(), locked.load(Ordering::Relaxed));
    // SAFETY: the range is a mapping to which nothing refers: it may read as zeros afterwards. Memory is locked again as it is
    // faulted in.
    unsafe {
        match mm::madvise(at, len, Advice::LinuxDontneedLocked) {
            // A kernel older than 5.18, which gives back only memory that is not locked.
            Err(Errno::INVAL) => {}
            given => return Ok(given?),
        }
        if locked {
            mm::munlock(at, len)?;
        }
        mm::madvise(at, len, Advice::LinuxDontNeed)?;
        if locked {
            mm::mlock_with(at, len, MlockFlags::ONFAULT)?;
        }
    }
    Ok(())
}

/// The kernel locks it as it is faulted in.
///
/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn use_again(_at: NonNull<u8>, _len: usize, _locked: &AtomicBool) {}

/// # Safety
///
/// See [`hide`]; and nothing refers to it afterwards.
pub(crate) unsafe fn unmap(at: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: the range is a mapping, and the caller promises that nothing refers to it.
    Ok(unsafe { mm::munmap(at.as_ptr().cast(), bytes) }?)
}
