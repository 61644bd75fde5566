//! The idle scheduling class of Linux (`sched(7)`): threads in it run when a processor has nothing else to do.

#![allow(unsafe_code, reason = "a system call without a safe wrapper; musl's function of that name only fails")]

use std::io;

/// Puts the calling thread into the idle class. That takes no privilege.
pub(super) fn enter() -> io::Result<()> {
    // The only member that the kernel reads; it must be 0 in this class.
    let priority: libc::c_int = 0;
    // SAFETY: 0 stands for the calling thread. The kernel reads a `struct sched_param`, one int, and writes nothing.
    let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const priority) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
            enter().unwrap();
            assert_eq!(policy(), "5");
        })
        .join()
        .unwrap();
        assert_eq!(policy(), "0");
    }
}
