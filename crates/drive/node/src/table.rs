//! The mapping from chunks of an export to slots.
//!
//! Two levels, so that a large export that is mostly holes takes almost no memory: a leaf covers 64 MiB and is created by the
//! first write there. In a leaf, every four chunks share a lock that owns their slots: access to a chunk's bytes holds its
//! lock. That is 24 bytes for 256 KiB, with little contention between connections that write neighbouring chunks.

use std::sync::OnceLock;

use parking_lot::{Mutex, RwLock};

use crate::arena::{SLOT_BYTES, Slot};

/// Chunks under one lock.
pub(crate) const GROUP_CHUNKS: usize = 4;
const LEAF_GROUPS: usize = 256;
const LEAF_CHUNKS: u64 = (GROUP_CHUNKS * LEAF_GROUPS) as u64;

/// Bytes of an export under one leaf.
pub(crate) const LEAF_SPAN_BYTES: u64 = LEAF_CHUNKS * SLOT_BYTES as u64;

/// The slots of neighbouring chunks; `None` for holes. See [`Place`].
pub(crate) type Group = RwLock<[Option<Slot>; GROUP_CHUNKS]>;

type Leaf = Box<[Group]>;

/// The chunks of one export.
pub(crate) struct Table {
    leaves: Box<[OnceLock<Leaf>]>,
    /// Whether leaves may still be created.
    open: Mutex<bool>,
}

/// The location of a chunk's slot: the lock, and the index under it.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub group: &'a Group,
    pub index: usize,
}

impl Table {
    /// Creates a table for an export of `size` bytes, all holes.
    pub fn new(size: u64) -> Self {
        let leaves = (0..size.div_ceil(LEAF_SPAN_BYTES)).map(|_| OnceLock::new()).collect();
        Self { leaves, open: Mutex::new(true) }
    }

    /// The location of `chunk`'s slot; `None` if its leaf was never written.
    pub fn place(&self, chunk: u64) -> Option<Place<'_>> {
        let leaf = self.leaves.get(usize::try_from(chunk / LEAF_CHUNKS).ok()?)?.get()?;
        Some(place_in(leaf, chunk))
    }

    /// Like [`Table::place`], but creates the leaf if `grant` allows. `None` once the table is closed, or outside of it.
    pub fn place_or_grow<E>(&self, chunk: u64, grant: impl FnOnce() -> Result<(), E>) -> Result<Option<Place<'_>>, E> {
        if let Some(place) = self.place(chunk) {
            return Ok(Some(place));
        }
        let open = self.open.lock();
        let Some(cell) = usize::try_from(chunk / LEAF_CHUNKS).ok().and_then(|leaf| self.leaves.get(leaf)) else {
            return Ok(None);
        };
        if !*open {
            return Ok(None);
        }
        if cell.get().is_none() {
            grant()?;
        }
        Ok(Some(place_in(cell.get_or_init(new_leaf), chunk)))
    }

    /// Closes the table: no more leaves are created.
    pub fn close(&self) {
        *self.open.lock() = false;
    }

    /// The number of leaves.
    pub fn leaves(&self) -> u64 {
        self.leaves.iter().filter(|leaf| leaf.get().is_some()).count() as u64
    }

    /// Takes every slot out of the leaves `from`, `from + step`, …
    pub fn drain(&self, from: usize, step: usize) -> impl Iterator<Item = Slot> {
        let leaves = self.leaves.iter().skip(from).step_by(step.max(1)).filter_map(OnceLock::get);
        leaves.flat_map(|leaf| leaf.iter()).flat_map(|group| std::mem::take(&mut *group.write()).into_iter().flatten())
    }
}

fn new_leaf() -> Leaf {
    (0..LEAF_GROUPS).map(|_| Group::default()).collect()
}

fn place_in(leaf: &Leaf, chunk: u64) -> Place<'_> {
    // Not truncated: less than LEAF_CHUNKS.
    let within = (chunk % LEAF_CHUNKS) as usize;
    Place { group: &leaf[within / GROUP_CHUNKS], index: within % GROUP_CHUNKS }
}
