//! What differs by operating system, behind the same names on each: Unix sockets. Where there are none, no value of these types
//! exists, and whatever makes one fails.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
