//! Memory shared with the kernel.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, mmap_anonymous, munmap};

/// The cache line of common processors.
const CACHE_LINE_BYTES: usize = 64;

/// A mapping that both this program and the kernel read and write.
pub(super) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and no part of it is bound to a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps the memory that a socket offers at `offset`.
    pub(super) fn of(socket: impl AsFd, bytes: usize, offset: u64) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: the kernel chooses an address at which nothing else is.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, socket, offset)? };
        Self::new(start, bytes)
    }

    /// Maps zeroed memory on its own pages, which are allocated at once.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: the kernel chooses an address at which nothing else is.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)? };
        Self::new(start, bytes)
    }

    fn new(start: *mut c_void, bytes: usize) -> io::Result<Self> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Self { start, bytes };
        // If locking is not permitted, the memory still stays resident unless the machine is short of memory.
        // SAFETY: the range is this mapping.
        let _ = unsafe { mlock(start.as_ptr().cast(), bytes) };
        Ok(memory)
    }

    /// Its address, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Its size in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes into it. The kernel must not be using that part.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.bytes), "outside of the mapping");
        // SAFETY: the destination lies in the mapping, which is apart from anything a slice can be of.
        unsafe { self.start.add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Reads bytes to load them into the processor's caches.
    pub(super) fn touch(&self, offset: usize, bytes: usize) {
        for line in (offset..offset.saturating_add(bytes).min(self.bytes)).step_by(CACHE_LINE_BYTES) {
            // SAFETY: it lies in the mapping; the value does not matter, and the compiler keeps the read.
            let _ = unsafe { self.start.add(line).read_volatile() };
        }
    }

    /// A 32-bit cell that both sides use.
    pub(super) fn cell(&self, offset: usize) -> &AtomicU32 {
        self.check(offset, 4);
        // SAFETY: it lies in the mapping, is aligned, lives as long as it, and is only used atomically.
        unsafe { AtomicU32::from_ptr(self.start.add(offset).as_ptr().cast()) }
    }

    /// A 64-bit cell that both sides use.
    pub(super) fn wide_cell(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, 8);
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).as_ptr().cast()) }
    }

    /// Offsets come from this program and from the kernel's description of its rings, never from the network.
    fn check(&self, offset: usize, bytes: usize) {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside && offset.is_multiple_of(bytes), "outside of the mapping");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and cells borrowed from it are gone.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
