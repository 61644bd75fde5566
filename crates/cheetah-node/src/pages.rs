//! Copying into and out of a slot, page by page, with the digests kept and checked.

use cheetah_device::ByteRange;

use crate::arena::{PAGE_BYTES, View, ViewMut};
use crate::digest::digest;

/// This page of the slot, from 0, does not match its digest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadPage(pub usize);

/// Appends the range `at` of a slot to `out`.
///
/// With `checked`, what is compared with the digests is the copy, so the bytes handed out are the bytes that were
/// found right. Checking page by page finds the page still in the cache. After an error `out` is of no use.
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

/// The range `at` of a slot where it lies; with `checked`, once every page it touches was found right.
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
/// With `checked`, a whole page's digest is that of the bytes that arrived, so it covers the copying too; a page
/// written in part has to be right before, or a bad byte would get a good digest.
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
            view.digests[page] = digest(source);
            stored.copy_from_slice(source);
        } else {
            check(stored, page, view.digests[page])?;
            stored[within].copy_from_slice(source);
            view.digests[page] = digest(stored);
        }
    }
    Ok(())
}

fn check(bytes: &[u8], page: usize, expected: u64) -> Result<(), BadPage> {
    if digest(bytes) == expected { Ok(()) } else { Err(BadPage(page)) }
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
