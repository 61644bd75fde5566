//! Memory for secrets: locked, kept out of core dumps and child processes, and wiped. The only file of this crate with
//! `unsafe`.

use std::fmt;
use std::io;
use std::ops::Deref;
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
    bytes: usize,
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
        let bytes = size_of::<T>().max(1).next_multiple_of(PAGE_BYTES);
        // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
        let mapping = unsafe {
            mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let at = NonNull::new(mapping.cast::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // From here on, dropping it unmaps the memory, which is all zeros until the value is written.
        let guard = Mapping { at: mapping, bytes };
        // SAFETY: the range is our own mapping, and none of these calls changes its content.
        let (dump, fork, lock) = unsafe {
            (
                mm::madvise(mapping, bytes, Advice::LinuxDontDump),
                mm::madvise(mapping, bytes, Advice::LinuxDontFork),
                mm::mlock(mapping, bytes),
            )
        };
        dump?;
        fork?;
        if let Err(error) = lock {
            tracing::info!(%error, "the memory of a key is not locked");
        }
        std::mem::forget(guard);
        // SAFETY: the mapping is large enough, aligned to a page, and holds no value yet.
        unsafe { at.write(value) };
        Ok(Self { at, bytes })
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
        // SAFETY: the value is dropped once, here; then the mapping, which nothing refers to any more, is plain bytes.
        unsafe {
            self.at.drop_in_place();
            std::slice::from_raw_parts_mut(self.at.as_ptr().cast::<u8>(), self.bytes).zeroize();
        }
        drop(Mapping { at: self.at.as_ptr().cast(), bytes: self.bytes });
    }
}

/// Shows nothing of the value.
impl<T> fmt::Debug for Locked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locked")
    }
}

/// A mapping without a value.
struct Mapping {
    at: *mut std::ffi::c_void,
    bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `Locked::new`, and no reference into it is left.
        let unmapped = unsafe { mm::munmap(self.at, self.bytes) };
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
