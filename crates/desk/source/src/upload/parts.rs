//! Which bytes of an object have been written. No I/O.

use std::collections::BTreeMap;

use cheetah_device::Data;
use tokio::sync::OwnedSemaphorePermit;

/// The parts that are being written: the bytes of a part may come in any order, each once.
pub struct Parts {
    part_bytes: u64,
    open: BTreeMap<u32, Part>,
}

/// A part, with its memory.
pub struct Part {
    /// Its content; bytes that were not written are zeros.
    pub bytes: Vec<u8>,
    written: u64,
    /// The right to this memory.
    pub permit: OwnedSemaphorePermit,
}

impl Parts {
    /// Parts of this many bytes, except the last.
    pub const fn new(part_bytes: u64) -> Self {
        Self { part_bytes, open: BTreeMap::new() }
    }

    /// Returns the number of the part that has the byte at `offset`, counted from 1; `None` if there are too many parts.
    pub fn number(&self, offset: u64) -> Option<u32> {
        u32::try_from(offset / self.part_bytes + 1).ok()
    }

    /// Whether memory for this part is there.
    pub fn is_open(&self, number: u32) -> bool {
        self.open.contains_key(&number)
    }

    /// Makes room for a part, unless there is.
    pub fn open(&mut self, number: u32, permit: OwnedSemaphorePermit) {
        let (part_bytes, bytes) = (self.part_bytes, |len: u64| vec![0; usize::try_from(len).unwrap_or(usize::MAX)]);
        self.open.entry(number).or_insert_with(|| Part { bytes: bytes(part_bytes), written: 0, permit });
    }

    /// Writes within one part, which is open. Returns the part if that was the last of it.
    pub fn write(&mut self, offset: u64, data: &Data) -> Option<(u32, Part)> {
        let number = self.number(offset)?;
        let part = self.open.get_mut(&number)?;
        // Below the size of a part, which is in memory.
        let at = (offset % self.part_bytes) as usize;
        data.copy_to(part.bytes.get_mut(at..)?.get_mut(..usize::try_from(data.len()).ok()?)?);
        part.written += data.len();
        let is_full = part.written == self.part_bytes;
        is_full.then(|| self.open.remove(&number).map(|part| (number, part))).flatten()
    }

    /// Returns the last part of an object of `len` bytes, if it is open and shorter than the others. Fails if something else
    /// was not written.
    pub fn last(&mut self, len: u64) -> Result<Option<(u32, Part)>, &'static str> {
        let Some((number, mut part)) = self.open.pop_first() else { return Ok(None) };
        let expected = len.checked_sub(u64::from(number - 1) * self.part_bytes);
        if !self.open.is_empty() || expected != Some(part.written) {
            return Err("not every byte was written");
        }
        // Not above the size of a part.
        part.bytes.truncate(part.written as usize);
        Ok(Some((number, part)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tokio::sync::Semaphore;

    use super::*;

    fn permit() -> OwnedSemaphorePermit {
        Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap()
    }

    proptest! {
        #[test]
        fn bytes_in_any_order_make_the_parts(len in 0usize..200, cuts in prop::collection::vec(0usize..200, 0..12), seed in any::<u64>()) {
            let whole: Vec<u8> = (0..len).map(|at| at as u8 + 1).collect();
            // No piece crosses a part.
            let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut < len).chain((0..len).step_by(32)).chain([len]).collect();
            cuts.sort_unstable();
            cuts.dedup();
            let mut pieces: Vec<_> = cuts.windows(2).map(|cut| cut[0]..cut[1]).collect();
            pieces.sort_by_key(|piece| (piece.start as u64 + 1).wrapping_mul(seed | 1));
            let mut parts = Parts::new(32);
            let mut made = BTreeMap::new();
            for piece in pieces {
                let number = parts.number(piece.start as u64).unwrap();
                parts.open(number, permit());
                let full = parts.write(piece.start as u64, &bytes::Bytes::copy_from_slice(&whole[piece]).into());
                made.extend(full.map(|(number, part)| (number, part.bytes)));
            }
            made.extend(parts.last(len as u64).unwrap().map(|(number, part)| (number, part.bytes)));
            prop_assert_eq!(made.keys().copied().collect::<Vec<_>>(), (1..=len.div_ceil(32) as u32).collect::<Vec<_>>());
            prop_assert_eq!(made.into_values().flatten().collect::<Vec<_>>(), whole);
        }
    }

    #[test]
    fn a_byte_that_was_not_written_is_noticed() {
        for (at, len) in [(1, 10), (0, 11), (32, 36)] {
            let mut parts = Parts::new(32);
            parts.open(parts.number(at).unwrap(), permit());
            assert!(parts.write(at, &Data::zeros(9)).is_none());
            assert!(parts.last(len).is_err());
        }
    }
}
