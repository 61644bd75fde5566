//! Memory for secrets: locked, kept out of core dumps and child processes, and wiped.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use zeroize::Zeroize as _;

/// Bytes of the smallest mapping.
const PAGE_BYTES: usize = 4096;

/// A value in a mapping of its own.
///
/// Where a limit forbids locking, it is only kept out of core dumps and child processes, and the log says so.
pub struct Locked<T> {
    at: NonNull<T>,
    // After the value, which is dropped by `drop`.
    _mapping: Mapping,
}

// SAFETY: the mapping is owned by this value alone, so it is as shareable as the `T` in it.
unsafe impl<T: Send> Send for Locked<T> {}
// SAFETY: as above; only `&T` is handed out.
unsafe impl<T: Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Maps memory and moves `value` there.
    ///
    /// # Errors
    ///
    /// If no memory can be mapped or kept out of core dumps.
    pub fn new(value: T) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= PAGE_BYTES) }
        let mapping = Mapping::new(size_of::<T>())?;
        let at = mapping.at.cast::<T>();
        // SAFETY: the mapping is large enough, aligned to a page, and holds no value yet.
        unsafe { at.write(value) };
        Ok(Self { at, _mapping: mapping })
    }
}

impl<T> Deref for Locked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` wrote a value, which lives until the drop.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        // SAFETY: the value is dropped once, here; the mapping is wiped and unmapped after that.
        unsafe { self.at.drop_in_place() };
    }
}

/// Shows nothing of the value.
impl<T> fmt::Debug for Locked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locked")
    }
}

/// Bytes in a mapping of their own, as [`Locked`].
pub struct LockedBytes {
    mapping: Mapping,
    len: usize,
}

// SAFETY: the mapping is owned by this value alone, and holds plain bytes.
unsafe impl Send for LockedBytes {}
// SAFETY: as above; it is changed through `&mut` only.
unsafe impl Sync for LockedBytes {}

impl LockedBytes {
    /// Maps memory for `len` bytes, all zeros.
    ///
    /// # Errors
    ///
    /// If no memory can be mapped or kept out of core dumps.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::new(len)?, len })
    }

    /// Maps memory for a copy of `bytes`, which the caller wipes.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    pub fn copy_of(bytes: &[u8]) -> io::Result<Self> {
        let mut copy = Self::zeroed(bytes.len())?;
        copy.copy_from_slice(bytes);
        Ok(copy)
    }

    /// Keeps the first `len` bytes, if there are more, and wipes the others.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self[len..].zeroize();
            self.len = len;
        }
    }
}

impl Deref for LockedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has at least this many bytes, all of them initialised.
        unsafe { std::slice::from_raw_parts(self.mapping.at.as_ptr(), self.len) }
    }
}

impl DerefMut for LockedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.at.as_ptr(), self.len) }
    }
}

/// Shows nothing of the bytes.
impl fmt::Debug for LockedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockedBytes")
    }
}

/// Bytes of stack that are wiped: more than the functions take that derive, unwrap and expand keys.
const STACK_BYTES: usize = 256 << 10;

/// Does work that handles secrets, and then overwrites the stack that it used, where its functions may have left copies: values are
/// moved into locked memory by way of the stack. What it returns must hold no secret outside of locked memory.
pub fn with_stack_wiped<T>(work: impl FnOnce() -> T) -> T {
    /// Not inlined, so that the work has its frames where those of `wipe_stack` are.
    #[inline(never)]
    fn call<T>(work: impl FnOnce() -> T) -> T {
        work()
    }
    let made = call(work);
    wipe_stack();
    made
}

/// Overwrites the stack below the caller's frame.
#[inline(never)]
fn wipe_stack() {
    let mut below = [0u8; STACK_BYTES];
    below.zeroize();
    std::hint::black_box(&below);
}

/// Mapped memory, wiped when it is dropped.
struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps at least `len` bytes, all zeros.
    fn new(len: usize) -> io::Result<Self> {
        let bytes = len.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
        let address = unsafe {
            mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let at = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // From here on, dropping it unmaps the memory.
        let mapping = Self { at, bytes };
        // SAFETY: the range is our own mapping, and none of these calls changes its content.
        let (dump, fork, lock) = unsafe {
            (
                mm::madvise(address, bytes, Advice::LinuxDontDump),
                mm::madvise(address, bytes, Advice::LinuxDontFork),
                mm::mlock(address, bytes),
            )
        };
        dump?;
        fork?;
        if let Err(error) = lock {
            tracing::info!(%error, "the memory of a key is not locked");
        }
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, no reference into it is left, and any value in it was dropped: these are
        // plain bytes.
        let unmapped = unsafe {
            std::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes).zeroize();
            mm::munmap(self.at.as_ptr().cast(), self.bytes)
        };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "the memory of a key stays mapped, all zeros");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_can_be_read_and_is_not_shown() {
        let locked = Locked::new([7u8; 32]).unwrap();
        assert_eq!(*locked, [7; 32]);
        assert_eq!(format!("{locked:?}"), "Locked");
    }

    #[test]
    fn bytes_can_be_changed_and_cut_and_are_not_shown() {
        let mut bytes = LockedBytes::copy_of(b"correct horse").unwrap();
        bytes[0] = b'C';
        bytes.truncate(7);
        assert_eq!(*bytes, *b"Correct");
        bytes.truncate(9);
        assert_eq!(bytes.len(), 7);
        assert_eq!(format!("{bytes:?}"), "LockedBytes");
        assert!(LockedBytes::zeroed(0).unwrap().is_empty());
    }

    #[test]
    fn a_value_is_locked_and_kept_out_of_core_dumps() {
        let locked = Locked::new([7u8; 32]).unwrap();
        let address = std::ptr::from_ref::<[u8; 32]>(&locked).addr();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut flags = None;
        let mut within = false;
        for line in maps.lines() {
            if let Some((from, to)) = line.split(' ').next().and_then(|range| range.split_once('-'))
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                within = (from..to).contains(&address);
            } else if within && let Some(found) = line.strip_prefix("VmFlags:") {
                flags = Some(found.to_owned());
            }
        }
        let flags = flags.unwrap();
        for flag in ["lo", "dd", "dc"] {
            assert!(flags.split(' ').any(|found| found == flag), "{flag} of {flags}");
        }
    }
}
