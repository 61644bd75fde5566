//! Memory in a mapping of its own: zeroed, kept out of core dumps and child processes, and locked where that is allowed.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::os::memory;

/// Mapped memory, unmapped when this is dropped. Ranges of it begin and end at multiples of a page.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
    /// Whether what is used is locked.
    locked: AtomicBool,
}

// SAFETY: the memory is owned by this value alone, which only tells where it is.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes, all zeros.
    ///
    /// # Errors
    ///
    /// If there are too few addresses, or too little memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Ok(Self { at: memory::map(bytes)?, bytes, locked: AtomicBool::new(false) })
    }

    /// The same, without a check that there will be memory for all of it.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn on_demand(bytes: usize) -> io::Result<Self> {
        Ok(Self { at: memory::map_on_demand(bytes)?, bytes, locked: AtomicBool::new(false) })
    }

    /// Its first byte.
    pub fn at(&self) -> NonNull<u8> {
        self.at
    }

    /// Its length, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a range out of core dumps and child processes.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn hide(&self, offset: usize, len: usize) -> io::Result<()> {
        let at = self.part(offset, len)?;
        // SAFETY: the range is our own mapping; its content is not changed.
        unsafe { memory::hide(at, len) }
    }

    /// Has a range take huge pages, if it can.
    ///
    /// # Errors
    ///
    /// If the system refuses: then it takes usual ones.
    pub fn prefer_huge_pages(&self, offset: usize, len: usize) -> io::Result<()> {
        let at = self.part(offset, len)?;
        // SAFETY: as in `hide`.
        unsafe { memory::prefer_huge_pages(at, len) }
    }

    /// Locks all of it, which takes memory for all of it.
    ///
    /// # Errors
    ///
    /// If a limit forbids that.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: as in `hide`.
        unsafe { memory::lock(self.at, self.bytes) }?;
        self.locked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Has a range be locked as it is used for the first time, or as [`fault_in`](Self::fault_in) comes to it. Call
    /// [`use_again`](Self::use_again) before the first use, too.
    ///
    /// # Errors
    ///
    /// If a limit forbids that.
    pub fn lock_as_used(&self, offset: usize, len: usize) -> io::Result<()> {
        let at = self.part(offset, len)?;
        // SAFETY: as in `hide`.
        unsafe { memory::lock_as_used(at, len) }?;
        self.locked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether what is used is locked.
    pub fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }

    /// Faults in a range, so that its first use is fast. Safe beside any use of the memory.
    ///
    /// # Errors
    ///
    /// If the system cannot do that ahead of use, or has no memory.
    pub fn fault_in(&self, offset: usize, len: usize) -> io::Result<()> {
        let at = self.part(offset, len)?;
        // SAFETY: the range is our own mapping; populating it changes nothing that memory in use holds.
        unsafe { memory::fault_in(at, len, &self.locked) }
    }

    /// Gives the memory of a range of zeros back to the machine. It still reads as zeros, and is faulted in again as it is used.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    ///
    /// # Safety
    ///
    /// Nothing refers to the range, and it is all zeros.
    pub unsafe fn give_back(&self, offset: usize, len: usize) -> io::Result<()> {
        let at = self.part(offset, len)?;
        // SAFETY: the range is our own mapping, and the caller promises the rest.
        unsafe { memory::give_back(at, len, &self.locked) }
    }

    /// Takes a range into use for the first time, or again after it was given back: it is locked, where that does not happen by
    /// itself.
    pub fn use_again(&self, offset: usize, len: usize) {
        if let Ok(at) = self.part(offset, len) {
            // SAFETY: as in `fault_in`.
            unsafe { memory::use_again(at, len, &self.locked) }
        }
    }

    /// The first byte of a range, which must be in the mapping.
    fn part(&self, offset: usize, len: usize) -> io::Result<NonNull<u8>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes);
        end.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the offset is within the mapping.
        Ok(unsafe { self.at.add(offset) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us, and the owner, which is dropped, let nothing outlive it that refers to it.
        if let Err(error) = unsafe { memory::unmap(self.at, self.bytes) } {
            tracing::error!(%error, "memory could not be unmapped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1 << 20;

    #[test]
    fn memory_is_zeroed_also_after_it_was_given_back() {
        let mapping = Mapping::on_demand(BYTES).unwrap();
        mapping.hide(0, BYTES).unwrap();
        let _ = mapping.prefer_huge_pages(0, BYTES);
        let locked = mapping.lock_as_used(0, BYTES).is_ok();
        assert_eq!(mapping.is_locked(), locked);
        let _ = mapping.fault_in(0, BYTES);
        // SAFETY: the mapping is ours alone, and lives to the end of the test.
        let bytes = unsafe { std::slice::from_raw_parts_mut(mapping.at().as_ptr(), BYTES) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes[..4096].fill(7);
        // SAFETY: `bytes` is not used before the next one.
        unsafe { mapping.give_back(4096, BYTES - 4096) }.unwrap();
        mapping.use_again(4096, BYTES - 4096);
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.at().as_ptr(), BYTES) };
        assert!(bytes[..4096].iter().all(|byte| *byte == 7) && bytes[4096..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_range_beyond_the_end_is_refused() {
        let mapping = Mapping::new(BYTES).unwrap();
        assert_eq!(mapping.bytes(), BYTES);
        for (offset, len) in [(0, BYTES + 1), (BYTES, 4096), (usize::MAX, 4096)] {
            assert_eq!(mapping.hide(offset, len).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
