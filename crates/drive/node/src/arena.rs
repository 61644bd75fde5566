//! The lent memory: one mapping, divided into slots. The one file of this crate with `unsafe`.
//!
//! ```text
//! mapping   | piece 0: 64 MiB                          | piece 1                | … | the rest
//! piece     | digests: 128 KiB | slot | slot | … 1022  |
//! slot      | page: 4 KiB | … 16 pages | = 64 KiB
//! ```
//!
//! The head of each piece, as large as two slots, holds the page digests of its other 1022 slots, 16 × 8 bytes each. So
//! a node uses no more memory than it lends, and faulting a piece in also faults in its digests.
//!
//! Invariants: a free slot is all zero, and so are its digests except the first, which links the free slots. A [`Slot`]
//! is the only access to its memory, is not `Clone`, and there is at most one for each place: `&Slot` permits reading,
//! `&mut Slot` writing, and owners store it behind a lock.

use std::io;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use cheetah_device::{Size, data::is_zero};
use cheetah_kit::mapping::Mapping;
use parking_lot::Mutex;

/// The size of a slot: the memory of one chunk of an export, and the unit of allocation.
pub const SLOT_BYTES: usize = 64 << 10;
/// The bytes that a digest covers.
pub const PAGE_BYTES: usize = 4 << 10;
/// Digests in a slot.
pub const SLOT_PAGES: usize = SLOT_BYTES / PAGE_BYTES;
/// Bytes in a piece, digests included.
pub const PIECE_BYTES: usize = 64 << 20;
/// The least memory a node can lend.
pub const LENT_BYTES_MIN: u64 = 1 << 20;
/// The most memory a node can lend: slot numbers have 32 bits. Where pointers have 32 bits, a mapping has less than 2 GiB.
pub const LENT_BYTES_MAX: u64 = if usize::BITS < 64 { (2 << 30) - PIECE_BYTES as u64 } else { 128 << 40 };

const DIGEST_BYTES: usize = SLOT_PAGES * size_of::<u64>();
const HEAD_BYTES: usize = 2 * SLOT_BYTES;
const PIECE_SLOTS: usize = PIECE_BYTES / SLOT_BYTES - 2;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const _: () = assert!(PIECE_SLOTS * DIGEST_BYTES <= HEAD_BYTES);

/// Exclusive ownership of a slot of an arena: its number, from 1, so that `Option<Slot>` needs no more room.
///
/// Return it with [`Arena::free`] of the same arena; a dropped slot is lost until the node ends.
#[derive(Debug)]
pub(crate) struct Slot(NonZeroU32);

/// A slot's memory, for reading.
pub(crate) struct View<'a> {
    pub bytes: &'a [u8; SLOT_BYTES],
    pub digests: &'a [u64; SLOT_PAGES],
}

/// A slot's memory, for writing.
pub(crate) struct ViewMut<'a> {
    pub bytes: &'a mut [u8; SLOT_BYTES],
    pub digests: &'a mut [u64; SLOT_PAGES],
}

/// The lent memory.
pub(crate) struct Arena {
    mapping: Mapping,
    /// Where the lent bytes begin in the mapping.
    pad: usize,
    base: NonNull<u8>,
    bytes: usize,
    slots: u32,
    free: Mutex<FreeSlots>,
    ready_bytes: AtomicU64,
}

struct FreeSlots {
    /// The slot freed last; its first digest is the number of the slot freed before it, or 0.
    last: Option<Slot>,
    /// The same for free slots without memory: their pages were given back to the machine.
    without_memory: Option<Slot>,
    /// The first slot, from 0, that was never used.
    fresh: u32,
}

