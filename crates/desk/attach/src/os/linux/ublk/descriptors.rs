//! The descriptors of requests, in memory that the kernel shares with this process.

#![allow(unsafe_code, reason = "memory that the kernel writes")]

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// `ublksrv_io_desc`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptor {
    /// The operation in the lowest byte, and flags.
    pub(super) flags: u32,
    /// Sectors of 512 bytes.
    pub(super) sectors: u32,
    /// The first sector.
    pub(super) start: u64,
    address: u64,
}

/// The descriptors of a queue's requests, by their numbers.
pub(super) struct Descriptors {
    start: NonNull<Descriptor>,
    count: u16,
}

// SAFETY: the memory belongs to the process, not to a thread.
unsafe impl Send for Descriptors {}

impl Descriptors {
    /// Maps those of the first queue.
    pub(super) fn map(file: &File, count: u16) -> io::Result<Self> {
        // SAFETY: a new mapping, which nothing else refers to.
        let start =
            unsafe { mmap(std::ptr::null_mut(), Self::bytes(count), ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("the kernel mapped nothing"))?;
        Ok(Self { start, count })
    }

    /// The descriptor of a request that the kernel has announced and that has not been answered.
    pub(super) fn get(&self, tag: u16) -> Option<Descriptor> {
        // SAFETY: within the mapping. The kernel does not write a descriptor between announcing the request and its answer.
        (tag < self.count).then(|| unsafe { self.start.add(usize::from(tag)).read_volatile() })
    }

    fn bytes(count: u16) -> usize {
        (usize::from(count) * size_of::<Descriptor>()).next_multiple_of(rustix::param::page_size())
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, to which no reference exists.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), Self::bytes(self.count)) };
    }
}
