//! Real-time priority and CPU affinity for the duration of a train.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::send::SendNote;

/// The priority asked for: above ordinary programs, below the kernel's own threads.
const PRIORITY: i32 = 40;

/// Makes this thread a real-time thread on one CPU until dropped.
#[derive(Debug)]
pub struct Realtime {
    /// The measures that were not permitted.
    pub notes: Vec<SendNote>,
    policy: Option<(i32, Parameters)>,
    affinity: Option<CpuSet>,
}

impl Realtime {
    /// Gives the calling thread real-time priority (`SCHED_FIFO`) on `cpu`, or on its present CPU. Skips a measure that
    /// is not permitted, and notes it.
    #[must_use]
    pub fn enter(cpu: Option<usize>) -> Self {
        let mut notes = Vec::new();
        let affinity = match pin(cpu.unwrap_or_else(sched_getcpu)) {
            Ok(before) => Some(before),
            Err(error) => {
                notes.push(SendNote::NotPinned(error.to_string()));
                None
            }
        };
        let policy = match raise() {
            Ok(before) => Some(before),
            Err(error) => {
                notes.push(SendNote::NoPriority(error.to_string()));
                None
            }
        };
        Self { notes, policy, affinity }
    }

    /// Restores the thread's priority and CPUs, and returns the notes.
    #[must_use]
    pub fn leave(mut self) -> Vec<SendNote> {
        self.lower();
        std::mem::take(&mut self.notes)
    }

    /// Gives the priority up because the thread has used up its allowance.
    pub(super) fn give_up(&mut self) {
        if self.policy.is_some() {
            self.lower();
            self.notes.push(SendNote::GaveUpPriority);
        }
    }

    /// Restores the earlier priority, and stays on the CPU.
    fn lower(&mut self) {
        let Some((policy, parameters)) = self.policy.take() else { return };
        // With only a resource limit for real-time priority, a thread may lower its priority, but not clear that flag.
        let restored = [policy, policy | libc::SCHED_RESET_ON_FORK]
            .into_iter()
            .any(|policy| set_scheduler(policy, &parameters).is_ok());
        if !restored {
            let error = io::Error::last_os_error();
            self.notes.push(SendNote::KeepsPriority(error.to_string()));
        }
    }
}

impl Drop for Realtime {
    fn drop(&mut self) {
        self.lower();
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

/// The kernel's `struct sched_param`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Parameters {
    priority: libc::c_int,
}

/// Sets `SCHED_FIFO`, and returns the earlier policy and parameters.
fn raise() -> io::Result<(i32, Parameters)> {
    let mut before = Parameters::default();
    let policy = scheduler()?;
    // SAFETY: 0 is the calling thread, and the kernel fills `before`, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_sched_getparam, 0, &raw mut before) })?;
    // Threads started meanwhile do not inherit the priority.
    set_scheduler(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &Parameters { priority: PRIORITY })?;
    Ok((policy, before))
}

/// Returns the calling thread's policy. The functions of musl fail with `ENOSYS`, because POSIX defines them for
/// processes, so this module makes the system calls.
pub(super) fn scheduler() -> io::Result<i32> {
    // SAFETY: 0 is the calling thread.
    check(unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) })
}

fn set_scheduler(policy: i32, parameters: &Parameters) -> io::Result<()> {
    // SAFETY: 0 is the calling thread, and the kernel reads `parameters`, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, std::ptr::from_ref(parameters)) }).map(drop)
}

fn check(result: libc::c_long) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(i32::try_from(result).unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use cheetah_testing::skip;

    #[test]
    fn a_thread_has_its_earlier_policy_and_cpus_afterwards() {
        let before = sched_getaffinity(None).unwrap();
        let policy = || scheduler().unwrap();
        let was = policy();
        let realtime = Realtime::enter(None);
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        drop(realtime);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert_eq!(policy(), was);
    }

    #[test]
    fn priority_is_restored_without_the_right_to_clear_reset_on_fork() {
        let policy = || scheduler().unwrap();
        let was = policy();
        // A thread of its own, whose rights end with it.
        let (raised, notes, is) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let realtime = Realtime::enter(None);
                let raised = policy();
                let mut sets = capabilities(None).unwrap();
                sets.effective.remove(CapabilitySet::SYS_NICE);
                sets.permitted.remove(CapabilitySet::SYS_NICE);
                set_capabilities(None, sets).unwrap();
                (raised, realtime.leave(), policy())
            });
            thread.join().unwrap()
        });
        if raised == was {
            return skip(&format!("real-time priority is not permitted here: {notes:?}"));
        }
        assert_eq!(is & !libc::SCHED_RESET_ON_FORK, was);
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn a_missing_cpu_is_noted() {
        assert!(!Realtime::enter(Some(usize::MAX)).notes.is_empty());
    }
}
