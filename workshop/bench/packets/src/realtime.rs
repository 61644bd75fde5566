//! Real-time priority, as `cheetah probe` has while it sends.

use std::io;
use std::mem::{size_of, zeroed};

/// The priority that `cheetah probe` asks for.
const PRIORITY: libc::c_int = 40;

/// The kernel's `struct sched_param`.
#[repr(C)]
struct Parameters {
    priority: libc::c_int,
}

/// Gives this thread real-time priority (`SCHED_FIFO`) on the processor on which it runs.
pub fn enter() -> io::Result<()> {
    // SAFETY: a cpu_set_t of zeros is an empty one, and the processor is one that the kernel named.
    let processors = unsafe {
        let mut processors: libc::cpu_set_t = zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap_or_default(), &mut processors);
        processors
    };
    // SAFETY: 0 is this thread, and the kernel reads the set, whose size is passed.
    check(libc::c_long::from(unsafe {
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const processors)
    }))?;
    let parameters = Parameters { priority: PRIORITY };
    // The function of musl fails with ENOSYS, hence the system call.
    // SAFETY: 0 is this thread, and the kernel reads the parameters, which live through the call.
    check(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const parameters) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
