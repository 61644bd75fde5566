//! Checking: reads every unit, and compares data, digests and redundancy. Without it, damage to units that nobody reads
//! would be unnoticed until another member is lost.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, Result};
use futures::future::join_all;
use serde::Serialize;

use crate::array::Inner;
use crate::code;
use crate::geometry::PAGE_BYTES;
use crate::members::Failure;
use crate::read::Part;
use crate::write::Edits;

/// The most data that is locked and held in memory at a time.
const BATCH_BYTES: u64 = 4 << 20;

/// The result of a check. Pages are of 4096 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Checked {
    /// Bytes of data that were compared with their redundancy.
    pub compared_bytes: u64,
    /// Bytes of data that were not compared, because a member is missing or the range is bad.
    pub uncompared_bytes: u64,
    /// Units that a member reported as damaged. Resynchronization rewrites them.
    pub damaged_units: u64,
    /// Pages of data that contradicted their digests, and were recomputed from the other members and rewritten.
    pub data_pages_repaired: u64,
    /// Pages of redundancy, digests included, that contradicted the data, and were rewritten.
    pub redundancy_pages_repaired: u64,
    /// Rows of pages in which data and redundancy contradict each other, and nothing shows which is right. They are not
    /// changed.
    pub undecided_rows: u64,
}

impl std::ops::AddAssign for Checked {
    fn add_assign(&mut self, other: Self) {
        self.compared_bytes += other.compared_bytes;
        self.uncompared_bytes += other.uncompared_bytes;
        self.damaged_units += other.damaged_units;
        self.data_pages_repaired += other.data_pages_repaired;
        self.redundancy_pages_repaired += other.redundancy_pages_repaired;
        self.undecided_rows += other.undecided_rows;
    }
}

impl Checked {
    /// Whether everything was compared, and nothing remains wrong.
    pub fn is_sound(&self) -> bool {
        self.uncompared_bytes == 0 && self.undecided_rows == 0
    }

    /// Whether something was wrong.
    pub fn has_found(&self) -> bool {
        self.damaged_units + self.data_pages_repaired + self.redundancy_pages_repaired + self.undecided_rows > 0
    }
}

/// A row of pages of a group, as the members hold it.
struct Row {
    data: Vec<Bytes>,
    redundancy: Vec<Bytes>,
    /// The digests beside each page of redundancy; empty pages in a mirror.
    digests: Vec<Bytes>,
    /// Which pages of data are bad; empty if none is.
    bad: Vec<bool>,
}

/// The correct content of a row.
#[derive(Debug, PartialEq, Eq)]
struct Truth {
    data: Vec<Bytes>,
    /// The redundancy units that contradict it.
    wrong_redundancy: Vec<usize>,
}

