//! Reading when members are missing: a group's units from the members that answer, the others computed from them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, Error, Result};
use futures::future::{join_all, try_join_all};
use tokio::time::{Instant, sleep};

use crate::array::Inner;
use crate::code;
use crate::geometry::{PAGE_BYTES, UnitSpan};
use crate::members::Failure;

/// For how long a reader repeats a reconstruction that does not match its digest: a writer elsewhere may be changing the group.
const MISMATCH_PATIENCE: Duration = Duration::from_secs(2);
const MISMATCH_PAUSE: Duration = Duration::from_millis(5);

/// A unit of a group: data, or redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Data(usize),
    Redundancy(usize),
}

/// What was read of a group's rows.
struct Rows {
    data: Vec<Option<Bytes>>,
    redundancy: Vec<Option<Bytes>>,
    /// Units that could not be read, with the last reason.
    failed: Vec<Unit>,
    error: Option<Error>,
}

impl Inner {
    /// Reads a range group by group.
    pub(crate) async fn read_degraded(self: &Arc<Self>, range: ByteRange) -> Result<Data> {
        // A reader elsewhere has no locks: its reconstructions are checked all the same.
        let _lock = match self.members.is_writer() {
            true => Some(self.locks.lock(self.geometry.groups_of(range), false).await),
            false => None,
        };
        let mut groups: Vec<Vec<UnitSpan>> = Vec::new();
        for span in self.geometry.spans(range) {
            match groups.last_mut() {
                Some(spans) if spans[0].group == span.group => spans.push(span),
                _ => groups.push(vec![span]),
            }
        }
        let parts = try_join_all(groups.iter().map(|spans| self.read_spans(spans))).await?;
        let mut whole = Data::new();
        parts.into_iter().for_each(|part| whole.append(part));
        Ok(whole)
    }

    /// Reads adjacent spans of one group.
    async fn read_spans(self: &Arc<Self>, spans: &[UnitSpan]) -> Result<Data> {
        let group = spans[0].group;
        let rows = rows_of(spans);
        let mut wanted = vec![false; self.geometry.data_units()];
        spans.iter().for_each(|span| wanted[span.index] = true);
        let units = self.read_rows(group, rows.clone(), &wanted).await?;
        let mut out = Data::new();
        for span in spans {
            let unit = units[span.index].clone().unwrap_or_default();
            let start = span.within.offset - rows.start * PAGE_BYTES;
            out.append(Data::from(unit).slice(start, span.within.len));
        }
        Ok(out)
    }

    /// Reads rows of pages of the data units that are wanted, and computes those that no member gives. A computed page
    /// matches the digest that a redundancy member holds.
    pub(crate) async fn read_rows(
        self: &Arc<Self>,
        group: u64,
        rows: Range<u64>,
        wanted: &[bool],
    ) -> Result<Vec<Option<Bytes>>> {
        let begun = Instant::now();
        loop {
            match self.try_read_rows(group, rows.clone(), wanted).await? {
                Some(data) => return Ok(data),
                // Under its own lock, nothing changes.
                None if self.members.is_writer() || begun.elapsed() >= MISMATCH_PATIENCE => {
                    let range = self.geometry.group_range(group);
                    return Err(Error::Corrupt { device: "the drive".into(), range: range.shifted(self.start) });
                }
                None => sleep(MISMATCH_PAUSE).await,
            }
        }
    }

    /// One attempt; `None` if what was computed does not match its digest.
    async fn try_read_rows(
        self: &Arc<Self>,
        group: u64,
        rows: Range<u64>,
        wanted: &[bool],
    ) -> Result<Option<Vec<Option<Bytes>>>> {
        let (k, m) = (self.geometry.data_units(), self.geometry.redundancy_units());
        let mut read = Rows { data: vec![None; k], redundancy: vec![None; m], failed: Vec::new(), error: None };
        let all_data = (0..k).map(Unit::Data);
        let first: Vec<Unit> =
            all_data.clone().filter(|unit| matches!(unit, Unit::Data(index) if wanted[*index])).collect();
        self.fetch(group, &rows, &first, false, &mut read).await?;
        let is_complete = |read: &Rows| (0..k).all(|index| !wanted[index] || read.data[index].is_some());
        // Late members are asked again, patiently, only where the others do not suffice.
        for patient in [false, true] {
            while !is_complete(&read) {
                let have = read.data.iter().chain(&read.redundancy).flatten().count();
                if have >= k {
                    break;
                }
                let rest = all_data.clone().chain((0..m).map(Unit::Redundancy));
                let candidates: Vec<Unit> = rest
                    .filter(|unit| !read.has(*unit) && self.may_ask(group, *unit, patient, &read.failed))
                    .take(k - have)
                    .collect();
                if have + candidates.len() < k {
                    break;
                }
                self.fetch(group, &rows, &candidates, patient, &mut read).await?;
            }
            if is_complete(&read) {
                return Ok(Some(read.data));
            }
            if read.data.iter().chain(&read.redundancy).flatten().count() >= k {
                return self.compute(group, rows, wanted, read).await;
            }
            read.failed.clear();
        }
        let range = self.geometry.group_range(group).shifted(self.start);
        Err(read.error.unwrap_or(Error::Lost {
            device: "the drive".into(),
            range,
            why: "more nodes are lost than the layout survives".into(),
        }))
    }