// SAFETY: the pointers are to a mapping owned by the arena alone. Its memory is reached only through `Slot`s, which
// follow Rust's borrowing rules, and the list of free slots is behind a lock.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `lent_bytes`, rounded down to whole slots, excludes them from core dumps and child processes, and locks
    /// them.
    ///
    /// Memory is locked as it is faulted in ([`Arena::fault_in`], or the first use). Where a limit forbids that,
    /// [`Arena::locked`] is false, and the program should warn.
    pub fn new(lent_bytes: u64) -> io::Result<Self> {
        if !(LENT_BYTES_MIN..=LENT_BYTES_MAX).contains(&lent_bytes) {
            let (min, max, asked) = (Size(LENT_BYTES_MIN), Size(LENT_BYTES_MAX), Size(lent_bytes));
            let bits = usize::BITS;
            return Err(io::Error::other(format!("a node of {bits} bits lends between {min} and {max}, not {asked}")));
        }
        let bytes = usize::try_from(lent_bytes).map_err(io::Error::other)? / SLOT_BYTES * SLOT_BYTES;
        let slots = u32::try_from(slots_in(bytes)).map_err(io::Error::other)?;
        // Room to align the start to a huge page.
        let mapping_bytes = bytes + HUGE_PAGE_BYTES;
        let mapping = Mapping::on_demand(mapping_bytes).map_err(|error| {
            let size = Size(mapping_bytes as u64);
            io::Error::other(format!("this process has no {size} of addresses in one run ({error}): lend less"))
        })?;
        let pad = mapping.at().as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: a huge page's worth of room was mapped for this, and `pad` is less than that.
        let base = unsafe { mapping.at().add(pad) };
        let free = Mutex::new(FreeSlots { last: None, without_memory: None, fresh: 0 });
        let arena = Self { mapping, pad, base, bytes, slots, free, ready_bytes: AtomicU64::new(0) };
        arena.protect()?;
        Ok(arena)
    }

    fn protect(&self) -> io::Result<()> {
        self.mapping.hide(self.pad, self.bytes)?;
        if let Err(error) = self.mapping.prefer_huge_pages(self.pad, self.bytes) {
            tracing::debug!(%error, "no huge pages: the memory works, a little slower");
        }
        if let Err(error) = self.mapping.lock_as_used(self.pad, self.bytes) {
            tracing::info!(%error, "the lent memory is not locked");
        }
        Ok(())
    }

    /// Whether all of it is locked.
    pub fn locked(&self) -> bool {
        self.mapping.is_locked()
    }

    /// Bytes lent.
    pub fn lent_bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The number of slots.
    pub fn slots(&self) -> u64 {
        self.slots.into()
    }

    /// Bytes faulted in ahead of use.
    pub fn ready_bytes(&self) -> u64 {
        self.ready_bytes.load(Ordering::Relaxed)
    }

    /// Faults in `len` bytes from `offset`, both multiples of a page, so that their first use is fast. Safe beside any
    /// use of the memory.
    pub fn fault_in(&self, offset: usize, len: usize) -> io::Result<()> {
        if offset >= self.bytes {
            return Ok(());
        }
        let len = len.min(self.bytes - offset);
        self.mapping.fault_in(self.pad + offset, len)?;
        self.ready_bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Allocates a slot, all zero; `None` if all are in use.
    pub fn allocate(&self) -> Option<Slot> {
        let mut free = self.free.lock();
        let FreeSlots { last, without_memory, .. } = &mut *free;
        if let Some(slot) = self.pop(last) {
            return Some(slot);
        }
        if let Some(slot) = self.pop(without_memory) {
            self.mapping.use_again(self.offset(&slot), SLOT_BYTES);
            return Some(slot);
        }
        if free.fresh == self.slots {
            return None;
        }
        free.fresh += 1;
        let slot = NonZeroU32::new(free.fresh).map(Slot)?;
        // It may come before the threads that fault in ahead of use.
        self.mapping.use_again(self.offset(&slot), SLOT_BYTES);
        Some(slot)
    }

    /// Wipes a slot and frees it. False if it did not read back as zero: the memory is defective, and the slot is not
    /// used again.
    #[must_use]
    pub fn free(&self, mut slot: Slot) -> bool {
        let view = self.view_mut(&mut slot);
        view.bytes.fill(0);
        view.digests.fill(0);
        // Opaque to the compiler, which would otherwise infer the result from the writes above instead of reading
        // memory.
        let seen = std::hint::black_box(self.view(&slot));
        if !is_zero(seen.bytes) || seen.digests.iter().any(|digest| *digest != 0) {
            tracing::error!(slot = slot.0, "memory did not read back as zero after it was wiped: broken memory?");
            return false;
        }
        self.push(&mut self.free.lock().last, slot);
        true
    }

    /// Gives the memory of free slots that were in use back to the machine. Their next use faults it in again. Returns the
    /// number of bytes.
    pub fn give_back_free(&self) -> u64 {
        let mut slots = Vec::new();
        {
            let FreeSlots { last, .. } = &mut *self.free.lock();
            while let Some(slot) = self.pop(last) {
                slots.push(slot);
            }
        }
        slots.sort_unstable_by_key(|slot| slot.0);
        // One call for each run of neighbours: a huge page leaves memory as a whole.
        for run in slots.chunk_by(|slot, next| slot.0.get() + 1 == next.0.get() && self.are_adjacent(slot, next)) {
            if let Err(error) = self.give_back(&run[0], run.len() * SLOT_BYTES) {
                tracing::warn!(%error, "free memory cannot be given back to the machine");
            }
        }
        let bytes = (slots.len() * SLOT_BYTES) as u64;
        let without_memory = &mut self.free.lock().without_memory;
        slots.into_iter().rev().for_each(|slot| self.push(without_memory, slot));
        bytes
    }

    fn are_adjacent(&self, slot: &Slot, next: &Slot) -> bool {
        self.place(slot).0 as usize + SLOT_BYTES == self.place(next).0 as usize
    }

    /// Gives back the memory from the start of a free slot. The free slots in it stay zero: the kernel gives zeroed memory.
    fn give_back(&self, first: &Slot, len: usize) -> io::Result<()> {
        // SAFETY: the range belongs to free slots, which the caller took out of the list of free slots; they are all zero.
        unsafe { self.mapping.give_back(self.offset(first), len) }
    }

    /// Where a slot's memory begins in the mapping.
    fn offset(&self, slot: &Slot) -> usize {
        self.place(slot).0.addr() - self.mapping.at().as_ptr().addr()
    }

    /// Takes the slot that was put into a list of free slots last.
    fn pop(&self, list: &mut Option<Slot>) -> Option<Slot> {
        let mut slot = list.take()?;
        let link = &mut self.view_mut(&mut slot).digests[0];
        *list = u32::try_from(std::mem::take(link)).ok().and_then(NonZeroU32::new).map(Slot);
        Some(slot)
    }

    /// Puts a slot that is all zero into a list of free slots.
    fn push(&self, list: &mut Option<Slot>, mut slot: Slot) {
        self.view_mut(&mut slot).digests[0] = list.as_ref().map_or(0, |last| u64::from(last.0.get()));
        *list = Some(slot);
    }

    /// Returns a slot's memory.
    pub fn view<'a>(&'a self, slot: &'a Slot) -> View<'a> {
        let (bytes, digests) = self.place(slot);
        // SAFETY: `place` gives pointers into the mapping, aligned, each slot its own; the memory is initialised (an
        // anonymous mapping is zero). Nothing writes to it while the view lives, since writing takes the slot's only
        // `&mut Slot`, and the mapping outlives the view, since the view borrows the arena.
        unsafe { View { bytes: &*bytes, digests: &*digests } }
    }

    /// A slot's memory, for writing.
    pub fn view_mut<'a>(&'a self, slot: &'a mut Slot) -> ViewMut<'a> {
        let (bytes, digests) = self.place(slot);
        // SAFETY: as in `view`; that the slot is borrowed mutably makes this the only access.
        unsafe { ViewMut { bytes: &mut *bytes, digests: &mut *digests } }
    }

    fn place(&self, slot: &Slot) -> (*mut [u8; SLOT_BYTES], *mut [u64; SLOT_PAGES]) {
        assert!(slot.0.get() <= self.slots, "a slot of another arena");
        let index = slot.0.get() as usize - 1;
        let (piece, within) = (index / PIECE_SLOTS * PIECE_BYTES, index % PIECE_SLOTS);
        // SAFETY: `index` is below the number of slots, which `slots_in` counted so that these offsets lie within
        // the mapping.
        unsafe {
            let bytes = self.base.add(piece + HEAD_BYTES + within * SLOT_BYTES);
            let digests = self.base.add(piece + within * DIGEST_BYTES);
            (bytes.as_ptr().cast(), digests.as_ptr().cast())
        }
    }
}