impl Inner {
    /// Checks a range of groups, at most [`BATCH_BYTES`] at a time. `progress` gets the bytes done in each step.
    pub(crate) async fn check(
        self: &Arc<Self>,
        checked: &mut Checked,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<()> {
        let batch = (BATCH_BYTES / self.geometry.group_bytes()).max(1);
        let mut at = 0;
        while at < self.geometry.groups() {
            let end = (at + batch).min(self.geometry.groups());
            let step = self.members.begin_step((end - at) * self.geometry.unit()).await;
            self.check_groups(at..end, checked).await?;
            drop(step);
            progress((end - at) * self.geometry.group_bytes());
            at = end;
        }
        Ok(())
    }

    async fn check_groups(self: &Arc<Self>, groups: Range<u64>, checked: &mut Checked) -> Result<()> {
        let _lock = self.locks.lock(groups.clone(), true).await;
        let read = join_all(groups.map(|group| async move { (group, self.read_all(group).await) })).await;
        let mut edits = Edits::default();
        let mut regions: Option<Range<u64>> = None;
        for (group, parts) in read {
            let parts = parts?;
            let damaged = parts.damaged;
            checked.damaged_units += damaged;
            let Some(rows) = self.rows(group, parts) else {
                // A damaged unit is computed and compared with its digest when it is rewritten.
                if damaged == 0 {
                    checked.uncompared_bytes += self.geometry.group_bytes();
                }
                continue;
            };
            for (number, row) in rows.into_iter().enumerate() {
                let bad = row.bad.iter().filter(|bad| **bad).count() as u64;
                checked.uncompared_bytes += bad * PAGE_BYTES;
                checked.compared_bytes += (row.data.len() as u64 - bad) * PAGE_BYTES;
                let found = match row.truth() {
                    Ok(None) => continue,
                    Ok(Some(truth)) => truth,
                    Err(Undecided) => {
                        checked.undecided_rows += 1;
                        continue;
                    }
                };
                self.mend_row(group, number as u64, &row, found, checked, &mut edits)?;
                let own = self.regions_of(self.geometry.group_range(group));
                regions = Some(regions.map_or(own.clone(), |all| all.start.min(own.start)..all.end.max(own.end)));
            }
        }
        if let Some(regions) = regions {
            // A member that is lost during the repair misses this write, too.
            let _admitted = self.members.admit(regions.clone()).await?;
            self.send(edits, regions, false).await?;
        }
        Ok(())
    }

    fn mend_row(
        &self,
        group: u64,
        row: u64,
        held: &Row,
        truth: Truth,
        checked: &mut Checked,
        edits: &mut Edits,
    ) -> Result<()> {
        for (index, (page, held)) in truth.data.iter().zip(&held.data).enumerate() {
            if page != held {
                checked.data_pages_repaired += 1;
                let offset = self.geometry.data_offset(group, index) + row * PAGE_BYTES;
                edits.push(self.geometry.data_member(group, index), offset, Data::from(page.clone()));
            }
        }
        checked.redundancy_pages_repaired += truth.wrong_redundancy.len() as u64;
        if !truth.wrong_redundancy.is_empty() {
            tracing::warn!("redundancy of {} was wrong", self.geometry.group_range(group).shifted(self.start));
            self.edit_redundancy(group, row..row + 1, &truth.data, ByteRange::default(), edits)?;
        }
        Ok(())
    }

    /// Reads all parts of a group from the members in sync.
    async fn read_all(self: &Arc<Self>, group: u64) -> Result<AllParts> {
        let pages = 0..self.geometry.unit() / PAGE_BYTES;
        let (data, redundancy) = (self.geometry.data_units(), self.geometry.redundancy_units());
        let mut all = AllParts {
            data: vec![None; data],
            redundancy: vec![None; redundancy],
            digests: vec![None; redundancy],
            damaged: 0,
        };
        let parts = self.parts().filter(|part| self.members.is_in_sync(self.member_of(group, *part)));
        for (part, answer) in join_all(parts.map(|part| self.ask(group, &pages, part, true))).await {
            let bytes = match answer {
                Ok(bytes) => bytes.into_bytes(),
                Err(Failure::Fatal(error)) => return Err(error),
                Err(Failure::Damaged(_)) => {
                    all.damaged += 1;
                    self.note_damage(group, part);
                    continue;
                }
                Err(_) => continue,
            };
            match part {
                Part::Data(index) => all.data[index] = Some(bytes),
                Part::Redundancy(index) => all.redundancy[index] = Some(bytes),
                Part::Digests(index) => all.digests[index] = Some(bytes),
            }
        }
        if !self.geometry.has_digests() {
            all.digests = vec![Some(Bytes::new()); redundancy];
        }
        Ok(all)
    }

    /// The rows of a group; `None` if a part of it was not read.
    fn rows(&self, group: u64, parts: AllParts) -> Option<Vec<Row>> {
        let data: Vec<Bytes> = parts.data.into_iter().collect::<Option<_>>()?;
        let redundancy: Vec<Bytes> = parts.redundancy.into_iter().collect::<Option<_>>()?;
        let digests: Vec<Bytes> = parts.digests.into_iter().collect::<Option<_>>()?;
        let pages = self.geometry.unit() / PAGE_BYTES;
        let bad = self.bad_pages(group, 0..pages, ByteRange::default());
        let bad: Vec<&[bool]> = bad.chunks(data.len()).collect();
        let cut = |units: &[Bytes], row: usize| -> Vec<Bytes> {
            let piece = |unit: &Bytes| {
                let bytes = unit.len() / pages as usize;
                unit.slice(row * bytes..(row + 1) * bytes)
            };
            units.iter().map(piece).collect()
        };
        let row = |row: usize| Row {
            data: cut(&data, row),
            redundancy: cut(&redundancy, row),
            digests: cut(&digests, row),
            bad: bad.get(row).map(|bad| bad.to_vec()).unwrap_or_default(),
        };
        Some((0..pages as usize).map(row).collect())
    }
}

/// All parts of a group.
struct AllParts {
    data: Vec<Option<Bytes>>,
    redundancy: Vec<Option<Bytes>>,
    digests: Vec<Option<Bytes>>,
    damaged: u64,
}

/// Nothing shows which unit is right.
#[derive(Debug, PartialEq, Eq)]
struct Undecided;

impl Row {
    /// The correct content of the row; `None` if it is already correct.
    fn truth(&self) -> std::result::Result<Option<Truth>, Undecided> {
        if self.bad.contains(&true) {
            // Redundancy is computed with zeros in the place of bad pages, and nothing else is known of them.
            return Ok(None);
        }
        let held = self.assess(self.data.clone());
        if held.as_ref().is_some_and(|(truth, _)| truth.wrong_redundancy.is_empty()) {
            return Ok(None);
        }
        match self.data.len() {
            1 => self.most_copies().map(Some),
            _ => self.supported_by_digests(held).map(Some),
        }
    }

