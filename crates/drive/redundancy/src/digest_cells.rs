//! Digest cells that were read recently: without them, a degraded read of a small range would take one more request.
//!
//! The writer removes a cell, under the group's lock, before it changes the cell. A reader elsewhere may have an old
//! cell: then a computed page does not match, and the cell is read again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;

/// The most bytes of cells: the digests of 8 GiB of data.
const CELLS_BYTES_MAX: usize = 16 << 20;

/// The cells of an array, by group. One cell of each group suffices.
#[derive(Debug, Default)]
pub(crate) struct DigestCells {
    cells: RwLock<HashMap<u64, Cell>>,
    /// Bytes of all cells, so that an empty cache is checked by one load.
    bytes: AtomicUsize,
}

/// The digests beside a redundancy unit.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    /// The number of the redundancy unit.
    pub index: usize,
    /// The digests of all rows.
    pub digests: Bytes,
}

impl DigestCells {
    pub fn get(&self, group: u64) -> Option<Cell> {
        (self.bytes.load(Ordering::Acquire) > 0).then(|| self.cells.read().get(&group).cloned()).flatten()
    }

    pub fn insert(&self, group: u64, cell: Cell) {
        let mut cells = self.cells.write();
        let len = cell.digests.len();
        if self.bytes.load(Ordering::Acquire) + len > CELLS_BYTES_MAX {
            cells.clear();
            self.bytes.store(0, Ordering::Release);
        }
        if cells.insert(group, cell).is_none() {
            self.bytes.fetch_add(len, Ordering::AcqRel);
        }
    }

    pub fn remove(&self, groups: Range<u64>) {
        if self.bytes.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut cells = self.cells.write();
        for group in groups {
            if let Some(cell) = cells.remove(&group) {
                self.bytes.fetch_sub(cell.digests.len(), Ordering::AcqRel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_bounded_and_removed() {
        let cells = DigestCells::default();
        let cell = || Cell { index: 0, digests: Bytes::from(vec![0; 1 << 20]) };
        for group in 0..100 {
            cells.insert(group, cell());
            assert!(cells.bytes.load(Ordering::Acquire) <= CELLS_BYTES_MAX);
        }
        assert!(cells.get(99).is_some() && cells.get(0).is_none());
        cells.remove(0..100);
        assert!(cells.get(99).is_none());
        assert_eq!(cells.bytes.load(Ordering::Acquire), 0);
    }
}