/// The number of slots in a mapping of `bytes`, excluding the heads of pieces.
fn slots_in(bytes: usize) -> usize {
    let rest = (bytes % PIECE_BYTES).saturating_sub(HEAD_BYTES);
    bytes / PIECE_BYTES * PIECE_SLOTS + rest / SLOT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_a_node_can_map_is_refused() {
        assert!(Arena::new(LENT_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn slots_and_digests_fill_pieces_without_overlap() {
        // A whole piece, a large rest, and one that holds no more than its head.
        for (bytes, slots) in
            [(PIECE_BYTES, 1022), (2 * PIECE_BYTES - SLOT_BYTES, 2043), (PIECE_BYTES + HEAD_BYTES, 1022)]
        {
            let arena = Arena::new(bytes as u64).unwrap();
            assert_eq!(arena.slots(), slots);
            let mut spans = Vec::new();
            while let Some(slot) = arena.allocate() {
                let (bytes, digests) = arena.place(&slot);
                spans.push((bytes as usize, SLOT_BYTES));
                spans.push((digests as usize, DIGEST_BYTES));
            }
            assert_eq!(spans.len() as u64, 2 * slots);
            spans.sort_unstable();
            assert!(spans.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "overlap");
            let (first, last) = (arena.base.as_ptr() as usize, spans[spans.len() - 1]);
            assert!(first <= spans[0].0 && last.0 + last.1 <= first + bytes, "outside");
            assert_eq!(first % HUGE_PAGE_BYTES, 0);
        }
    }

    #[test]
    fn slots_come_back_zero_and_last_freed_first() {
        let arena = Arena::new(LENT_BYTES_MIN).unwrap();
        let mut slots: Vec<_> = std::iter::from_fn(|| arena.allocate()).collect();
        assert_eq!(slots.len() as u64, arena.slots());
        for slot in &mut slots {
            let view = arena.view_mut(slot);
            view.bytes.fill(0xff);
            view.digests.fill(7);
        }
        let numbers: Vec<_> = slots.iter().map(|slot| slot.0).collect();
        assert!(slots.into_iter().all(|slot| arena.free(slot)));
        let again: Vec<_> = std::iter::from_fn(|| arena.allocate()).collect();
        assert!(again.iter().map(|slot| &slot.0).eq(numbers.iter().rev()));
        for slot in &again {
            let view = arena.view(slot);
            assert!(is_zero(view.bytes) && view.digests.iter().all(|digest| *digest == 0));
        }
    }

    #[test]
    fn memory_given_back_leaves_the_process_and_its_slots_are_zero_when_they_are_used_again() {
        // In use: nine of ten slots of two pieces, so that runs of free slots are short and long.
        let arena = Arena::new(2 * PIECE_BYTES as u64).unwrap();
        let mut slots: Vec<_> = std::iter::from_fn(|| arena.allocate()).collect();
        for slot in &mut slots {
            let view = arena.view_mut(slot);
            view.bytes.fill(0xff);
            view.digests.fill(7);
        }
        let resident = resident_bytes();
        let (mut kept, mut freed) = (Vec::new(), 0);
        for (index, slot) in slots.into_iter().enumerate() {
            if index % 40 == 0 {
                kept.push(slot);
            } else {
                assert!(arena.free(slot));
                freed += SLOT_BYTES as u64;
            }
        }
        assert_eq!((arena.give_back_free(), arena.give_back_free()), (freed, 0));
        // Other tests of this process use memory meanwhile, but less.
        assert!(resident_bytes() + freed / 2 < resident, "{} of {resident}", resident_bytes());
        for slot in &kept {
            assert!(arena.view(slot).bytes.iter().all(|byte| *byte == 0xff), "content in use was given back");
        }
        let mut count = 0;
        while let Some(slot) = arena.allocate() {
            let view = arena.view(&slot);
            assert!(is_zero(view.bytes) && view.digests.iter().all(|digest| *digest == 0));
            count += 1;
        }
        assert_eq!(count * SLOT_BYTES as u64, freed);
    }

    fn resident_bytes() -> u64 {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE_BYTES as u64
    }

    #[test]
    fn faulting_in_counts_what_is_ready_and_changes_nothing() {
        let arena = Arena::new(LENT_BYTES_MIN + 5000).unwrap();
        let mut slot = arena.allocate().unwrap();
        arena.view_mut(&mut slot).bytes[9] = 9;
        arena.fault_in(0, PIECE_BYTES).unwrap();
        arena.fault_in(PIECE_BYTES, PIECE_BYTES).unwrap();
        assert_eq!((arena.ready_bytes(), arena.lent_bytes()), (LENT_BYTES_MIN, LENT_BYTES_MIN));
        assert_eq!(arena.view(&slot).bytes[9], 9);
    }
}
