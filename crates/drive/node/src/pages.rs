//! Copying into and out of a slot, page by page, updating and checking digests.
//!
//! A digest is computed from a buffer before the bytes are stored, or, where they are received in place, at once after that, while
//! they are in the processor's cache: defective memory changes them only later.

use cheetah_device::ByteRange;
use cheetah_kit::page_digest;

use crate::arena::{PAGE_BYTES, View, ViewMut};

/// The page of the slot, from 0, that does not match its digest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadPage(pub usize);

/// Appends the range `at` of a slot to `out`.
///
/// With `checked`, it compares the copy with the digests, so the bytes returned are the bytes checked. Checking page by page
/// finds the page in the processor's cache. After an error, the content of `out` is undefined.
pub(crate) fn read(view: &View<'_>, at: ByteRange, checked: bool, out: &mut Vec<u8>) -> Result<(), BadPage> {
    if !checked {
        out.extend_from_slice(&view.bytes[indices(at)]);
        return Ok(());
    }
    for piece in at.split_at_multiples(PAGE_BYTES as u64) {
        let (page, within) = (page_of(piece), within_page(piece));
        let stored = &view.bytes[page * PAGE_BYTES..][..PAGE_BYTES];
        if within.len() == PAGE_BYTES {
            let start = out.len();
            out.extend_from_slice(stored);
            check(&out[start..], page, view.digests[page])?;
        } else {
            let mut copy = [0; PAGE_BYTES];
            copy.copy_from_slice(stored);
            check(&copy, page, view.digests[page])?;
            out.extend_from_slice(&copy[within]);
        }
    }
    Ok(())
}

/// Copies the range `at` of a slot to `out`, which has its length; checked as by [`read`].
pub(crate) fn copy(view: &View<'_>, at: ByteRange, checked: bool, out: &mut [u8]) -> Result<(), BadPage> {
    if !checked {
        out.copy_from_slice(&view.bytes[indices(at)]);
        return Ok(());
    }
    let mut rest = out;
    for piece in at.split_at_multiples(PAGE_BYTES as u64) {
        let (page, within) = (page_of(piece), within_page(piece));
        let stored = &view.bytes[page * PAGE_BYTES..][..PAGE_BYTES];
        let (copy, after) = rest.split_at_mut(within.len());
        rest = after;
        if within.len() == PAGE_BYTES {
            copy.copy_from_slice(stored);
            check(copy, page, view.digests[page])?;
        } else {
            let mut whole = [0; PAGE_BYTES];
            whole.copy_from_slice(stored);
            check(&whole, page, view.digests[page])?;
            copy.copy_from_slice(&whole[within]);
        }
    }
    Ok(())
}

/// Returns the range `at` of a slot in place; with `checked`, after checking every page it touches.
pub(crate) fn show<'a>(view: View<'a>, at: ByteRange, checked: bool) -> Result<&'a [u8], BadPage> {
    if checked {
        for piece in at.split_at_multiples(PAGE_BYTES as u64) {
            let page = page_of(piece);
            check(&view.bytes[page * PAGE_BYTES..][..PAGE_BYTES], page, view.digests[page])?;
        }
    }
    Ok(&view.bytes[indices(at)])
}

/// Copies `bytes` to the slot from `offset` on.
///
/// With `checked`, the digest of a whole page is computed from `bytes`, so it also covers the copy. A page written in part is
/// checked first, or a corrupt byte would get a valid digest.
pub(crate) fn write(view: &mut ViewMut<'_>, offset: u64, bytes: &[u8], checked: bool) -> Result<(), BadPage> {
    let at = ByteRange::new(offset, bytes.len() as u64);
    if !checked {
        view.bytes[indices(at)].copy_from_slice(bytes);
        return Ok(());
    }
    for piece in at.split_at_multiples(PAGE_BYTES as u64) {
        let (page, within) = (page_of(piece), within_page(piece));
        let source = &bytes[indices(ByteRange::new(piece.offset - offset, piece.len))];
        let stored = &mut view.bytes[page * PAGE_BYTES..][..PAGE_BYTES];
        if within.len() == PAGE_BYTES {
            view.digests[page] = page_digest(source);
            stored.copy_from_slice(source);
        } else {
            check(stored, page, view.digests[page])?;
            stored[within].copy_from_slice(source);
            view.digests[page] = page_digest(stored);
        }
    }
    Ok(())
}

/// Digests the whole pages among `len` bytes of a slot that were just written in place, from the start of a page on: the digest
/// is computed while they are in the processor's cache.
pub(crate) fn digest_whole(view: &mut ViewMut<'_>, start: usize, len: usize) {
    for page in start / PAGE_BYTES..(start + len) / PAGE_BYTES {
        view.digests[page] = page_digest(&view.bytes[page * PAGE_BYTES..][..PAGE_BYTES]);
    }
}

fn check(bytes: &[u8], page: usize, expected: u64) -> Result<(), BadPage> {
    if page_digest(bytes) == expected { Ok(()) } else { Err(BadPage(page)) }
}

// The ranges below lie within a slot or a buffer in memory, so nothing is truncated.

fn indices(range: ByteRange) -> std::ops::Range<usize> {
    range.offset as usize..range.end() as usize
}

fn page_of(piece: ByteRange) -> usize {
    piece.offset as usize / PAGE_BYTES
}

fn within_page(piece: ByteRange) -> std::ops::Range<usize> {
    let start = piece.offset as usize % PAGE_BYTES;
    start..start + piece.len as usize
}
