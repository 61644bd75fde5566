//! Mappings. What is to be locked is locked when it is used: there is no way to ask for that ahead.

use std::io::{self, ErrorKind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use super::super::pages::whole_pages;
use super::checked;

/// Of a mapping that child processes do not have.
#[cfg(target_os = "freebsd")]
const NOT_INHERITED: libc::c_int = libc::INHERIT_NONE;
#[cfg(target_os = "macos")]
const NOT_INHERITED: libc::c_int = libc::VM_INHERIT_NONE;

pub(crate) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE;
    // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
    let at = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    Ok(NonNull::new(at.cast()).ok_or(ErrorKind::OutOfMemory)?)
}

/// Neither system sets memory aside for a mapping before it is used.
pub(crate) fn map_on_demand(bytes: usize) -> io::Result<NonNull<u8>> {
    map(bytes)
}

/// macOS dumps whole processes only, which [`forbid_core_dumps`](super::process::forbid_core_dumps) prevents.
///
/// # Safety
///
/// The range is a mapping of ours, as of all functions below.
pub(crate) unsafe fn hide(at: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the range is a mapping, whose content is not changed.
    checked(unsafe { libc::minherit(at.as_ptr().cast(), len, NOT_INHERITED) })?;
    #[cfg(target_os = "freebsd")]
    // SAFETY: as above.
    checked(unsafe { libc::madvise(at.as_ptr().cast(), len, libc::MADV_NOCORE) })?;
    Ok(())
}

/// FreeBSD makes large pages of small ones by itself, and macOS has one size.
///
/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn prefer_huge_pages(_at: NonNull<u8>, _len: usize) -> io::Result<()> {
    if cfg!(target_os = "freebsd") { Ok(()) } else { Err(ErrorKind::Unsupported.into()) }
}

/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn lock(at: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: as in `hide`.
    Ok(unsafe { mm::mlock(at.as_ptr().cast(), len) }?)
}

/// [`fault_in`] and [`use_again`] lock. Here it is found out whether the limit of this process permits as much; there is one for all
/// processes, too.
///
/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn lock_as_used(_at: NonNull<u8>, len: usize) -> io::Result<()> {
    match getrlimit(Resource::Memlock).current {
        Some(limit) if limit < len as u64 => Err(Errno::NOMEM.into()),
        _ => Ok(()),
    }
}

/// Memory that is not locked is faulted in by its use only.
///
/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn fault_in(at: NonNull<u8>, len: usize, locked: &AtomicBool) -> io::Result<()> {
    if !locked.load(Ordering::Relaxed) {
        return Err(ErrorKind::Unsupported.into());
    }
    // SAFETY: as the caller promises.
    unsafe { lock(at, len) }.inspect_err(|error| note_unlocked(error, locked))
}

/// Lets the system take the memory when it needs some. It reads as zeros afterwards, whether that happened or not, because it did
/// before.
///
/// # Safety
///
/// See [`hide`]; and nothing refers to the range, which is all zeros.
pub(crate) unsafe fn give_back(at: NonNull<u8>, len: usize, _locked: &AtomicBool) -> io::Result<()> {
    let Some((at, len)) = whole_pages(at, len, rustix::param::page_size()) else { return Ok(()) };
    // SAFETY: the range is a mapping, whose content is not changed. The call fails where something of it is not locked.
    let _ = unsafe { mm::munlock(at.as_ptr().cast(), len) };
    // SAFETY: as the caller promises, the range is all zeros, and nothing refers to it.
    checked(unsafe { libc::madvise(at.as_ptr().cast(), len, libc::MADV_FREE) })
}

/// Says once, as a program does at its start, that memory in use is not locked.
fn note_unlocked(error: &io::Error, locked: &AtomicBool) {
    if locked.swap(false, Ordering::Relaxed) {
        tracing::warn!(%error, "memory is NOT LOCKED from now on, so evidence may reach the swap space");
    }
}

/// Locks it, for its first use or again.
///
/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn use_again(at: NonNull<u8>, len: usize, locked: &AtomicBool) {
    if locked.load(Ordering::Relaxed) {
        // SAFETY: as the caller promises.
        if let Err(error) = unsafe { lock(at, len) } {
            note_unlocked(&error, locked);
        }
    }
}

/// # Safety
///
/// See [`hide`]; and nothing refers to it afterwards.
pub(crate) unsafe fn unmap(at: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: the range is a mapping, and the caller promises that nothing refers to it.
    Ok(unsafe { mm::munmap(at.as_ptr().cast(), bytes) }?)
}
