//! The lent memory, and its reservation and allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cheetah_device::{Error, Result, Size};

use crate::arena::{Arena, SLOT_BYTES, Slot};
use crate::faulting;
use crate::table::LEAF_SPAN_BYTES;
use cheetah_control::api::MemoryStatus;

/// The most bytes of all exports of a node together, holes included: the roots of their tables then take 12 MiB.
pub const SPAN_BYTES_MAX: u64 = 32 << 40;

/// The minimum limit of table leaves on a node: 24 MiB, enough for content scattered over 256 GiB.
const LEAVES_MIN: u64 = 4096;

/// The memory a node lends, shared by its exports.
///
/// Memory is reserved before it is allocated: for an export with a reservation all at once when it is created, for others
/// slot by slot as they are written. So a reserved export never runs out.
pub struct Store {
    arena: Arc<Arena>,
    slots: Quota,
    leaves: Quota,
    span: Quota,
    reserved_slots: AtomicU64,
    used_slots: AtomicU64,
    wiped_bytes: AtomicU64,
    unclean: AtomicBool,
    digest_errors: AtomicU64,
}

/// A capacity, and the amount reserved from it. The capacity may fall below the amount: then nothing is reserved until
/// enough is given back.
struct Quota {
    max: AtomicU64,
    reserved: AtomicU64,
}

/// The memory that a new export reserves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reservation {
    pub slots: u64,
    pub leaves: u64,
    pub span_bytes: u64,
}

impl Store {
    /// Lends `bytes`. Background threads fault them in; the store is usable at once.
    pub fn new(bytes: u64) -> std::io::Result<Arc<Self>> {
        let arena = Arc::new(Arena::new(bytes)?);
        faulting::start(&arena)?;
        let lent = arena.slots();
        Ok(Self::over(arena, lent))
    }

    /// Lends nothing yet, and up to `bytes_max` later ([`Store::set_lent_bytes`]). Only memory that holds content is taken
    /// from the machine.
    pub fn on_demand(bytes_max: u64) -> std::io::Result<Arc<Self>> {
        Ok(Self::over(Arc::new(Arena::new(bytes_max)?), 0))
    }

    fn over(arena: Arc<Arena>, lent_slots: u64) -> Arc<Self> {
        let slots = arena.slots();
        Arc::new(Self {
            arena,
            slots: Quota::new(lent_slots),
            leaves: Quota::new(LEAVES_MIN.max(slots * SLOT_BYTES as u64 / LEAF_SPAN_BYTES * 2)),
            span: Quota::new(SPAN_BYTES_MAX),
            reserved_slots: AtomicU64::new(0),
            used_slots: AtomicU64::new(0),
            wiped_bytes: AtomicU64::new(0),
            unclean: AtomicBool::new(false),
            digest_errors: AtomicU64::new(0),
        })
    }

    /// Lends `bytes` from now on, at most those of the mapping. Exports that have more keep it.
    pub fn set_lent_bytes(&self, bytes: u64) {
        self.slots.max.store((bytes / SLOT_BYTES as u64).min(self.arena.slots()), Ordering::Release);
    }

    /// Gives the memory of free slots back to the machine. Returns the number of bytes.
    pub fn give_back_free(&self) -> u64 {
        self.arena.give_back_free()
    }

    /// The memory's status.
    pub fn status(&self) -> MemoryStatus {
        let bytes = |slots: u64| slots * SLOT_BYTES as u64;
        MemoryStatus {
            lent_bytes: self.lent_bytes(),
            usable_bytes: bytes(self.slots.max()),
            reserved_bytes: bytes(self.reserved_slots.load(Ordering::Relaxed)),
            used_bytes: bytes(self.used_slots.load(Ordering::Relaxed)),
            free_bytes: bytes(self.slots.free()),
            ready_bytes: self.arena.ready_bytes(),
            locked: self.arena.locked(),
            wiped_bytes: self.wiped().0,
        }
    }

    /// Bytes lent now, digests included.
    fn lent_bytes(&self) -> u64 {
        let slots = self.slots.max();
        if slots == self.arena.slots() { self.arena.lent_bytes() } else { slots * SLOT_BYTES as u64 }
    }

