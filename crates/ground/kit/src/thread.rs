//! How much of the processors the calling thread takes.

use std::io;
use std::num::NonZeroU64;

use crate::os;

/// Whether a thread can pause for some microseconds. Elsewhere, the shortest pause takes about a millisecond.
pub const HAS_SHORT_PAUSES: bool = os::thread::HAS_SHORT_PAUSES;

/// Makes the calling thread give way to others: 10 leaves it a tenth of a processor that others want, 19 is the most.
///
/// # Errors
///
/// If the system refuses.
pub fn lower_priority(niceness: i32) -> io::Result<()> {
    os::thread::lower_priority(niceness)
}

/// Puts the calling thread into the system's idle class: it runs when a processor has nothing else to do. That takes no privilege.
///
/// # Errors
///
/// If the system refuses.
pub fn enter_idle_class() -> io::Result<()> {
    os::thread::enter_idle_class()
}

/// Sets by how much the system may lengthen the pauses of the calling thread, in nanoseconds. No effect where that cannot be
/// chosen: pauses are longer then.
pub fn set_timer_slack_ns(slack: NonZeroU64) {
    os::thread::set_timer_slack_ns(slack);
}
