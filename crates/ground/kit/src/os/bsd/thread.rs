//! The share of the processors that a thread takes.

use std::io;
use std::num::NonZeroU64;

pub(crate) const HAS_SHORT_PAUSES: bool = true;

/// FreeBSD has one niceness for all threads of a process.
#[cfg(target_os = "freebsd")]
pub(crate) fn lower_priority(_niceness: i32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The idle class (rtprio(2)), for which a user needs `security.bsd.unprivileged_idprio`.
#[cfg(target_os = "freebsd")]
pub(crate) fn enter_idle_class() -> io::Result<()> {
    let mut idle = libc::rtprio { type_: libc::RTP_PRIO_IDLE, prio: libc::RTP_PRIO_MAX };
    // SAFETY: 0 stands for the calling thread; the call reads the structure.
    super::checked(unsafe { libc::rtprio_thread(libc::RTP_SET, 0, &raw mut idle) })
}

/// The niceness from which on a thread is of the lowest class.
#[cfg(target_os = "macos")]
const BACKGROUND_FROM: i32 = 15;
/// `QOS_CLASS_UTILITY` and `QOS_CLASS_BACKGROUND` (sys/qos.h).
#[cfg(target_os = "macos")]
const UTILITY: libc::c_uint = 0x11;
#[cfg(target_os = "macos")]
const BACKGROUND: libc::c_uint = 0x09;

#[cfg(target_os = "macos")]
unsafe extern "C" {
    /// Sets the class of the calling thread, and a priority in it (pthread/qos.h). Returns the number of an error.
    fn pthread_set_qos_class_self_np(class: libc::c_uint, relative: libc::c_int) -> libc::c_int;
}

#[cfg(target_os = "macos")]
pub(crate) fn lower_priority(niceness: i32) -> io::Result<()> {
    enter(if niceness < BACKGROUND_FROM { UTILITY } else { BACKGROUND })
}

#[cfg(target_os = "macos")]
pub(crate) fn enter_idle_class() -> io::Result<()> {
    enter(BACKGROUND)
}

#[cfg(target_os = "macos")]
fn enter(class: libc::c_uint) -> io::Result<()> {
    // SAFETY: the call takes numbers.
    match unsafe { pthread_set_qos_class_self_np(class, 0) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Neither system has it.
pub(crate) fn set_timer_slack_ns(_slack: NonZeroU64) {}
