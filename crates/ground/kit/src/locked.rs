//! Memory for secrets: locked, kept out of core dumps and child processes, and wiped.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use zeroize::Zeroize as _;

use crate::mapping::Mapping;

/// Bytes of the smallest mapping.
const PAGE_BYTES: usize = 4096;

/// A value in a mapping of its own.
///
/// Where a limit forbids locking, it is only kept out of core dumps and child processes, and the log says so.
pub struct Locked<T> {
    at: NonNull<T>,
    // After the value, which is dropped by `drop`.
    _mapping: Secret,
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
        let mapping = Secret::new(size_of::<T>())?;
        let at = mapping.0.at().cast::<T>();
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
    mapping: Secret,
    len: usize,
}

impl LockedBytes {
    /// Maps memory for `len` bytes, all zeros.
    ///
    /// # Errors
    ///
    /// If no memory can be mapped or kept out of core dumps.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        Ok(Self { mapping: Secret::new(len)?, len })
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
        unsafe { std::slice::from_raw_parts(self.mapping.0.at().as_ptr(), self.len) }
    }
}

impl DerefMut for LockedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.0.at().as_ptr(), self.len) }
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
struct Secret(Mapping);

impl Secret {
    /// Maps at least `len` bytes, all zeros.
    fn new(len: usize) -> io::Result<Self> {
        let bytes = len.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::new(bytes)?;
        mapping.hide(0, bytes)?;
        if let Err(error) = mapping.lock() {
            tracing::info!(%error, "the memory of a key is not locked");
        }
        Ok(Self(mapping))
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping is left, and any value in it was dropped: these are plain bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.at().as_ptr(), self.0.bytes()) }.zeroize();
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

    #[cfg(target_os = "linux")]
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
