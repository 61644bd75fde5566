//! An array with redundancy as a device: each byte from the member that holds it, or from what others say of it.
//!
//! What others say is used only if the array was closed. Otherwise, the copies of a byte may differ, and parity may be older than the
//! data: of copies the first that is there is read, as the kernel does, and nothing is computed.

use std::ops::RangeInclusive;
use std::sync::Arc;

use cheetah_device::around::is_local;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Geometry as DeviceGeometry, Io, Result, try_io};
use cheetah_parity::reconstruct;
use futures::future::join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::geometry::{Geometry, Row};
use super::members::Member;

/// The smallest and the largest piece that is read at once, in bytes.
const PIECE_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 20;
/// Bytes of all the pieces from which one is computed, about.
const COMPUTED_BYTES: u64 = 4 << 20;
/// The number of pieces that are read at the same time.
const AT_ONCE: usize = 8;

/// An array with redundancy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redundant {
    /// Its level and name, for errors.
    pub name: Arc<str>,
    pub size_bytes: u64,
    pub chunk_bytes: u64,
    pub geometry: Geometry,
    /// Each member by its number, if it is there.
    pub members: Vec<Option<Member>>,
    /// Whether its redundancy is up to date.
    pub is_clean: bool,
}

impl Redundant {
    /// Each range of the device that holds some of it.
    pub fn ranges(&self) -> impl Iterator<Item = ByteRange> {
        self.members.iter().flatten().map(|member| member.data)
    }

    /// Bytes of the pieces in which it is read: a power of two if chunks are, so that no piece reaches beyond its chunk.
    fn piece_bytes(&self) -> u64 {
        let largest = match self.geometry {
            Geometry::Copies { .. } => *PIECE_BYTES.end(),
            // Each of the members may have to be read for one piece.
            Geometry::Parity { members, .. } => {
                (COMPUTED_BYTES / members.next_power_of_two() as u64).clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end())
            }
        };
        self.chunk_bytes.min(largest)
    }

    /// Where a range of a member's data lies in the device.
    fn place(&self, number: usize, range: ByteRange) -> Result<ByteRange> {
        let refused = |why: &str| {
            Err(Error::Unreadable {
                device: format!("member {number} of {}", self.name).into(),
                range,
                why: why.into(),
            })
        };
        let Some(member) = self.members.get(number).and_then(Option::as_ref) else { return refused("it is not here") };
        if member.bad.iter().any(|bad| bad.intersection(range).is_some()) {
            return refused("its list of bad blocks has some of that range");
        }
        match range.fits(member.data.len) {
            true => Ok(range.shifted(member.data.offset)),
            false => refused("it is shorter than that"),
        }
    }
}

/// An array over the device in which it was found.
pub(super) struct Shown {
    below: DynDevice,
    array: Arc<Redundant>,
}

impl Shown {
    /// Shows the array. Fails if a member lies beyond the device.
    pub fn new(below: DynDevice, array: Arc<Redundant>) -> Result<Self> {
        array.ranges().try_for_each(|range| below.check(range))?;
        Ok(Self { below, array })
    }

    /// Reads a range of a member's data.
    async fn read_member(&self, number: usize, range: ByteRange) -> Result<Data> {
        let data = self.below.read(self.array.place(number, range)?).await?;
        match data.len() == range.len {
            true => Ok(data),
            false => Err(Error::Invalid("a reply to a read has the wrong length".into())),
        }
    }

    /// Reads a range of one chunk.
    async fn read_piece(&self, piece: ByteRange) -> Result<Data> {
        let Redundant { chunk_bytes, geometry, .. } = *self.array;
        let (chunk, within) = (piece.offset / chunk_bytes, piece.offset % chunk_bytes);
        // No overflow: it is less than the size of the members.
        let in_row = |row: u64| ByteRange::new(row * chunk_bytes + within, piece.len);
        match geometry {
            Geometry::Copies { members, copies } => {
                let beyond = Error::OutOfBounds { range: piece, size: self.array.size_bytes };
                let copies = Geometry::copies(members, copies, chunk).ok_or(beyond)?;
                let copies: Vec<_> = copies.into_iter().map(|(member, row)| (member, in_row(row))).collect();
                self.read_copy(&copies).await
            }
            Geometry::Parity { members, parities, rotation } => {
                let data = (members - parities) as u64;
                let (number, column) = (chunk / data, chunk % data);
                let row = Geometry::row(members, parities, rotation, number);
                // Not truncated: less than the number of members.
                self.read_in_row(&row, row.data[column as usize], in_row(number)).await
            }
        }
    }

    /// Reads the first of some copies that can be read.
    async fn read_copy(&self, copies: &[(usize, ByteRange)]) -> Result<Data> {
        let mut failed = None;
        for (number, range) in copies {
            let is_here = self.array.members.get(*number).is_some_and(Option::is_some);
            match self.read_member(*number, *range).await {
                Err(error) if is_local(&error) => {
                    let is_first = is_here && !self.array.is_clean;
                    failed = Some(error);
                    if is_first {
                        break;
                    }
                }
                read => return read,
            }
        }
        Err(failed.unwrap_or_else(|| Error::Invalid("an array without members".into())))
    }

    /// Reads a range of the data of a member, or computes it.
    async fn read_in_row(&self, row: &Row, number: usize, range: ByteRange) -> Result<Data> {
        match self.read_member(number, range).await {
            Err(error) if is_local(&error) && self.array.is_clean => self.computed(row, number, range, error).await,
            read => read,
        }
    }

    /// Computes a range of a member from others; fails with `error` if too few of them can be read.
    async fn computed(&self, row: &Row, number: usize, range: ByteRange, error: Error) -> Result<Data> {
        let needed = row.data.len();
        let wanted = row.code.iter().position(|member| *member == number);
        let mut others = (0..row.code.len()).filter(|shard| Some(*shard) != wanted);
        let mut shards = vec![None; row.code.len()];
        let mut read = 0;
        while read < needed {
            let next: Vec<_> = others.by_ref().take(needed - read).collect();
            if next.is_empty() {
                return Err(error);
            }
            let reads: Vec<_> = next.iter().map(|shard| self.read_member(row.code[*shard], range)).collect();
            for (shard, outcome) in next.iter().zip(join_all(reads).await) {
                match outcome {
                    Ok(data) => {
                        shards[*shard] = Some(data.into_bytes());
                        read += 1;
                    }
                    Err(other) if is_local(&other) => {}
                    Err(other) => return Err(other),
                }
            }
        }
        let shards: Vec<_> = shards.iter().map(Option::as_deref).collect();
        let (data, parity) = shards.split_at(needed);
        // Not truncated: a piece is at most a MiB.
        let mut bytes = vec![0; range.len as usize];
        reconstruct(data, parity, &mut [(wanted.unwrap_or_default(), &mut bytes[..])])
            .map_err(|refusal| Error::Invalid(refusal.to_string().into()))?;
        Ok(bytes.into())
    }
}

impl Device for Shown {
    fn geometry(&self) -> DeviceGeometry {
        DeviceGeometry { size: self.array.size_bytes, writable: false, ..self.below.geometry() }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range));
        Io::later(async move {
            // A mirror is one chunk, of any length; other chunks are powers of two.
            let pieces = range
                .split_at_multiples(self.array.piece_bytes())
                .map(|piece| self.read_piece(piece))
                .collect::<Vec<_>>();
            let pieces = stream::iter(pieces).buffered(AT_ONCE);
            pieces
                .try_fold(Data::new(), |mut whole, piece| async move {
                    whole.append(piece);
                    Ok(whole)
                })
                .await
        })
    }
}
