//! The memory that searches may take: no more than the machine has left beside what it lends.
//!
//! Compiled patterns, and what threads learn of a search, are not lent memory. A machine that runs only a node has hardly anything
//! else left, and would run out of memory, which ends the node and loses what it holds. So a search is granted memory when it is
//! compiled, within what was left when the node began and what is available now, and is refused if it takes more.

use std::sync::Arc;

use cheetah_device::Size;
use cheetah_device::machine_memory::machine_memory;
use parking_lot::{Mutex, MutexGuard};

use crate::output_memory::OutputMemory;
use crate::spare::{OUTPUT_BYTES_MAX, SearchRoom};

/// The searches of a node, and what they may take.
pub(crate) struct SearchMemory {
    /// `None`: the machine does not say how much it has, and only the limits of a search apply.
    room: Option<SearchRoom>,
    granted_bytes: Mutex<u64>,
    /// One search is compiled at a time: it is granted much until it is known how little it takes.
    compiling: Mutex<()>,
    /// The bytes that the machine has available now.
    available: fn() -> Option<u64>,
    /// The results that clients have not taken.
    outputs: Arc<OutputMemory>,
}

impl Default for SearchMemory {
    /// No limit beyond those of a search.
    fn default() -> Self {
        Self::new(None)
    }
}

impl SearchMemory {
    pub fn new(room: Option<SearchRoom>) -> Self {
        let (room, output_bytes) = match room.map(SearchRoom::divided) {
            Some((room, output_bytes)) => (Some(room), output_bytes),
            None => (None, OUTPUT_BYTES_MAX),
        };
        let available = || machine_memory().map(|memory| memory.available_bytes);
        Self { outputs: Arc::new(OutputMemory::new(output_bytes)), ..Self::with(room, available) }
    }

    /// All of `room` is for searches themselves: a job keeps a line of results only if no other does.
    fn with(room: Option<SearchRoom>, available: fn() -> Option<u64>) -> Self {
        let outputs = Arc::new(OutputMemory::new(0));
        Self { room, granted_bytes: Mutex::default(), compiling: Mutex::default(), available, outputs }
    }

    /// The results that clients have not taken.
    pub fn outputs(&self) -> &Arc<OutputMemory> {
        &self.outputs
    }

    /// The bytes that are kept for searches and their results, and that none has taken yet.
    pub fn reserved_bytes(&self) -> u64 {
        let of = |room: SearchRoom| room.bytes_max.saturating_sub(*self.granted_bytes.lock());
        self.room.map_or(0, |room| of(room).saturating_add(self.outputs.left_bytes()))
    }

    /// Waits until no other search is compiled.
    pub fn compiling(&self) -> MutexGuard<'_, ()> {
        self.compiling.lock()
    }

    /// Whether a search is compiled now, which may be granted more than it takes.
    pub fn is_compiling(&self) -> bool {
        self.compiling.is_locked()
    }

    /// Refuses searches while less than this is left.
    ///
    /// # Errors
    ///
    /// If so.
    pub fn check(&self, bytes_least: u64) -> Result<(), NoMemory> {
        let left_bytes = self.left_bytes(*self.granted_bytes.lock());
        if left_bytes < bytes_least { Err(NoMemory { left_bytes }) } else { Ok(()) }
    }

    /// Grants at most this much: what is left.
    pub fn grant(self: &Arc<Self>, bytes_max: u64) -> Granted {
        let mut granted_bytes = self.granted_bytes.lock();
        let bytes = bytes_max.min(self.left_bytes(*granted_bytes));
        *granted_bytes = granted_bytes.saturating_add(bytes);
        drop(granted_bytes);
        Granted { memory: Arc::clone(self), bytes }
    }

    /// Grants this much.
    ///
    /// # Errors
    ///
    /// If less is left.
    pub fn grant_all(self: &Arc<Self>, bytes: u64) -> Result<Granted, NoMemory> {
        let granted = self.grant(bytes);
        let left_bytes = granted.bytes();
        if left_bytes < bytes { Err(NoMemory { left_bytes }) } else { Ok(granted) }
    }

    fn left_bytes(&self, granted_bytes: u64) -> u64 {
        let Some(room) = self.room else { return u64::MAX };
        let now = (self.available)().map_or(u64::MAX, |available| available.saturating_sub(room.kept_bytes));
        room.bytes_max.saturating_sub(granted_bytes).min(now)
    }
}

/// Memory that a search may take, until this is dropped.
pub(crate) struct Granted {
    memory: Arc<SearchMemory>,
    bytes: u64,
}

impl Granted {
    /// The bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what is beyond `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        let returned = self.bytes.saturating_sub(bytes);
        self.bytes -= returned;
        let mut granted_bytes = self.memory.granted_bytes.lock();
        *granted_bytes = granted_bytes.saturating_sub(returned);
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

/// A search takes more memory than this machine has left for searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this machine has {} of memory left for searches, and this one takes more", Size(*left_bytes))]
pub(crate) struct NoMemory {
    /// The bytes that are left.
    pub left_bytes: u64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// As much for all searches together, on a machine that has plenty available.
    pub fn of(bytes_max: u64) -> Arc<SearchMemory> {
        let room = SearchRoom { bytes_max, kept_bytes: 48 * MIB };
        Arc::new(SearchMemory::with(Some(room), || Some(1 << 40)))
    }

    #[test]
    fn searches_together_are_granted_no_more_than_there_is_room_for_and_return_it() {
        let memory = of(100 * MIB);
        let mut first = memory.grant(80 * MIB);
        let second = memory.grant(80 * MIB);
        assert_eq!((first.bytes(), second.bytes(), memory.reserved_bytes()), (80 * MIB, 20 * MIB, 0));
        assert_eq!(memory.check(1), Err(NoMemory { left_bytes: 0 }));
        first.shrink(30 * MIB);
        assert_eq!((first.bytes(), memory.grant(80 * MIB).bytes()), (30 * MIB, 50 * MIB));
        // Never more than it had.
        first.shrink(90 * MIB);
        assert_eq!((first.bytes(), memory.reserved_bytes()), (30 * MIB, 50 * MIB));
        drop((first, second));
        assert_eq!((memory.reserved_bytes(), memory.check(100 * MIB)), (100 * MIB, Ok(())));
        // All or nothing.
        let whole = memory.grant_all(60 * MIB).map_err(|refused| refused.left_bytes);
        assert_eq!(memory.grant_all(60 * MIB).err(), Some(NoMemory { left_bytes: 40 * MIB }));
        assert_eq!((whole.map(|whole| whole.bytes()), memory.reserved_bytes()), (Ok(60 * MIB), 100 * MIB));
    }

    #[test]
    fn a_machine_that_has_less_available_by_now_grants_less() {
        fn left(available: fn() -> Option<u64>) -> u64 {
            let room = SearchRoom { bytes_max: 100 * MIB, kept_bytes: 48 * MIB };
            Arc::new(SearchMemory::with(Some(room), available)).grant(u64::MAX).bytes()
        }
        assert_eq!(left(|| Some(148 * MIB)), 100 * MIB);
        assert_eq!(left(|| Some(58 * MIB)), 10 * MIB);
        assert_eq!(left(|| Some(MIB)), 0);
        assert_eq!(left(|| None), 100 * MIB);
    }

    #[test]
    fn without_a_room_any_search_is_granted_what_it_takes() {
        let memory: Arc<SearchMemory> = Arc::default();
        assert_eq!((memory.grant(80 * MIB).bytes(), memory.reserved_bytes()), (80 * MIB, 0));
        assert_eq!(memory.check(u64::MAX), Ok(()));
    }
}
