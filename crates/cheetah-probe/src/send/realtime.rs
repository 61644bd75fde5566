//! Real-time priority and a CPU of one's own, for as long as a train takes.

use std::io;
use std::mem::zeroed;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The priority asked for: above ordinary programs, below the kernel's own threads.
const PRIORITY: i32 = 40;

/// This thread as a real-time thread on one CPU; when dropped, it is again what it was.
#[derive(Debug)]
pub struct Realtime {
    /// What was not permitted, a sentence each.
    pub notes: Vec<String>,
    policy: Option<(i32, libc::sched_param)>,
    affinity: Option<CpuSet>,
}

impl Realtime {
    /// Makes the calling thread a real-time one (`SCHED_FIFO`) on `cpu`, or on the one it is on. What is not permitted is
    /// noted and done without.
    #[must_use]
    pub fn enter(cpu: Option<usize>) -> Self {
        let mut notes = Vec::new();
        let affinity = match pin(cpu.unwrap_or_else(sched_getcpu)) {
            Ok(before) => Some(before),
            Err(error) => {
                notes.push(format!("sending was not kept on one CPU: {error}"));
                None
            }
        };
        let policy = match raise() {
            Ok(before) => Some(before),
            Err(error) => {
                notes.push(format!(
                    "sending had no real-time priority, so other programs may delay it: {error} (setcap cap_sys_nice+ep \
                     grants it)"
                ));
                None
            }
        };
        Self { notes, policy, affinity }
    }
}

impl Drop for Realtime {
    fn drop(&mut self) {
        if let Some((policy, parameters)) = self.policy {
            // SAFETY: `parameters` outlives the call, and 0 is the calling thread.
            unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
        }
        if let Some(before) = self.affinity {
            let _ = sched_setaffinity(None, &before);
        }
    }
}

fn pin(cpu: usize) -> rustix::io::Result<CpuSet> {
    let before = sched_getaffinity(None)?;
    if cpu >= CpuSet::MAX_CPU {
        return Err(rustix::io::Errno::INVAL);
    }
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one)?;
    Ok(before)
}

/// Asks for `SCHED_FIFO`, and returns what there was before.
fn raise() -> io::Result<(i32, libc::sched_param)> {
    // SAFETY: the structure is plain integers, for which zero is a value.
    let (mut before, mut wanted): (libc::sched_param, libc::sched_param) = unsafe { (zeroed(), zeroed()) };
    // SAFETY: 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    // SAFETY: `before` outlives the call, which fills it.
    if policy < 0 || unsafe { libc::sched_getparam(0, &raw mut before) } < 0 {
        return Err(io::Error::last_os_error());
    }
    wanted.sched_priority = PRIORITY;
    // A thread started meanwhile does not inherit it.
    let fifo = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `wanted` outlives the call.
    if unsafe { libc::sched_setscheduler(0, fifo, &raw const wanted) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((policy, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_what_it_was_afterwards() {
        let before = sched_getaffinity(None).unwrap();
        // SAFETY: 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let was = policy();
        let realtime = Realtime::enter(None);
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        drop(realtime);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert_eq!(policy(), was);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_noted() {
        assert!(!Realtime::enter(Some(usize::MAX)).notes.is_empty());
    }
}
