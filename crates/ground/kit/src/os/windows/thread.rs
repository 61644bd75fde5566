//! The share of the processors that a thread takes.

use std::io;
use std::num::NonZeroU64;

use windows_sys::Win32::System::Threading::{
    GetCurrentThread, SetThreadPriority, THREAD_PRIORITY, THREAD_PRIORITY_BELOW_NORMAL, THREAD_PRIORITY_IDLE,
    THREAD_PRIORITY_LOWEST,
};

use super::checked;

pub(crate) const HAS_SHORT_PAUSES: bool = false;

/// The niceness from which on a thread gets the lowest priority.
const LOWEST_FROM: i32 = 15;

pub(crate) fn lower_priority(niceness: i32) -> io::Result<()> {
    set(if niceness < LOWEST_FROM { THREAD_PRIORITY_BELOW_NORMAL } else { THREAD_PRIORITY_LOWEST })
}

pub(crate) fn enter_idle_class() -> io::Result<()> {
    set(THREAD_PRIORITY_IDLE)
}

fn set(priority: THREAD_PRIORITY) -> io::Result<()> {
    // SAFETY: the handle stands for the calling thread, and the call takes numbers.
    checked(unsafe { SetThreadPriority(GetCurrentThread(), priority) })
}

/// Windows has one resolution for all threads of a process.
pub(crate) fn set_timer_slack_ns(_slack: NonZeroU64) {}
