//! The share of the processors that a thread takes.

use std::io;
use std::num::NonZeroU64;

pub(crate) const HAS_SHORT_PAUSES: bool = true;

/// Of this thread only, in Linux.
pub(crate) fn lower_priority(niceness: i32) -> io::Result<()> {
    rustix::process::nice(niceness)?;
    Ok(())
}

/// The idle scheduling class (`sched(7)`). A system call, since musl's function of that name only fails.
pub(crate) fn enter_idle_class() -> io::Result<()> {
    // The only member that the kernel reads; it must be 0 in this class.
    let priority: libc::c_int = 0;
    // SAFETY: 0 stands for the calling thread. The kernel reads a `struct sched_param`, one int, and writes nothing.
    let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const priority) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn set_timer_slack_ns(slack: NonZeroU64) {
    let _ = rustix::thread::set_current_timer_slack(Some(slack));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_enters_the_idle_class_alone() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // After the name, which is in parentheses: the 41st field of proc_pid_stat(5).
            let rest = stat.rsplit_once(") ").unwrap().1.to_owned();
            rest.split(' ').nth(41 - 3).unwrap().to_owned()
        };
        std::thread::spawn(move || {
            enter_idle_class().unwrap();
            assert_eq!(policy(), "5");
        })
        .join()
        .unwrap();
        assert_eq!(policy(), "0");
    }
}
