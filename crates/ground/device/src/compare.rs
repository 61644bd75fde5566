//! Compares the content of two devices, byte for byte, around what cannot be read of either.

use bytes::Bytes;
use futures::future::join;
use futures::{StreamExt as _, stream};

use crate::around::{Piece, read_around};
use crate::{ByteRange, DynDevice, Error};

/// Bytes that are read of each at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks in flight at once.
const AT_ONCE: usize = 8;
/// The most differing ranges that are listed; all of them are counted.
pub const RANGES_LISTED_MAX: usize = 1000;

/// One of two devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first.
    First,
    /// The second.
    Second,
}

/// A device failed as a whole, and not only at a place.
#[derive(Debug, Clone)]
pub struct SideFailed {
    /// Which.
    pub side: Side,
    /// How.
    pub error: Error,
}

/// The result of a comparison of the bytes that both devices have: as many as the shorter one has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// The number of bytes that were read of both.
    pub compared_bytes: u64,
    /// The number of these that differ.
    pub differing_bytes: u64,
    /// The number of ranges that they form; differing bytes beside each other are one range.
    pub differing_ranges: u64,
    /// The first of these ranges, in order: at most [`RANGES_LISTED_MAX`].
    pub listed: Vec<ByteRange>,
    /// The number of bytes that could not be read of the first device, in the part that both have.
    pub first_unreadable_bytes: u64,
    /// The same of the second one.
    pub second_unreadable_bytes: u64,
    /// The end of the last differing range.
    last_end: Option<u64>,
}

impl Compared {
    /// Whether all bytes were read of both, and none differs.
    pub fn is_equal(&self) -> bool {
        self.differing_bytes == 0 && self.first_unreadable_bytes == 0 && self.second_unreadable_bytes == 0
    }

    /// The offset of the first byte that differs.
    pub fn first_difference(&self) -> Option<u64> {
        self.listed.first().map(|range| range.offset)
    }

    /// Adds what was read of the same range of both, whose pieces cover it.
    fn add(&mut self, first: Vec<Piece>, second: Vec<Piece>) {
        let read = |pieces: Vec<Piece>| -> Vec<(ByteRange, Option<Bytes>)> {
            pieces.into_iter().map(|(range, read)| (range, read.ok().map(crate::Data::into_bytes))).collect()
        };
        let (first, second) = (read(first), read(second));
        let (mut one, mut other) = (0, 0);
        while let (Some((a, left)), Some((b, right))) = (first.get(one), second.get(other)) {
            let both = ByteRange::between(a.offset.max(b.offset), a.end().min(b.end()));
            self.add_part(both, part(*a, left.as_ref(), both), part(*b, right.as_ref(), both));
            if a.end() <= both.end() {
                one += 1;
            }
            if b.end() <= both.end() {
                other += 1;
            }
        }
    }

    fn add_part(&mut self, range: ByteRange, first: Option<&[u8]>, second: Option<&[u8]>) {
        if first.is_none() {
            self.first_unreadable_bytes += range.len;
        }
        if second.is_none() {
            self.second_unreadable_bytes += range.len;
        }
        let (Some(first), Some(second)) = (first, second) else { return };
        self.compared_bytes += range.len;
        if first == second {
            return;
        }
        for (at, (one, other)) in (range.offset..).zip(first.iter().zip(second)) {
            if one != other {
                self.add_difference(at);
            }
        }
    }

    fn add_difference(&mut self, at: u64) {
        self.differing_bytes += 1;
        let is_next = self.last_end == Some(at);
        self.last_end = Some(at + 1);
        if !is_next {
            self.differing_ranges += 1;
            if self.listed.len() < RANGES_LISTED_MAX {
                self.listed.push(ByteRange::new(at, 1));
            }
        } else if self.differing_ranges == self.listed.len() as u64
            && let Some(last) = self.listed.last_mut()
        {
            last.len += 1;
        }
    }
}

/// The bytes of a part of a range, if they were read. A device that answers with too few bytes counts as unreadable there.
fn part(range: ByteRange, bytes: Option<&Bytes>, within: ByteRange) -> Option<&[u8]> {
    let from = usize::try_from(within.offset - range.offset).ok()?;
    let len = usize::try_from(within.len).ok()?;
    bytes?.get(from..from.checked_add(len)?)
}