    /// Which redundancy contradicts these data, and whether any redundancy confirms them: a digest of every page, or
    /// all of the redundancy proper.
    fn assess(&self, data: Vec<Bytes>) -> Option<(Truth, bool)> {
        let redundancy = code::encode(&data, self.redundancy.len()).ok()?;
        let digests = code::digests(&data, &[]);
        let agrees = |index: &usize| redundancy[*index] == self.redundancy[*index];
        let digest_agrees = |index: &usize| self.digests[*index].is_empty() || self.digests[*index] == digests;
        let units = 0..redundancy.len();
        let supported = units.clone().any(|index| digest_agrees(&index)) || units.clone().all(|index| agrees(&index));
        let wrong_redundancy = units.filter(|index| !agrees(index) || !digest_agrees(index)).collect();
        Some((Truth { data, wrong_redundancy }, supported))
    }

    /// A mirror's page: the content that more than half of the copies have.
    fn most_copies(&self) -> std::result::Result<Truth, Undecided> {
        let copies: Vec<&Bytes> = self.data.iter().chain(&self.redundancy).collect();
        let most = copies.iter().find(|page| copies.iter().filter(|copy| copy == page).count() * 2 > copies.len());
        let page = (*most.ok_or(Undecided)?).clone();
        let wrong_redundancy = (0..self.redundancy.len()).filter(|index| self.redundancy[*index] != page).collect();
        Ok(Truth { data: vec![page], wrong_redundancy })
    }

