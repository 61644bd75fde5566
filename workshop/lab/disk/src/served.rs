//! A drive in real time: replies to commands when the model has ended them.
//!
//! Bytes move when a command arrives, so that its end costs only the reply. Whatever order the drive chooses, a read sees
//! each write that had ended before the read arrived.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::clock::Clock;
use crate::drive::{Drive, Operation};
use crate::model::Model;

/// What is to be done when a command has ended.
pub type Reply = Box<dyn FnOnce() + Send>;

struct State {
    drive: Drive,
    replies: HashMap<u64, Reply>,
    next_id: u64,
}

/// A drive that several threads may command.
pub struct Served {
    state: Mutex<State>,
    changed: Condvar,
    clock: Clock,
}

impl Served {
    /// Starts a drive, with a thread that ends its commands.
    pub fn start(model: Model) -> std::io::Result<Arc<Self>> {
        let state = State { drive: Drive::new(model), replies: HashMap::new(), next_id: 0 };
        let served = Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), clock: Clock::start() });
        let of_thread = Arc::clone(&served);
        thread::Builder::new().name("drive".to_owned()).spawn(move || of_thread.end_commands())?;
        Ok(served)
    }

    /// Returns the time, for `submit`.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Takes a command that arrived at `arrived_ns`; `reply` is called at its end, on another thread.
    pub fn submit(&self, arrived_ns: u64, operation: Operation, reply: Reply) {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.replies.insert(id, reply);
        state.drive.submit(arrived_ns, id, operation);
        drop(state);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_commands(&self) {
        // SAFETY: plain system call. Without it the kernel may round waits of ordinary threads up by 50 µs.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let mut state = self.lock();
        loop {
            state.drive.advance(self.clock.now_ns());
            let ended = state.drive.take_ended();
            let replies: Vec<_> = ended.iter().filter_map(|id| state.replies.remove(id)).collect();
            if !replies.is_empty() {
                drop(state);
                replies.into_iter().for_each(|reply| reply());
                state = self.lock();
                continue;
            }
            state = self.wait(state);
        }
    }

    /// Waits until something happens next, or a command arrives.
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State>
    where
        Self: 'a,
    {
        match state.drive.next_ns().map(|at_ns| (at_ns, self.clock.sleep(at_ns))) {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some((_, Some(sleep))) => self.changed.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner).0,
            Some((at_ns, None)) => {
                self.clock.spin(at_ns);
                state
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::extent::Extent;
    use crate::model::{VELOCIRAPTOR, ZERO};

    fn ended_ns(model: Model, reads: u64) -> Vec<u64> {
        let served = Served::start(model).unwrap();
        let (sender, receiver) = mpsc::channel();
        for number in 0..reads {
            let start = number * 30_000_000_000;
            let (sender, of_reply) = (sender.clone(), Arc::clone(&served));
            let reply = Box::new(move || sender.send(of_reply.now_ns()).unwrap());
            served.submit(served.now_ns(), Operation::Read(Extent { start, end: start + 4096 }), reply);
        }
        (0..reads).map(|_| receiver.recv().unwrap()).collect()
    }

    #[test]
    fn replies_come_no_earlier_than_the_drive_allows() {
        // Each but the first seeks over a tenth of the stroke.
        let all = ended_ns(VELOCIRAPTOR, 5);
        assert!(all.is_sorted() && all[4] > 4 * VELOCIRAPTOR.read.track_ns, "{all:?}");
    }

    #[test]
    fn a_drive_without_delays_replies() {
        assert_eq!(ended_ns(ZERO, 5).len(), 5);
    }
}
