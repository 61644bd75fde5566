//! Places for threads that do something at once.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::output::Cancelled;

/// The interval at which a thread that waits looks whether its job was cancelled.
const LOOK: Duration = Duration::from_secs(1);

/// A number of places.
pub(super) struct Seats {
    count: usize,
    free: Mutex<usize>,
    freed: Condvar,
}

impl Seats {
    pub fn new(count: usize) -> Self {
        Self { count, free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Their number.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Takes a place, as soon as one is free.
    ///
    /// # Errors
    ///
    /// If the job is cancelled meanwhile.
    pub fn take(&self, is_cancelled: impl Fn() -> bool) -> Result<Seat<'_>, Cancelled> {
        let mut free = self.free.lock();
        while *free == 0 {
            if is_cancelled() {
                return Err(Cancelled);
            }
            self.freed.wait_for(&mut free, LOOK);
        }
        *free -= 1;
        Ok(Seat { seats: self })
    }
}

/// A place, until this is dropped.
pub(super) struct Seat<'a> {
    seats: &'a Seats,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut free = self.seats.free.lock();
        *free = (*free + 1).min(self.seats.count);
        drop(free);
        self.seats.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_place_is_taken_once_one_is_free_and_not_at_all_by_a_job_that_was_cancelled() {
        let seats = Seats::new(2);
        let [first, second] = [(); 2].map(|()| seats.take(|| false).ok().unwrap());
        assert_eq!(seats.take(|| true).err(), Some(Cancelled));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| seats.take(|| false).is_ok());
            drop(first);
            assert!(waiting.join().unwrap());
        });
        drop(second);
        assert_eq!(*seats.free.lock(), 2);
    }
}