    /// Bytes wiped since the start, and whether each was read back as zero.
    pub fn wiped(&self) -> (u64, bool) {
        (self.wiped_bytes.load(Ordering::Relaxed), !self.unclean.load(Ordering::Relaxed))
    }

    /// Bytes that exports may use: those reserved, and those in use without a reservation.
    pub fn promised_bytes(&self) -> u64 {
        self.slots.reserved.load(Ordering::Acquire) * SLOT_BYTES as u64
    }

    /// Pages that did not match their digest since the start, in all exports.
    pub fn digest_errors(&self) -> u64 {
        self.digest_errors.load(Ordering::Relaxed)
    }

    pub(crate) fn count_digest_error(&self) {
        self.digest_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Reserves the memory of a new export, or returns the number of missing bytes.
    pub(crate) fn reserve(&self, what: Reservation) -> Result<()> {
        self.span.take(what.span_bytes).map_err(|free| {
            no_space(format!("exports may span {} together, and {} is left", Size(SPAN_BYTES_MAX), Size(free)))
        })?;
        let slots = self.slots.take(what.slots).map_err(|free| {
            let free = Size(free * SLOT_BYTES as u64);
            no_space(format!("{} asked for, {free} free on this node", Size(what.slots * SLOT_BYTES as u64)))
        });
        if let Err(error) = slots {
            self.span.give_back(what.span_bytes);
            return Err(error);
        }
        if let Err(error) = self.reserve_leaves(what.leaves) {
            self.span.give_back(what.span_bytes);
            self.slots.give_back(what.slots);
            return Err(error);
        }
        self.reserved_slots.fetch_add(what.slots, Ordering::Relaxed);
        Ok(())
    }

    /// Releases a reservation.
    pub(crate) fn release(&self, what: Reservation) {
        self.reserved_slots.fetch_sub(what.slots, Ordering::Relaxed);
        self.slots.give_back(what.slots);
        self.leaves.give_back(what.leaves);
        self.span.give_back(what.span_bytes);
    }

    pub(crate) fn reserve_leaves(&self, leaves: u64) -> Result<()> {
        self.leaves.take(leaves).map_err(|_| no_space("content is scattered over more than this node keeps tables for"))
    }

    pub(crate) fn return_leaves(&self, leaves: u64) {
        self.leaves.give_back(leaves);
    }

    /// Allocates a slot, all zero; from the reservation if `reserved`.
    pub(crate) fn allocate(&self, reserved: bool) -> Result<Slot> {
        let full = || no_space(format!("all {} lent by this node are in use", Size(self.lent_bytes())));
        if !reserved {
            self.slots.take(1).map_err(|_| full())?;
        }
        let Some(slot) = self.arena.allocate() else {
            // Only after slots were lost to defective memory.
            self.slots.give_back(u64::from(!reserved));
            return Err(full());
        };
        self.used_slots.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }

    /// Wipes and frees a slot. Returns whether it read back as zero.
    pub(crate) fn free(&self, slot: Slot, reserved: bool) -> bool {
        let clean = self.arena.free(slot);
        if !clean {
            self.unclean.store(true, Ordering::Relaxed);
        }
        self.wiped_bytes.fetch_add(SLOT_BYTES as u64, Ordering::Relaxed);
        self.used_slots.fetch_sub(1, Ordering::Relaxed);
        self.slots.give_back(u64::from(!reserved));
        clean
    }
}

impl Quota {
    fn new(max: u64) -> Self {
        Self { max: AtomicU64::new(max), reserved: AtomicU64::new(0) }
    }

    fn max(&self) -> u64 {
        self.max.load(Ordering::Acquire)
    }

    fn free(&self) -> u64 {
        self.max().saturating_sub(self.reserved.load(Ordering::Acquire))
    }

    /// Reserves `count`, or returns how many are left.
    fn take(&self, count: u64) -> std::result::Result<(), u64> {
        let more = |reserved: u64| reserved.checked_add(count).filter(|sum| *sum <= self.max());
        let taken = self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.map(drop).map_err(|reserved| self.max().saturating_sub(reserved))
    }

    fn give_back(&self, count: u64) {
        self.reserved.fetch_sub(count, Ordering::AcqRel);
    }
}

fn no_space(why: impl Into<Arc<str>>) -> Error {
    Error::NoSpace(why.into())
}
