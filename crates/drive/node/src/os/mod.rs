//! What differs by operating system, behind the same names on each: what shows that there is too little of something.

use std::time::Duration;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod plain;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use plain::*;

/// What shows whether other programs need the processors.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// A time that grows while they do; `None` where that is not told.
    pub reading: fn() -> Option<Duration>,
    /// How much it grows in each second in which no program has to wait yet, in seconds.
    pub without_waiting: u32,
}