    /// Whether a unit may be read, and has not failed.
    fn may_ask(&self, group: u64, unit: Unit, patient: bool, failed: &[Unit]) -> bool {
        let member = self.places[self.member_of(group, unit)].0;
        let usable = if patient { self.members.is_in_sync(member) } else { self.members.is_ready(member) };
        usable && !failed.contains(&unit)
    }

    fn member_of(&self, group: u64, unit: Unit) -> usize {
        match unit {
            Unit::Data(index) => self.geometry.data_member(group, index),
            Unit::Redundancy(index) => self.geometry.redundancy_member(group, index),
        }
    }

    /// Reads units at the same time. Units whose member cannot be read count as failed.
    async fn fetch(
        self: &Arc<Self>,
        group: u64,
        rows: &Range<u64>,
        units: &[Unit],
        patient: bool,
        into: &mut Rows,
    ) -> Result<()> {
        let one = |unit: Unit| async move {
            if !self.may_ask(group, unit, patient, &[]) {
                return (unit, None);
            }
            let (member, start) = self.places[self.member_of(group, unit)];
            let offset = match unit {
                Unit::Data(index) => self.geometry.data_offset(group, index),
                Unit::Redundancy(index) => self.geometry.redundancy_offset(group, index),
            };
            let range = ByteRange::between(rows.start * PAGE_BYTES, rows.end * PAGE_BYTES).shifted(start + offset);
            (unit, Some(self.members.read(member, range, patient).await))
        };
        for (unit, answer) in join_all(units.iter().copied().map(one)).await {
            match answer {
                Some(Ok(data)) => *into.place(unit) = Some(data.into_bytes()),
                Some(Err(Failure::Fatal(error))) => return Err(error),
                Some(Err(failure)) => {
                    if let Failure::Damaged(_) = failure {
                        self.note_damage(group);
                    }
                    into.failed.push(unit);
                    into.error = Some(failure.into_error());
                }
                None => into.failed.push(unit),
            }
        }
        Ok(())
    }

    /// Has a group with a damaged page rewritten; only the holder of the lease can.
    fn note_damage(&self, group: u64) {
        if self.members.is_writer() {
            self.members.damaged(self.regions_of(self.geometry.group_range(group)));
        }
    }

    /// The drive's regions that a range of the array touches.
    pub(crate) fn regions_of(&self, range: ByteRange) -> Range<u64> {
        let range = range.shifted(self.start);
        self.members.regions_touched(range.offset, range.end())
    }

    async fn compute(
        self: &Arc<Self>,
        group: u64,
        rows: Range<u64>,
        wanted: &[bool],
        read: Rows,
    ) -> Result<Option<Vec<Option<Bytes>>>> {
        let k = self.geometry.data_units();
        let Rows { mut data, redundancy, .. } = read;
        let missing: Vec<usize> = (0..k).filter(|index| wanted[*index] && data[*index].is_none()).collect();
        code::decode(&mut data, &redundancy)?;
        let bytes = (rows.end - rows.start) * PAGE_BYTES * missing.len() as u64;
        self.members.counters.reconstructed_bytes.fetch_add(bytes, Ordering::Relaxed);
        if !self.geometry.has_digests() {
            return Ok(Some(data));
        }
        // The digests of any redundancy member will do: it need not be the one whose redundancy was used.
        for index in 0..self.geometry.redundancy_units() {
            let (member, start) = self.places[self.geometry.redundancy_member(group, index)];
            if !self.members.is_in_sync(member) {
                continue;
            }
            let cell = self.geometry.digest_range(group, index, rows.clone()).shifted(start);
            let Ok(cell) = self.members.read(member, cell, true).await else { continue };
            let cell = cell.into_bytes();
            let fits = |index: &usize| data[*index].as_ref().is_some_and(|unit| code::matches(unit, &cell, *index, k));
            if missing.iter().all(fits) {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

impl Rows {
    fn place(&mut self, unit: Unit) -> &mut Option<Bytes> {
        match unit {
            Unit::Data(index) => &mut self.data[index],
            Unit::Redundancy(index) => &mut self.redundancy[index],
        }
    }

    fn has(&self, unit: Unit) -> bool {
        match unit {
            Unit::Data(index) => self.data[index].is_some(),
            Unit::Redundancy(index) => self.redundancy[index].is_some(),
        }
    }
}

/// The rows of pages that the spans touch.
pub(crate) fn rows_of(spans: &[UnitSpan]) -> Range<u64> {
    let start = spans.iter().map(|span| span.within.offset / PAGE_BYTES).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.within.end().div_ceil(PAGE_BYTES)).max().unwrap_or(0);
    start..end
}
