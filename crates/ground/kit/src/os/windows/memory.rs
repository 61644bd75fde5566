//! Mappings. What a process may lock is its minimum working set, which is therefore raised.

use std::ffi::{CStr, c_void};
use std::io::{self, ErrorKind};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use windows_sys::Win32::Foundation::ERROR_WORKING_SET_QUOTA;
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_READWRITE, VirtualAlloc, VirtualFree, VirtualLock, VirtualUnlock,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessWorkingSetSize, SetProcessWorkingSetSize};

use super::checked;

/// The most bytes that are kept out of crash reports by one call: it takes 32 bits.
const HIDDEN_AT_ONCE: usize = 1 << 30;
/// The least by which the working set is raised.
const RAISED_BYTES_MIN: usize = 1 << 20;
/// Attempts to lock: another thread may take what was raised.
const LOCK_ATTEMPTS: u32 = 4;

pub(crate) fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: new memory at an address of the system's choice affects no other.
    let at = unsafe { VirtualAlloc(null_mut(), bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) };
    NonNull::new(at.cast()).ok_or_else(io::Error::last_os_error)
}

/// Windows promises memory for all that is committed.
pub(crate) fn map_on_demand(bytes: usize) -> io::Result<NonNull<u8>> {
    map(bytes)
}

/// Keeps it out of crash reports. Child processes do not inherit memory.
///
/// # Safety
///
/// The range is a mapping of ours, as of all functions below.
pub(crate) unsafe fn hide(at: NonNull<u8>, len: usize) -> io::Result<()> {
    type Register = unsafe extern "system" fn(*const c_void, u32) -> i32;
    let Some(found) = function(c"WerRegisterExcludedMemoryBlock") else {
        tracing::info!("memory is not kept out of crash reports: this Windows has no function for that");
        return Ok(());
    };
    // SAFETY: this is the type of the function of this name (werapi.h).
    let register: Register = unsafe { std::mem::transmute(found) };
    for (block, len) in blocks(at, len) {
        // SAFETY: the block is memory of this process, which the call does not touch.
        let result = unsafe { register(block, len) };
        if result < 0 {
            tracing::info!("memory is not kept out of crash reports: error {result:#x}");
        }
    }
    Ok(())
}

/// Blocks of a range, as the functions take them.
fn blocks(at: NonNull<u8>, len: usize) -> impl Iterator<Item = (*const c_void, u32)> {
    (0..len).step_by(HIDDEN_AT_ONCE).map(move |offset| {
        let block = at.as_ptr().wrapping_add(offset).cast_const().cast();
        // At most 2^30.
        (block, (len - offset).min(HIDDEN_AT_ONCE) as u32)
    })
}

/// A function that only newer versions of Windows have.
fn function(name: &CStr) -> Option<unsafe extern "system" fn() -> isize> {
    let library: Vec<u16> = "kernel32.dll\0".encode_utf16().collect();
    // SAFETY: both names end with a zero; the library stays loaded as long as the process lives.
    unsafe { GetProcAddress(GetModuleHandleW(library.as_ptr()), name.as_ptr().cast()) }
}

/// They take a privilege that users do not have.
///
/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn prefer_huge_pages(_at: NonNull<u8>, _len: usize) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn lock(at: NonNull<u8>, len: usize) -> io::Result<()> {
    for attempt in 1.. {
        // SAFETY: the range is a mapping, whose content is not changed.
        match checked(unsafe { VirtualLock(at.as_ptr().cast(), len) }) {
            Err(error) if attempt < LOCK_ATTEMPTS && is_quota(&error) => raise_working_set(len)?,
            locked => return locked,
        }
    }
    Ok(())
}

fn is_quota(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| code.cast_unsigned() == ERROR_WORKING_SET_QUOTA)
}

/// Has this process be able to lock so many more bytes.
fn raise_working_set(more: usize) -> io::Result<()> {
    let more = more.max(RAISED_BYTES_MIN);
    let (mut min, mut max) = (0, 0);
    // SAFETY: the handle stands for this process, and the call writes two numbers.
    checked(unsafe { GetProcessWorkingSetSize(GetCurrentProcess(), &raw mut min, &raw mut max) })?;
    let (min, max) = (min.saturating_add(more), max.saturating_add(more));
    // SAFETY: as above; the call only takes numbers.
    checked(unsafe { SetProcessWorkingSetSize(GetCurrentProcess(), min, max) })
}

/// Memory cannot be locked before it is used: [`fault_in`] and [`use_again`] do it. Here it is found out whether the system permits as much.
///
/// # Safety
///
/// See [`hide`].
pub(crate) unsafe fn lock_as_used(_at: NonNull<u8>, len: usize) -> io::Result<()> {
    raise_working_set(len)
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

/// Takes it out of the working set: then the system uses its memory for others when it needs some. Its content stays: zeros.
///
/// # Safety
///
/// See [`hide`]; and nothing refers to the range, which is all zeros.
pub(crate) unsafe fn give_back(at: NonNull<u8>, len: usize, _locked: &AtomicBool) -> io::Result<()> {
    // The first call unlocks; unlocking what is not locked takes it out of the working set, and is reported as an error.
    for _ in 0..2 {
        // SAFETY: the range is a mapping, whose content is not changed.
        let _ = unsafe { VirtualUnlock(at.as_ptr().cast(), len) };
    }
    Ok(())
}

/// Says once, as a program does at its start, that memory in use is not locked.
fn note_unlocked(error: &io::Error, locked: &AtomicBool) {
    if locked.swap(false, Ordering::Relaxed) {
        tracing::warn!(%error, "memory is NOT LOCKED from now on, so evidence may reach the page file");
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
    type Unregister = unsafe extern "system" fn(*const c_void) -> i32;
    if let Some(found) = function(c"WerUnregisterExcludedMemoryBlock") {
        // SAFETY: this is the type of the function of this name (werapi.h).
        let unregister: Unregister = unsafe { std::mem::transmute(found) };
        for (block, _) in blocks(at, bytes) {
            // SAFETY: the call does not touch the block. It fails for one that was not kept out.
            let _ = unsafe { unregister(block) };
        }
    }
    // SAFETY: it was allocated as a whole, and the caller promises that nothing refers to it.
    checked(unsafe { VirtualFree(at.as_ptr().cast(), 0, MEM_RELEASE) })
}
