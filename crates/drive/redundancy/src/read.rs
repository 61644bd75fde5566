//! Reading while members are missing: units come from the members that answer, and missing units are computed from
//! them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cheetah_device::error::Withheld;
use cheetah_device::{ByteRange, Data, Error, Result};
use futures::StreamExt as _;
use futures::future::{join_all, try_join_all};
use futures::stream::FuturesUnordered;
use smallvec::SmallVec;
use tokio::time::{Instant, sleep};

use crate::array::Inner;
use crate::code;
use crate::digest_cells::Cell;
use crate::geometry::{DIGEST_BYTES, PAGE_BYTES, UnitSpan};
use crate::members::Failure;
use crate::timing::RETURN_PAUSE;

/// How long a reader repeats a reconstruction that does not match its digest: another process may be writing the group.
const MISMATCH_PATIENCE: Duration = Duration::from_secs(2);
const MISMATCH_PAUSE: Duration = Duration::from_millis(5);

/// A part of a group: a unit of data or of redundancy, or the digests beside a unit of redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Data(usize),
    Redundancy(usize),
    Digests(usize),
}

/// The rows of a group that were read.
struct Rows {
    data: Vec<Option<Bytes>>,
    redundancy: Vec<Option<Bytes>>,
    digests: Vec<Option<Bytes>>,
    /// Parts that could not be read, with the last reason.
    failed_parts: Vec<Part>,
    error: Option<Error>,
    /// A member answered too late.
    late: bool,
}

/// Why units of a group's rows cannot be read.
pub(crate) struct Gap {
    /// The units of data that were read.
    pub data: Vec<Option<Bytes>>,
    /// The units of data that no member returned.
    pub missing: Vec<usize>,
    /// Enough units were read, but they are not of one version, or there is no digest to compare them with.
    mismatch: bool,
    /// Every member in sync has answered, so another attempt would not help.
    pub heard: bool,
    /// The digests that were read.
    pub digests: Vec<Bytes>,
    /// The digests are from the cache.
    remembered_digests: bool,
    pub error: Error,
}

impl Inner {
    /// Reads a range group by group.
    pub(crate) async fn read_degraded(self: &Arc<Self>, range: ByteRange) -> Result<Data> {
        // A reader in another process has no locks. Its reconstructions are checked against digests all the same.
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
        // With the locks held, a writer waits for pages that are declared bad or rewritten.
        self.check_good(range)?;
        let parts = try_join_all(groups.iter().map(|spans| self.read_spans(spans))).await?;
        let mut whole = Data::new();
        parts.into_iter().for_each(|part| whole.append(part));
        Ok(whole)
    }

    /// Fails if a byte of a range of the array is bad.
    pub(crate) fn check_good(&self, range: ByteRange) -> Result<()> {
        let Some(bad) = self.members.bad() else { return Ok(()) };
        match bad.within(range.shifted(self.start)).next() {
            Some(range) => Err(Error::Withheld { device: "the drive".into(), range, reason: Withheld::BeyondLayout }),
            None => Ok(()),
        }
    }

