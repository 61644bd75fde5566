//! The rights and the end of this process.

use std::io;
use std::mem::size_of;
use std::os::windows::io::{FromRawHandle as _, OwnedHandle};
use std::ptr::null_mut;

use windows_sys::Win32::Security::{GetTokenInformation, TOKEN_ELEVATION, TOKEN_QUERY, TokenElevation};
use windows_sys::Win32::System::Diagnostics::Debug::{SEM_FAILCRITICALERRORS, SEM_NOGPFAULTERRORBOX, SetErrorMode};
use windows_sys::Win32::System::ErrorReporting::{WER_FAULT_REPORTING_FLAG_NOHEAP, WerSetFlags};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use super::checked;

/// Whether it was started as administrator.
pub(crate) fn is_privileged() -> bool {
    is_elevated().unwrap_or(false)
}

fn is_elevated() -> io::Result<bool> {
    let mut token = null_mut();
    // SAFETY: the handle stands for this process, and the call writes a handle.
    checked(unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) })?;
    // SAFETY: the handle is open and nobody else's.
    let _closed_at_the_end = unsafe { OwnedHandle::from_raw_handle(token) };
    let mut found = TOKEN_ELEVATION::default();
    let (len, mut returned) = (u32::try_from(size_of::<TOKEN_ELEVATION>()).unwrap_or(0), 0);
    // SAFETY: the call writes at most `len` bytes, the size of the structure, and a number.
    checked(unsafe { GetTokenInformation(token, TokenElevation, (&raw mut found).cast(), len, &raw mut returned) })?;
    Ok(found.TokenIsElevated != 0)
}

/// No report of an error is made, nor a dialog shown in which one could be; should there be one all the same, it has no heap.
pub(crate) fn forbid_core_dumps() -> io::Result<()> {
    // SAFETY: both calls take numbers.
    let result = unsafe {
        SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX);
        WerSetFlags(WER_FAULT_REPORTING_FLAG_NOHEAP)
    };
    if result < 0 { Err(io::Error::other(format!("error {result:#x} of Windows Error Reporting"))) } else { Ok(()) }
}

/// Windows ends no process for want of memory.
pub(crate) fn prefer_as_victim() -> io::Result<()> {
    Ok(())
}
