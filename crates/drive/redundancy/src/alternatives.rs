//! Reading a range without one of its members, for a layer above that can tell whether content is right: its members
//! hold copies, or parity from which the range can be computed.

use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, Error, Result};
use futures::future::join_all;

use crate::array::Inner;
use crate::code;
use crate::geometry::{PAGE_BYTES, UnitSpan};
use crate::read::{Part, rows_of};
use crate::redundant::Redundant;

/// A range, read without one member.
#[derive(Debug, Clone)]
pub struct Alternative {
    /// The member that was left out.
    pub without: usize,
    /// The range.
    pub data: Data,
}

impl Redundant {
    /// Reads a range without each of the members that hold it, in every possible way. Digests are not looked at: the
    /// member that holds them may be the one that is wrong.
    pub async fn alternatives(&self, range: ByteRange) -> Vec<Alternative> {
        let Some((array, range)) = self.array_of(range) else { return Vec::new() };
        // A writer's own writes must not get in between. No other process writes.
        let _lock = match array.members.is_writer() {
            true => Some(array.locks.lock(array.geometry.groups_of(range), false).await),
            false => None,
        };
        let spans: Vec<UnitSpan> = array.geometry.spans(range).collect();
        let mut holders: Vec<usize> = spans.iter().map(|span| array.holder(span)).collect();
        holders.sort_unstable();
        holders.dedup();
        let mut found = Vec::new();
        for without in holders {
            for redundancy in 0..array.geometry.redundancy_units() {
                if let Some(data) = array.read_without(&spans, without, redundancy).await {
                    found.push(Alternative { without, data });
                }
            }
        }
        found
    }

    /// Writes the part of a range that a member holds to that member alone. `data` is the content that its redundancy
    /// was computed from.
    ///
    /// # Errors
    ///
    /// If this is not the writer, or the member does not take it.
    pub async fn restore(&self, range: ByteRange, data: Data, member: usize) -> Result<()> {
        let Some((array, range)) = self.array_of(range) else {
            return Err(Error::Unsupported("restoring a range of two arrays"));
        };
        if !array.members.is_writer() {
            return Err(Error::ReadOnly);
        }
        let _lock = array.locks.lock(array.geometry.groups_of(range), true).await;
        let edits: Vec<(u64, Data)> = array
            .geometry
            .spans(range)
            .filter(|span| array.holder(span) == member)
            .map(|span| {
                let start = array.places[array.geometry.data_member(span.group, span.index)].1;
                let at = start + array.geometry.data_offset(span.group, span.index) + span.within.offset;
                (at, data.slice(span.at - range.offset, span.within.len))
            })
            .collect();
        array.members.write(member, &edits, false).await.map_err(crate::members::Failure::into_error)
    }
}

impl Inner {
    /// The member, by its number in the drive, that holds a span.
    fn holder(&self, span: &UnitSpan) -> usize {
        self.member_of(span.group, Part::Data(span.index))
    }

    /// Reads spans: those of member `without` from redundancy unit `redundancy` and the other units of data.
    async fn read_without(self: &Arc<Self>, spans: &[UnitSpan], without: usize, redundancy: usize) -> Option<Data> {
        let mut whole = Data::new();
        for span in spans {
            let rows = rows_of(std::slice::from_ref(span));
            let unit = if self.holder(span) == without {
                self.compute(span.group, &rows, span.index, redundancy).await?
            } else {
                self.ask(span.group, &rows, Part::Data(span.index), true).await.1.ok()?.into_bytes()
            };
            whole.append(Data::from(unit).slice(span.within.offset - rows.start * PAGE_BYTES, span.within.len));
        }
        Some(whole)
    }

    /// Computes rows of a unit of data from the other units and one unit of redundancy.
    async fn compute(
        self: &Arc<Self>,
        group: u64,
        rows: &std::ops::Range<u64>,
        index: usize,
        redundancy: usize,
    ) -> Option<Bytes> {
        let (k, m) = (self.geometry.data_units(), self.geometry.redundancy_units());
        let others = (0..k).filter(|other| *other != index).map(Part::Data).chain([Part::Redundancy(redundancy)]);
        let (mut data, mut parity) = (vec![None; k], vec![None; m]);
        for (part, answer) in join_all(others.map(|part| self.ask(group, rows, part, true))).await {
            let bytes = Some(answer.ok()?.into_bytes());
            match part {
                Part::Data(other) => data[other] = bytes,
                Part::Redundancy(other) => parity[other] = bytes,
                Part::Digests(_) => {}
            }
        }
        code::decode(&data, &parity, &[index]).ok()?.into_iter().next()
    }
}
