//! The names of this machine and of its user.

use windows_sys::Win32::System::SystemInformation::{ComputerNamePhysicalDnsHostname, GetComputerNameExW};
use windows_sys::Win32::System::WindowsProgramming::GetUserNameW;

/// More than the system's names have, in units.
const NAME_UNITS_MAX: usize = 512;

pub(crate) fn host_name() -> String {
    // SAFETY: the call writes at most as many units as it is told.
    named(|units, len| unsafe { GetComputerNameExW(ComputerNamePhysicalDnsHostname, units, len) })
        .or_else(|| std::env::var("COMPUTERNAME").ok())
        .unwrap_or_else(|| "localhost".to_owned())
}

pub(crate) fn user_name() -> String {
    // SAFETY: as above.
    named(|units, len| unsafe { GetUserNameW(units, len) }).unwrap_or_else(|| "unknown user".to_owned())
}

/// A name that a call writes, with or without a zero at its end.
fn named(call: impl FnOnce(*mut u16, *mut u32) -> i32) -> Option<String> {
    let mut units = [0; NAME_UNITS_MAX];
    let mut len = NAME_UNITS_MAX as u32;
    if call(units.as_mut_ptr(), &raw mut len) == 0 {
        return None;
    }
    let name = units.get(..usize::try_from(len).ok()?)?;
    let name = String::from_utf16_lossy(name.split(|unit| *unit == 0).next()?);
    (!name.is_empty()).then_some(name)
}
