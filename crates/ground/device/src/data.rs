//! The content of reads and writes.

use bytes::{BufMut as _, Bytes, BytesMut};
use smallvec::SmallVec;

use crate::buffers;

/// Zeros, where bytes are wanted.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The content of one read or write: a short list of parts, each either bytes or a run of zeros.
///
/// Layers split and join data without copying it: a stripe joins the data of its nodes, a cache returns slices of its
/// entries. Zeros take no memory, and no room on the wire, until they are converted to bytes.
#[derive(Clone, Default, Debug)]
pub struct Data {
    parts: SmallVec<[Part; 2]>,
    len: u64,
}

/// A run of [`Data`]. Never empty.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes.
    Bytes(Bytes),
    /// This many zero bytes.
    Zeros(u64),
}

impl Part {
    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeros(len) => *len,
        }
    }

    /// Always false for a part inside [`Data`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slice(&self, from: u64, to: u64) -> Self {
        match self {
            // Bytes are in memory, so their positions fit in usize.
            Self::Bytes(bytes) => Self::Bytes(bytes.slice(from as usize..to as usize)),
            Self::Zeros(_) => Self::Zeros(to - from),
        }
    }
}

impl Data {
    /// Returns empty data.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a run of zeros.
    pub fn zeros(len: u64) -> Self {
        let mut data = Self::new();
        data.push_part(Part::Zeros(len));
        data
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the parts in order; none is empty, and no two runs of zeros are adjacent.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Takes the parts, as [`parts`](Self::parts).
    pub fn into_parts(self) -> impl Iterator<Item = Part> {
        self.parts.into_iter()
    }

    /// Returns the bytes in order, in runs of at least one byte, without copying them. A run of zeros has at most 64 KiB.
    pub fn runs(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().flat_map(|part| {
            let (bytes, zeros) = match part {
                Part::Bytes(bytes) => (Some(&bytes[..]), 0),
                Part::Zeros(len) => (None, *len),
            };
            bytes.into_iter().chain(zero_runs(zeros))
        })
    }

    /// Appends one part.
    pub fn push_part(&mut self, part: Part) {
        let len = part.len();
        if len == 0 {
            return;
        }
        self.len += len;
        match (self.parts.last_mut(), part) {
            (Some(Part::Zeros(last)), Part::Zeros(more)) => *last += more,
            (_, part) => self.parts.push(part),
        }
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: Self) {
        for part in other.parts {
            self.push_part(part);
        }
    }

    /// Returns `len` bytes from `from`, sharing the memory. Both are clamped to the length.
    pub fn slice(&self, from: u64, len: u64) -> Self {
        let to = from.saturating_add(len).min(self.len);
        let mut out = Self::new();
        let mut start = 0;
        for part in &self.parts {
            let end = start + part.len();
            if start < to && from < end {
                out.push_part(part.slice(from.saturating_sub(start), to.min(end) - start));
            }
            start = end;
        }
        out
    }

    /// Copies everything into `out`, which must be exactly as long.
    pub fn copy_to(&self, out: &mut [u8]) {
        assert_eq!(out.len() as u64, self.len, "the buffer must be as long as the data");
        let mut rest = out;
        for part in &self.parts {
            // Not truncated: the parts add up to `out.len()`.
            let (here, next) = rest.split_at_mut(part.len() as usize);
            match part {
                Part::Bytes(bytes) => here.copy_from_slice(bytes),
                Part::Zeros(_) => here.fill(0),
            }
            rest = next;
        }
    }

    /// Copies everything to the end of `out`.
    pub fn append_to(&self, out: &mut BytesMut) {
        for part in &self.parts {
            match part {
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
                // Never fewer than the data has: a buffer beyond memory is refused by the allocator.
                Part::Zeros(len) => out.put_bytes(0, usize::try_from(*len).unwrap_or(usize::MAX)),
            }
        }
    }

    /// Converts the data to one run of bytes; copies unless it is one already.
    pub fn into_bytes(mut self) -> Bytes {
        match self.parts.as_mut_slice() {
            [] => Bytes::new(),
            [Part::Bytes(bytes)] => std::mem::take(bytes),
            // Not truncated: at most the length of ZEROS.
            [Part::Zeros(len)] if *len <= ZEROS.len() as u64 => Bytes::from_static(&ZEROS[..*len as usize]),
            _ => {
                // Only zeros can be longer than memory, and nothing reads that many at once.
                let mut out = buffers::empty(self.len as usize);
                self.append_to(&mut out);
                buffers::share(out)
            }
        }
    }

    /// Whether every byte is zero; reads the bytes up to the first that is not.
    pub fn is_zero(&self) -> bool {
        self.parts.iter().all(|part| match part {
            Part::Bytes(bytes) => is_zero(bytes),
            Part::Zeros(_) => true,
        })
    }
}

/// Returns `len` zeros, in runs of at most 64 KiB.
pub fn zero_runs<'a>(len: u64) -> impl Iterator<Item = &'a [u8]> {
    let step = ZEROS.len() as u64;
    // Not truncated: at most the length of ZEROS.
    (0..len.div_ceil(step)).map(move |nth| &ZEROS[..(len - nth * step).min(step) as usize])
}

/// Whether every byte is zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    // In chunks, so that the compiler compares vectors, and the loop ends early on content.
    bytes.chunks(256).all(|run| run.iter().fold(0, |seen, byte| seen | byte) == 0)
}

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Self {
        let mut data = Self::new();
        data.push_part(Part::Bytes(bytes));
        data
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl PartialEq<[u8]> for Data {
    fn eq(&self, other: &[u8]) -> bool {
        self.len == other.len() as u64 && self.clone().into_bytes() == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = Part> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20).prop_map(|v| Part::Bytes(v.into())),
            (0u64..20).prop_map(Part::Zeros),
        ]
    }

    proptest! {
        #[test]
        fn slicing_data_is_slicing_its_bytes(parts in prop::collection::vec(part(), 0..6), from in 0u64..80, len in 0u64..80) {
            let mut data = Data::new();
            parts.into_iter().for_each(|part| data.push_part(part));
            let whole = data.clone().into_bytes();
            let start = (from as usize).min(whole.len());
            let end = (start + len as usize).min(whole.len());
            prop_assert_eq!(&data.slice(from, len).into_bytes()[..], &whole[start..end]);
            prop_assert_eq!(data.runs().collect::<Vec<_>>().concat(), &whole[..]);
            prop_assert!(data.runs().all(|run| !run.is_empty()));
            prop_assert_eq!(data.is_zero(), whole.iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn zeros_of_any_length_are_runs_that_add_up_to_it() {
        for len in [0, 1, 65535, 65536, 65537, 200_000] {
            assert_eq!(Data::zeros(len).runs().map(|run| run.len() as u64).sum::<u64>(), len);
            assert_eq!(Data::zeros(len).into_bytes(), vec![0; len as usize]);
        }
    }
}