/// Compares the bytes that both devices have. `progress` is called with the number of bytes that were looked at.
///
/// # Errors
///
/// If a device fails as a whole.
pub async fn compare(
    first: &DynDevice,
    second: &DynDevice,
    mut progress: impl FnMut(u64) + Send,
) -> Result<Compared, SideFailed> {
    let end = first.geometry().size.min(second.geometry().size);
    let chunks = ByteRange::new(0, end).split_at_multiples(CHUNK_BYTES);
    let read =
        |range: ByteRange| async move { (range, join(read_around(first, range), read_around(second, range)).await) };
    let mut reads = std::pin::pin!(stream::iter(chunks).map(read).buffered(AT_ONCE));
    let mut compared = Compared::default();
    while let Some((range, (one, other))) = reads.next().await {
        let failed = |side| move |error| SideFailed { side, error };
        compared.add(one.map_err(failed(Side::First))?, other.map_err(failed(Side::Second))?);
        progress(range.end());
    }
    Ok(compared)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::Memory;
    use crate::{Data, Device, Geometry, Io};

    async fn compared(first: &[u8], second: &[u8]) -> Compared {
        let device = |content: &[u8]| -> DynDevice { Arc::new(Memory::new(content.to_vec())) };
        let mut seen = 0;
        let compared = compare(&device(first), &device(second), |bytes| seen = bytes).await.unwrap();
        assert_eq!(seen, first.len().min(second.len()) as u64);
        compared
    }

    #[tokio::test]
    async fn equal_content_is_equal_and_of_a_longer_one_the_beginning_counts() {
        let content: Vec<u8> = (0..3_000_001_u32).map(|at| (at / 7) as u8).collect();
        let equal = compared(&content, &content).await;
        assert!(equal.is_equal() && equal.compared_bytes == 3_000_001 && equal.first_difference().is_none());
        assert_eq!(compared(&content, &content[..2_000_000]).await.compared_bytes, 2_000_000);
    }

    #[tokio::test]
    async fn a_difference_over_a_seam_is_one_range() {
        let (seam, content) = (1 << 20, vec![0; 3 << 20]);
        let mut other = content.clone();
        other[seam - 2..seam + 3].fill(1);
        other[seam + 10] = 1;
        let found = compared(&content, &other).await;
        assert_eq!((found.differing_bytes, found.differing_ranges), (6, 2));
        assert_eq!(found.listed, [ByteRange::new(seam as u64 - 2, 5), ByteRange::new(seam as u64 + 10, 1)]);
        assert!(!found.is_equal());
    }

    #[tokio::test]
    async fn more_differences_than_are_listed_are_counted() {
        let content = vec![0; 5000];
        let other: Vec<u8> = (0..5000).map(|at| (at % 2) as u8).collect();
        let found = compared(&content, &other).await;
        assert_eq!(
            (found.differing_bytes, found.differing_ranges, found.listed.len()),
            (2500, 2500, RANGES_LISTED_MAX)
        );
        assert!(found.listed.iter().all(|range| range.len == 1));
    }

    /// Zeros, of which one range cannot be read, or nothing at all.
    struct Broken(Option<ByteRange>);

    impl Device for Broken {
        fn geometry(&self) -> Geometry {
            Geometry { size: 2 << 20, writable: false, block_preferred: 512 }
        }

        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            match self.0 {
                None => Io::fail(Error::Lost { device: "disk".into(), range, why: "gone".into() }),
                Some(bad) if bad.intersection(range).is_some() => {
                    Io::fail(Error::Unreadable { device: "disk".into(), range, why: "bad".into() })
                }
                Some(_) => Io::ok(Data::zeros(range.len)),
            }
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_counted_by_side_and_is_not_equal() {
        let zeros: DynDevice = Arc::new(Memory::new(vec![0; 2 << 20]));
        let broken: DynDevice = Arc::new(Broken(Some(ByteRange::new(5120, 512))));
        let found = compare(&zeros, &broken, |_| {}).await.unwrap();
        assert_eq!((found.first_unreadable_bytes, found.second_unreadable_bytes), (0, 512));
        assert_eq!((found.compared_bytes, found.differing_bytes, found.is_equal()), ((2 << 20) - 512, 0, false));
        let found = compare(&broken, &broken, |_| {}).await.unwrap();
        assert_eq!((found.first_unreadable_bytes, found.second_unreadable_bytes), (512, 512));
        let lost: DynDevice = Arc::new(Broken(None));
        assert_eq!(compare(&lost, &zeros, |_| {}).await.unwrap_err().side, Side::First);
        assert_eq!(compare(&zeros, &lost, |_| {}).await.unwrap_err().side, Side::Second);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_naive_comparison(
            first in proptest::collection::vec(0_u8..3, 0..600),
            second in proptest::collection::vec(0_u8..3, 0..600),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let found = runtime.block_on(compared(&first, &second));
            let differs: Vec<bool> = first.iter().zip(&second).map(|(one, other)| one != other).collect();
            let count = differs.iter().filter(|differs| **differs).count() as u64;
            let begins = |at: &usize| differs[*at] && (*at == 0 || !differs[*at - 1]);
            let starts: Vec<_> = (0..differs.len()).filter(begins).collect();
            prop_assert_eq!((found.differing_bytes, found.differing_ranges), (count, starts.len() as u64));
            prop_assert_eq!(found.first_difference(), starts.first().map(|at| *at as u64));
            prop_assert_eq!(found.listed.iter().map(|range| range.len).sum::<u64>(), count);
        }
    }
}
