//! Units that a writer wrote after its last flush and never closed: finding them, and taking them over.

use std::sync::atomic::Ordering;

use cheetah_device::{ByteRange, Data, Result};
use futures::{StreamExt as _, stream};

use super::{Inner, position};
use crate::stamp::Stamp;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Units that are read at the same time where a piece cannot be read.
const UNITS_AT_ONCE: usize = 32;

impl Inner {
    /// The ranges of content that are newer than the record.
    pub(super) async fn unverified(&self) -> Result<Vec<ByteRange>> {
        let mut ranges: Vec<ByteRange> = Vec::new();
        for (index, _) in self.newer().await? {
            let range = self.units.content_range(index, index + 1);
            let range = ByteRange::between(range.offset, range.end().min(self.units.size()));
            match ranges.last_mut() {
                Some(last) if last.end() == range.offset => *last = ByteRange::between(last.offset, range.end()),
                _ => ranges.push(range),
            }
        }
        Ok(ranges)
    }

    /// Makes units that are newer than the record part of it, and closes the epochs of writers that never did. Before
    /// anything is written.
    pub(super) async fn adopt(&self) -> Result<()> {
        let newer = self.newer().await?;
        {
            let mut state = self.state.write();
            for (index, stamp) in &newer {
                state.set(*index, &[*stamp]);
            }
        }
        self.accepted.fetch_add(newer.len() as u64, Ordering::Relaxed);
        self.end_other_epochs().await;
        self.save().await.map_err(|error| self.record_failed(&error))
    }

    /// Ends the epochs of writers that never closed the drive; with the next record.
    pub(super) async fn end_other_epochs(&self) {
        // The log cannot end an epoch.
        self.stored.lock().await.whole = true;
        let own = self.own_epoch();
        for epoch in &mut self.state.write().record.epochs {
            epoch.open &= Some(epoch.number) == own;
        }
        self.changed();
    }

    /// Units that are newer than the record, with their stamps. What cannot be read is left out.
    async fn newer(&self) -> Result<Vec<(u64, Stamp)>> {
        let mut newer = Vec::new();
        if !self.has_open_epoch() {
            return Ok(newer);
        }
        let step = (PIECE_BYTES / self.units.bytes()).max(1);
        let mut first = 0;
        while first < self.units.count() {
            let end = (first + step).min(self.units.count());
            match self.below.read(self.units.sealed_range(first, end)).await {
                Ok(sealed) => self.newer_of(first, end, &sealed, &mut newer),
                Err(_) => {
                    // A unit that cannot be read may take seconds to say so.
                    let read = |index| async move {
                        (index, self.below.read(self.units.sealed_range(index, index + 1)).await)
                    };
                    let mut found = stream::iter(first..end).map(read).buffered(UNITS_AT_ONCE);
                    while let Some((index, read)) = found.next().await {
                        if let Ok(sealed) = read {
                            self.newer_of(index, index + 1, &sealed, &mut newer);
                        }
                    }
                }
            }
            first = end;
        }
        Ok(newer)
    }

    fn newer_of(&self, first: u64, end: u64, sealed: &Data, newer: &mut Vec<(u64, Stamp)>) {
        for index in first..end {
            let expected = self.state.read().record.stamps[position(index)];
            let sealed = sealed.slice((index - first) * self.units.stride(), self.units.stride());
            let copy = || self.state.read().copies.get(&index).cloned().map(Data::from);
            let found = self.version(index, &sealed).or_else(|| self.version(index, &copy()?));
            if let Some(stamp) = found.filter(|stamp| self.is_unverified(*stamp, expected)) {
                newer.push((index, stamp));
            }
        }
    }
}
