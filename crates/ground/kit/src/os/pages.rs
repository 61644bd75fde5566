//! Ranges of memory, in pages of the system.

use std::ptr::NonNull;

/// The pages that lie in a range as a whole; `None` if there are none. The calls of FreeBSD and macOS round out, and pages of macOS may
/// have 16 KiB: then bytes beside the range would be unlocked or dropped.
pub(super) fn whole_pages(at: NonNull<u8>, len: usize, page_bytes: usize) -> Option<(NonNull<u8>, usize)> {
    let begin = at.addr().get();
    let first = begin.checked_next_multiple_of(page_bytes)?;
    let end = begin.checked_add(len)? / page_bytes * page_bytes;
    let at = NonNull::new(at.as_ptr().wrapping_add(first - begin))?;
    (first < end).then(|| (at, end - first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_that_lie_in_a_range_as_a_whole_are_given_back() {
        let found = |at: usize, len| {
            let at = NonNull::new(std::ptr::without_provenance_mut(at)).unwrap();
            whole_pages(at, len, 16 << 10).map(|(at, len)| (at.addr().get(), len))
        };
        assert_eq!(found(16 << 10, 16 << 10), Some((16 << 10, 16 << 10)));
        assert_eq!(found((16 << 10) + 4096, 64 << 10), Some((32 << 10, 48 << 10)));
        assert_eq!(found((16 << 10) + 4096, 16 << 10), None);
        assert_eq!(found(4096, 4096), None);
        assert_eq!(found(usize::MAX - 4096, 4095), None);
    }
}