    /// The data with the fewest contradictions among the candidates that a digest confirms: the data read, or the same
    /// with one or two pages computed from the others.
    fn supported_by_digests(&self, held: Option<(Truth, bool)>) -> std::result::Result<Truth, Undecided> {
        let parities = self.redundancy.len();
        let contradictions = |truth: &Truth| {
            let changed = truth.data.iter().zip(&self.data).filter(|(page, held)| page != held).count();
            changed + truth.wrong_redundancy.len()
        };
        let pages = 0..self.data.len();
        let mut missing: Vec<Vec<usize>> = pages.clone().map(|page| vec![page]).collect();
        if parities > 1 {
            missing
                .extend(pages.clone().flat_map(|first| (first + 1..pages.end).map(move |second| vec![first, second])));
        }
        // Uses each parity alone, and all together: one of them may be wrong.
        let mut used: Vec<Vec<usize>> = (0..parities).map(|index| vec![index]).collect();
        used.extend((parities > 1).then(|| (0..parities).collect()));
        let computed = missing.iter().flat_map(|missing| used.iter().map(move |used| (missing, used)));
        let computed = computed.filter(|(missing, used)| used.len() >= missing.len()).filter_map(|(missing, used)| {
            let data =
                self.data.iter().enumerate().map(|(index, page)| (!missing.contains(&index)).then(|| page.clone()));
            let mut data: Vec<Option<Bytes>> = data.collect();
            let redundancy = self.redundancy.iter().enumerate();
            let redundancy: Vec<Option<Bytes>> =
                redundancy.map(|(index, page)| used.contains(&index).then(|| page.clone())).collect();
            let restored = code::decode(&data, &redundancy, missing).ok()?;
            missing.iter().zip(restored).for_each(|(index, page)| data[*index] = Some(page));
            self.assess(data.into_iter().flatten().collect())
        });
        let supported = held.into_iter().chain(computed).filter(|(_, supported)| *supported).map(|(truth, _)| truth);
        let best = supported.min_by_key(contradictions).filter(|truth| contradictions(truth) <= parities);
        best.ok_or(Undecided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(seed: u8) -> Bytes {
        (0..PAGE_BYTES).map(|at| (at as u8).wrapping_mul(seed) ^ seed).collect::<Vec<u8>>().into()
    }

    fn row(units: usize, parities: usize) -> Row {
        let data: Vec<Bytes> = (0..units).map(|index| page(2 * index as u8 + 3)).collect();
        let digests = if units > 1 { code::digests(&data, &[]) } else { Bytes::new() };
        Row {
            redundancy: code::encode(&data, parities).unwrap(),
            digests: vec![digests; parities],
            bad: Vec::new(),
            data,
        }
    }

    fn flip(page: &mut Bytes) {
        let mut bytes = page.to_vec();
        bytes[7] ^= 1;
        *page = bytes.into();
    }

    #[test]
    fn a_row_without_contradictions_is_right() {
        for (units, parities) in [(1, 1), (1, 2), (2, 1), (4, 1), (3, 2)] {
            assert!(row(units, parities).truth().is_ok_and(|truth| truth.is_none()));
        }
    }

    #[test]
    fn what_the_digests_contradict_is_found() {
        for (units, parities) in [(2, 1), (4, 1), (3, 2), (5, 2)] {
            let right = row(units, parities);
            for index in 0..units {
                let mut row = row(units, parities);
                flip(&mut row.data[index]);
                let truth = row.truth().unwrap().unwrap();
                assert!(truth.data == right.data && truth.wrong_redundancy.is_empty());
            }
            for index in 0..parities {
                for of_digests in [false, true] {
                    let mut row = row(units, parities);
                    flip(if of_digests { &mut row.digests[index] } else { &mut row.redundancy[index] });
                    let truth = row.truth().unwrap().unwrap();
                    assert!(truth.data == right.data && truth.wrong_redundancy == [index]);
                }
            }
        }
    }

    #[test]
    fn two_parities_repair_two_members() {
        let right = row(4, 2);
        let mut row = row(4, 2);
        flip(&mut row.data[1]);
        flip(&mut row.data[3]);
        assert!(row.truth().unwrap().unwrap().data == right.data);
        flip(&mut row.data[3]);
        flip(&mut row.redundancy[0]);
        let truth = row.truth().unwrap().unwrap();
        assert!(truth.data == right.data && truth.wrong_redundancy == [0]);
    }

    #[test]
    fn most_copies_decide_and_two_that_differ_do_not() {
        let mut two = row(1, 1);
        flip(&mut two.data[0]);
        assert!(two.truth().is_err());
        let (right, mut three) = (row(1, 2), row(1, 2));
        flip(&mut three.redundancy[1]);
        let truth = three.truth().unwrap().unwrap();
        assert!(truth.data == right.data && truth.wrong_redundancy == [1]);
    }

    #[test]
    fn more_contradictions_than_parities_are_not_decided() {
        let mut row = row(4, 1);
        flip(&mut row.data[0]);
        row.data[1] = page(99);
        assert!(row.truth().is_err());
    }
}