    /// Which pages of rows of a group are bad, by row and then by unit, except for those within `healed`, a range of
    /// the array; empty if none is.
    pub(crate) fn bad_pages(&self, group: u64, rows: Range<u64>, healed: ByteRange) -> Vec<bool> {
        let group_range = self.geometry.group_range(group);
        let Some(bad) = self.members.bad().filter(|bad| bad.touch(group_range.shifted(self.start))) else {
            return Vec::new();
        };
        let page = |row: u64, index: u64| {
            ByteRange::new(group_range.offset + index * self.geometry.unit() + row * PAGE_BYTES, PAGE_BYTES)
        };
        let units = self.geometry.data_units() as u64;
        let pages = rows.flat_map(|row| (0..units).map(move |index| page(row, index)));
        pages.map(|page| bad.touch(page.shifted(self.start)) && !healed.contains(page)).collect()
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

    /// Reads rows of pages of the data units that are wanted, and computes those that no member returns. A computed
    /// page matches its digest on a redundancy member. A bad page is returned as zeros, with which redundancy was
    /// computed. If too few members answer shortly after a loss, they are asked again: a member that was lost earlier
    /// may be back but not reconnected yet.
    pub(crate) async fn read_rows(
        self: &Arc<Self>,
        group: u64,
        rows: Range<u64>,
        wanted: &[bool],
    ) -> Result<Vec<Option<Bytes>>> {
        loop {
            match self.read_rows_now(group, rows.clone(), wanted).await {
                Err(Error::Lost { .. } | Error::Io { .. }) if self.members.may_return() => sleep(RETURN_PAUSE).await,
                read => return read,
            }
        }
    }

    /// The same, without waiting for members that may return.
    pub(crate) async fn read_rows_now(
        self: &Arc<Self>,
        group: u64,
        rows: Range<u64>,
        wanted: &[bool],
    ) -> Result<Vec<Option<Bytes>>> {
        let bad = self.bad_pages(group, rows.clone(), ByteRange::default());
        if bad.is_empty() {
            return self.read_consistent(group, rows, wanted, &[]).await;
        }
        let mut units = vec![BytesMut::new(); wanted.len()];
        for (row, bad) in rows.zip(bad.chunks(wanted.len())) {
            let pages = self.read_consistent(group, row..row + 1, wanted, bad).await?;
            for (unit, page) in units.iter_mut().zip(pages) {
                unit.extend_from_slice(&page.unwrap_or_default());
            }
        }
        Ok(units.into_iter().map(|unit| Some(unit.freeze()).filter(|unit| !unit.is_empty())).collect())
    }

    /// Reads rows in which the same units are bad.
    async fn read_consistent(
        self: &Arc<Self>,
        group: u64,
        rows: Range<u64>,
        wanted: &[bool],
        bad: &[bool],
    ) -> Result<Vec<Option<Bytes>>> {
        let begun = Instant::now();
        loop {
            match self.try_read_rows(group, rows.clone(), wanted, bad).await? {
                Ok(data) => return Ok(data),
                // A writer elsewhere may have changed the digests.
                Err(gap) if gap.remembered_digests => self.digest_cells.remove(group..group + 1),
                // The writer holds the lock, so nothing changes.
                Err(gap) if !gap.mismatch || self.members.is_writer() || begun.elapsed() >= MISMATCH_PATIENCE => {
                    return Err(gap.error);
                }
                Err(_) => sleep(MISMATCH_PAUSE).await,
            }
        }
    }

    /// One attempt to read rows in which the units `bad` are bad; `bad` may be empty.
    pub(crate) async fn try_read_rows(
        self: &Arc<Self>,
        group: u64,
        rows: Range<u64>,
        wanted: &[bool],
        bad: &[bool],
    ) -> Result<std::result::Result<Vec<Option<Bytes>>, Gap>> {
        let (k, m) = (self.geometry.data_units(), self.geometry.redundancy_units());
        let mut read = Rows {
            data: vec![None; k],
            redundancy: vec![None; m],
            digests: vec![None; m],
            failed_parts: Vec::new(),
            error: None,
            late: false,
        };
        if bad.contains(&true) {
            let zeros = Bytes::from(vec![0; ((rows.end - rows.start) * PAGE_BYTES) as usize]);
            let pages = read.data.iter_mut().zip(bad).filter(|(_, bad)| **bad);
            pages.for_each(|(page, _)| *page = Some(zeros.clone()));
        }
        let mut next: Vec<Part> =
            (0..k).filter(|index| wanted[*index] && read.data[*index].is_none()).map(Part::Data).collect();
        let unready = |part: &Part| !self.members.is_ready(self.member_of(group, *part));
        let mut remembered_digests = false;
        if next.iter().any(unready) {
            // Computing units needs other units, and all can be requested at once.
            read.failed_parts.extend(next.iter().copied().filter(unready));
            if let Some(cell) = self.digest_cells.get(group) {
                read.digests[cell.index] = Some(self.digests_of_rows(&cell.digests, &rows));
                remembered_digests = true;
            }
            next = self.next_parts(group, &read);
        }
        loop {
            self.fetch(group, &rows, &next, &mut read).await?;
            if let Some(data) = self.evaluate(wanted, &read)? {
                return Ok(Ok(data));
            }
            next = self.next_parts(group, &read);
            if next.is_empty() {
                break;
            }
        }
        // Members that were late are asked once more, patiently. Enough answers end the wait.
        let rest =
            self.parts().filter(|part| !read.has(*part) && self.members.is_in_sync(self.member_of(group, *part)));
        let mut answers: FuturesUnordered<_> = rest.map(|part| self.ask(group, &rows, part, true)).collect();
        let mut heard = true;
        while let Some((part, answer)) = answers.next().await {
            heard &= !matches!(answer, Err(Failure::Lost(_) | Failure::Late(_)));
            if self.take(group, &rows, part, answer, &mut read)?
                && let Some(data) = self.evaluate(wanted, &read)?
            {
                return Ok(Ok(data));
            }
        }
        drop(answers);
        let range = self.geometry.group_range(group).shifted(self.start);
        let device: Arc<str> = "the drive".into();
        let mismatch = read.units() >= k;
        let error = match read.error.take().filter(|_| !mismatch) {
            Some(error) => error,
            None if mismatch => Error::Corrupt { device, range },
            None => Error::Lost { device, range, why: "more nodes are lost than the layout survives".into() },
        };
        Ok(Err(Gap {
            missing: (0..k).filter(|index| wanted[*index] && read.data[*index].is_none()).collect(),
            mismatch,
            heard,
            digests: read.digests.into_iter().flatten().collect(),
            data: read.data,
            remembered_digests,
            error,
        }))
    }

    /// What to read next from members that answer in time: as many units as are needed and digests, then further
    /// digests, one at a time, then further units, because one of those read may be of another version. Empty if
    /// nothing is left to read.
    fn next_parts(&self, group: u64, read: &Rows) -> Vec<Part> {
        let may_ask = |part: &Part| {
            !read.has(*part) && !read.failed_parts.contains(part) && self.members.is_ready(self.member_of(group, *part))
        };
        let (digests, units): (Vec<Part>, Vec<Part>) =
            self.parts().filter(may_ask).partition(|part| matches!(part, Part::Digests(_)));
        let lacking = self.geometry.data_units().saturating_sub(read.units());
        if lacking > units.len() {
            return Vec::new();
        }
        match lacking {
            0 => digests.into_iter().chain(units).take(1).collect(),
            _ => {
                let has_digests = read.digests.iter().any(Option::is_some);
                let digests = digests.into_iter().take(usize::from(!has_digests));
                units.into_iter().take(lacking).chain(digests).collect()
            }
        }
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        let (k, m) = (self.geometry.data_units(), self.geometry.redundancy_units());
        let digests = if self.geometry.has_digests() { m } else { 0 };
        (0..k).map(Part::Data).chain((0..m).map(Part::Redundancy)).chain((0..digests).map(Part::Digests))
    }

    /// The member, by its number in the drive, that holds a part.
    pub(crate) fn member_of(&self, group: u64, part: Part) -> usize {
        let index = match part {
            Part::Data(index) => self.geometry.data_member(group, index),
            Part::Redundancy(index) | Part::Digests(index) => self.geometry.redundancy_member(group, index),
        };
        self.places[index].0
    }

    pub(crate) async fn ask(
        self: &Arc<Self>,
        group: u64,
        rows: &Range<u64>,
        part: Part,
        patient: bool,
    ) -> (Part, std::result::Result<Data, Failure>) {
        let pages = ByteRange::between(rows.start * PAGE_BYTES, rows.end * PAGE_BYTES);
        let (index, range) = match part {
            Part::Data(index) => {
                (self.geometry.data_member(group, index), pages.shifted(self.geometry.data_offset(group, index)))
            }
            Part::Redundancy(index) => (
                self.geometry.redundancy_member(group, index),
                pages.shifted(self.geometry.redundancy_offset(group, index)),
            ),
            Part::Digests(index) => {
                let whole = 0..self.geometry.unit() / PAGE_BYTES;
                let rows = if self.asks_for_whole_cells() { whole } else { rows.clone() };
                (self.geometry.redundancy_member(group, index), self.geometry.digest_range(group, index, rows))
            }
        };
        let (member, start) = self.places[index];
        (part, self.members.read(member, range.shifted(start), patient).await)
    }

    /// Whether the digests of a group are read as a whole and cached: an additional request costs more than these
    /// bytes.
    fn asks_for_whole_cells(&self) -> bool {
        self.geometry.digest_range(0, 0, 0..self.geometry.unit() / PAGE_BYTES).len <= PAGE_BYTES
    }

    /// Selects the digests of some rows from those of a whole group.
    fn digests_of_rows(&self, cell: &Bytes, rows: &Range<u64>) -> Bytes {
        let row = self.geometry.data_units() * DIGEST_BYTES as usize;
        cell.slice(rows.start as usize * row..rows.end as usize * row)
    }

    /// Reads parts at the same time. Parts on members that are not ready count as failed.
    async fn fetch(self: &Arc<Self>, group: u64, rows: &Range<u64>, parts: &[Part], into: &mut Rows) -> Result<()> {
        let (ready, unready): (Vec<Part>, Vec<Part>) =
            parts.iter().partition(|part| self.members.is_ready(self.member_of(group, **part)));
        into.failed_parts.extend(unready);
        for (part, answer) in join_all(ready.into_iter().map(|part| self.ask(group, rows, part, false))).await {
            self.take(group, rows, part, answer, into)?;
        }
        Ok(())
    }

    /// Processes the answer for a part. Returns whether the part was read.
    fn take(
        &self,
        group: u64,
        rows: &Range<u64>,
        part: Part,
        answer: std::result::Result<Data, Failure>,
        into: &mut Rows,
    ) -> Result<bool> {
        match answer {
            Ok(data) => {
                let mut bytes = data.into_bytes();
                if let Part::Digests(index) = part
                    && self.asks_for_whole_cells()
                {
                    let digests = self.digests_of_rows(&bytes, rows);
                    self.digest_cells.insert(group, Cell { index, digests: bytes });
                    bytes = digests;
                }
                *into.place(part) = Some(bytes);
                return Ok(true);
            }
            Err(Failure::Fatal(error)) => return Err(error),
            Err(failure) => {
                match failure {
                    Failure::Damaged(_) => self.note_damage(group, part),
                    Failure::Late(_) => into.late = true,
                    _ => {}
                }
                into.failed_parts.push(part);
                into.error = Some(failure.into_error());
            }
        }
        Ok(false)
    }

    /// The wanted units, if the units read suffice for them. Computed units are checked against a digest.
    fn evaluate(&self, wanted: &[bool], read: &Rows) -> Result<Option<Vec<Option<Bytes>>>> {
        let k = self.geometry.data_units();
        let is_missing = |data: &[Option<Bytes>], index: usize| wanted[index] && data[index].is_none();
        if !(0..k).any(|index| is_missing(&read.data, index)) {
            return Ok(Some(read.data.clone()));
        }
        if read.units() < k || (self.geometry.has_digests() && read.digests.iter().flatten().next().is_none()) {
            return Ok(None);
        }
        // With more units than are needed, each is left out once: it may be of another version than the others.
        let spare =
            self.parts().filter(|part| read.units() > k && !matches!(part, Part::Digests(_)) && read.has(*part));
        for left_out in std::iter::once(None).chain(spare.map(Some)) {
            let without = |units: &[Option<Bytes>], left_out: Option<usize>| -> Vec<Option<Bytes>> {
                let keep = |(index, unit): (usize, &Option<Bytes>)| unit.clone().filter(|_| left_out != Some(index));
                units.iter().enumerate().map(keep).collect()
            };
            let (no_data, no_redundancy) = match left_out {
                Some(Part::Data(index)) => (Some(index), None),
                Some(Part::Redundancy(index)) => (None, Some(index)),
                _ => (None, None),
            };
            let mut data = without(&read.data, no_data);
            let missing: SmallVec<[usize; 2]> = (0..k).filter(|index| is_missing(&data, *index)).collect();
            let restored = code::decode(&data, &without(&read.redundancy, no_redundancy), &missing)?;
            let fits =
                |cell: &Bytes| missing.iter().zip(&restored).all(|(index, unit)| code::matches(unit, cell, *index, k));
            if !self.geometry.has_digests() || read.digests.iter().flatten().any(fits) {
                let bytes: u64 = restored.iter().map(|unit| unit.len() as u64).sum();
                self.members.count(|stats| {
                    stats.reconstructed_reads += 1;
                    stats.reconstructed_bytes += bytes;
                    stats.hedged_reads_won += u64::from(read.late);
                });
                missing.into_iter().zip(restored).for_each(|(index, unit)| data[index] = Some(unit));
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Has a group with a damaged page rewritten. Only the holder of the lease can do that.
    pub(crate) fn note_damage(&self, group: u64, part: Part) {
        if self.members.is_writer() {
            let regions = self.regions_of(self.geometry.group_range(group));
            let index = match part {
                Part::Data(index) => index as u64,
                Part::Redundancy(index) => (self.geometry.data_units() + index) as u64,
                Part::Digests(index) => (2 * self.geometry.data_units() + index) as u64,
            };
            let at = self.start + self.geometry.group_range(group).offset;
            self.members.damaged(regions, (self.member_of(group, part), at, index));
        }
    }

    /// The drive's regions that a range of the array touches.
    pub(crate) fn regions_of(&self, range: ByteRange) -> Range<u64> {
        let range = range.shifted(self.start);
        self.members.regions_touched(range.offset, range.end())
    }
}

impl Rows {
    fn place(&mut self, part: Part) -> &mut Option<Bytes> {
        match part {
            Part::Data(index) => &mut self.data[index],
            Part::Redundancy(index) => &mut self.redundancy[index],
            Part::Digests(index) => &mut self.digests[index],
        }
    }

    fn has(&self, part: Part) -> bool {
        match part {
            Part::Data(index) => self.data[index].is_some(),
            Part::Redundancy(index) => self.redundancy[index].is_some(),
            Part::Digests(index) => self.digests[index].is_some(),
        }
    }

    /// The number of units of data and redundancy that were read.
    fn units(&self) -> usize {
        self.data.iter().chain(&self.redundancy).flatten().count()
    }
}

/// The rows of pages that the spans touch.
pub(crate) fn rows_of(spans: &[UnitSpan]) -> Range<u64> {
    let start = spans.iter().map(|span| span.within.offset / PAGE_BYTES).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.within.end().div_ceil(PAGE_BYTES)).max().unwrap_or(0);
    start..end
}
