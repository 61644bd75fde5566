//! Resynchronization: recomputes redundancy, and sends members the writes that they missed, while the drive is in use.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cheetah_device::data::is_zero;
use cheetah_device::{ByteRange, Data, Error, Result};
use cheetah_kit::number::gcd;

use crate::array::Inner;
use crate::code;
use crate::geometry::{DIGEST_BYTES, PAGE_BYTES};
use crate::read::Gap;
use crate::write::Edits;

/// The most data that is locked and held in memory at a time, unless digests need more.
const BATCH_BYTES: u64 = 4 << 20;

impl Inner {
    /// Brings every member that takes part up to date in a range of the drive. With `settle`, redundancy and digests
    /// are recomputed from data; otherwise only syncing members are written. Ranges that cannot be read are left as
    /// they are; the error returned is the last of them.
    pub(crate) async fn resync(self: &Arc<Self>, range: ByteRange, settle: bool) -> Result<()> {
        let own = ByteRange::new(self.start, self.geometry.size());
        let Some(range) = range.intersection(own) else { return Ok(()) };
        let range = ByteRange::new(range.offset - self.start, range.len);
        let groups = self.geometry.groups_of(range);
        // A member that is rewritten needs no whole pages of digests at the ends of the range, unless they may be
        // damaged.
        let (batch, mut at, last) = match settle || self.members.met_damage() {
            true => {
                let batch = self.batch_groups();
                (batch, groups.start / batch * batch, self.geometry.groups())
            }
            false => ((BATCH_BYTES / self.geometry.group_bytes()).max(1), groups.start, groups.end),
        };
        let mut result = Ok(());
        while at < groups.end {
            let end = (at + batch).min(last);
            // Each member reads or writes one unit of each group.
            let step = self.members.begin_step((end - at) * self.geometry.unit()).await;
            if let Err(error) = self.resync_groups(at..end, settle).await {
                result = Err(error);
            }
            drop(step);
            at = end;
        }
        result
    }

    /// The most data of a region that is in memory at a time.
    pub(crate) fn resync_bytes_max(&self) -> u64 {
        self.batch_groups() * self.geometry.group_bytes()
    }

    /// The groups that are resynchronized at a time. Their digests fill whole pages, so that a damaged page of digests
    /// is written as a whole.
    fn batch_groups(&self) -> u64 {
        let cycle = self.geometry.members() as u64;
        let cell = self.geometry.group_bytes() / PAGE_BYTES * DIGEST_BYTES * self.geometry.redundancy_units() as u64;
        let cycles = if self.geometry.has_digests() { PAGE_BYTES / gcd(PAGE_BYTES, cell) } else { 1 };
        let step = cycle * cycles;
        let wanted = BATCH_BYTES / (step * self.geometry.group_bytes());
        step * wanted.max(1)
    }

    async fn resync_groups(self: &Arc<Self>, groups: Range<u64>, settle: bool) -> Result<()> {
        let _lock = self.locks.lock(groups.clone(), true).await;
        let syncing = |index: usize| {
            let member = self.places[index].0;
            self.members.is_written(member) && !self.members.is_in_sync(member)
        };
        let targets: Vec<bool> = (0..self.places.len()).map(|index| settle || syncing(index)).collect();
        let (copied, filled) = self.copy_to_incoming(&groups, &targets).await;
        self.members.count(|stats| stats.resynced_bytes += copied.bytes());
        self.send_incoming(copied).await?;
        if !targets.contains(&true) && !filled.contains(&true) {
            return Ok(());
        }
        let wanted_by: Vec<bool> = targets.iter().zip(&filled).map(|(target, filled)| *target || *filled).collect();
        let pages = self.geometry.unit() / PAGE_BYTES;
        let wanted = vec![true; self.geometry.data_units()];
        let start = groups.start * self.geometry.group_bytes();
        let regions = self.regions_of(ByteRange::between(start, groups.end * self.geometry.group_bytes()));
        let is_last = groups.end == self.geometry.groups();
        let reads = groups.map(|group| {
            let wanted = &wanted;
            async move {
                match self.read_rows_now(group, 0..pages, wanted).await {
                    Ok(units) => (group, Ok(units.into_iter().flatten().collect())),
                    Err(_) => (group, self.read_or_give_up(group).await),
                }
            }
        });
        let mut edits = Edits::default();
        let mut failed: Option<Error> = None;
        for (group, units) in futures::future::join_all(reads).await {
            let units: Vec<Bytes> = match units {
                Ok(units) => units,
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            let bad = self.bad_pages(group, 0..pages, ByteRange::default());
            // A group whose redundancy no target holds is not encoded, and units of other members are not searched for
            // zeros.
            for (index, unit) in units.iter().enumerate() {
                let member = self.geometry.data_member(group, index);
                if wanted_by[member] {
                    let bad: Vec<bool> = bad.iter().skip(index).step_by(units.len()).copied().collect();
                    self.edit_unit(member, self.geometry.data_offset(group, index), unit, &bad, &mut edits);
                }
            }
            for index in 0..self.geometry.redundancy_units() {
                let member = self.geometry.redundancy_member(group, index);
                if self.geometry.has_digests() && wanted_by[member] {
                    self.edit_redundancy(group, 0..pages, &units, ByteRange::default(), &mut edits)?;
                    break;
                }
                if wanted_by[member] {
                    self.edit_unit(member, self.geometry.redundancy_offset(group, index), &units[0], &bad, &mut edits);
                }
            }
        }
        if is_last {
            // The last page of digests is written as a whole, too.
            let padding = self.geometry.digest_padding();
            (0..targets.len()).for_each(|member| edits.push(member, padding.offset, Data::zeros(padding.len)));
        }
        edits.retain(|member| wanted_by[member]);
        self.members.count(|stats| stats.resynced_bytes += edits.bytes());
        let incoming = edits.split_off(|member| !targets[member]);
        let (sent, filled) = futures::join!(self.send(edits, regions, false), self.send_incoming(incoming));
        sent.and(filled)?;
        failed.map_or(Ok(()), Err)
    }

    /// Reads what moving members hold of groups, as edits for the nodes that they move to. Members that are `targets` are
    /// left out: whatever is written to them goes to these nodes, too. Also returns the members whose part could not be
    /// read, and has to be computed.
    async fn copy_to_incoming(self: &Arc<Self>, groups: &Range<u64>, targets: &[bool]) -> (Edits, Vec<bool>) {
        let mut edits = Edits::default();
        let mut unread = vec![false; targets.len()];
        for (index, (member, start)) in self.places.iter().enumerate() {
            if targets[index] || !self.members.is_filled(*member) {
                continue;
            }
            let ranges = self.geometry.member_ranges(groups.clone(), index);
            let reads = ranges.iter().map(|range| self.members.read_to_copy(*member, range.shifted(*start)));
            let read: Option<Vec<Data>> = futures::future::join_all(reads).await.into_iter().collect();
            match read {
                Some(parts) => {
                    ranges.iter().zip(parts).for_each(|(range, data)| edits.push(index, range.offset, data));
                }
                None => unread[index] = true,
            }
        }
        (edits, unread)
    }

    /// Adds a unit of data, or a copy of it, without its bad pages. A reader with an older map, in which the member was
    /// in sync and the pages were good, must not find zeros there.
    fn edit_unit(&self, member: usize, offset: u64, unit: &Bytes, bad: &[bool], edits: &mut Edits) {
        if !bad.contains(&true) {
            return edits.push(member, offset, content(unit));
        }
        for (page, _) in bad.iter().enumerate().filter(|(_, bad)| !**bad) {
            let start = page * PAGE_BYTES as usize;
            edits.push(member, offset + start as u64, unit.slice(start..start + PAGE_BYTES as usize).into());
        }
    }

    /// Reads the data of a group row by row. A page that no member in sync returns is taken from a member that is being
    /// resynchronized if a digest shows that it is current. A page that no member has is recorded as bad.
    async fn read_or_give_up(self: &Arc<Self>, group: u64) -> Result<Vec<Bytes>> {
        let pages = self.geometry.unit() / PAGE_BYTES;
        let wanted = vec![true; self.geometry.data_units()];
        let bad = self.bad_pages(group, 0..pages, ByteRange::default());
        let mut units = vec![BytesMut::new(); wanted.len()];
        let mut lost = Vec::new();
        for row in 0..pages {
            let bad = bad.chunks(wanted.len()).nth(row as usize).unwrap_or_default();
            let data = match self.try_read_rows(group, row..row + 1, &wanted, bad).await? {
                Ok(data) => data,
                Err(gap) => self.fill_gap(group, row, gap, &mut lost).await?,
            };
            units.iter_mut().zip(data).for_each(|(unit, page)| unit.extend_from_slice(&page.unwrap_or_default()));
        }
        if lost.is_empty() {
            return Ok(units.into_iter().map(BytesMut::freeze).collect());
        }
        // The region is then settled again, with these pages bad.
        self.members.declare_bad(&lost).await?;
        let range = self.geometry.group_range(group).shifted(self.start);
        Err(Error::Corrupt { device: "the drive".into(), range })
    }

    /// Finds the missing pages of a row, or notes them as `lost` if every member answered.
    async fn fill_gap(
        self: &Arc<Self>,
        group: u64,
        row: u64,
        gap: Gap,
        lost: &mut Vec<ByteRange>,
    ) -> Result<Vec<Option<Bytes>>> {
        let mut row_units = gap.data;
        for index in gap.missing {
            let (member, start) = self.places[self.geometry.data_member(group, index)];
            let in_sync = self.members.is_in_sync(member);
            let page = ByteRange::new(start + self.geometry.data_offset(group, index) + row * PAGE_BYTES, PAGE_BYTES);
            let held = match self.members.is_written(member) && !in_sync {
                true => self.members.read_unsynced(member, page).await,
                false => None,
            };
            let units = row_units.len();
            let current = |held: &Bytes| gap.digests.iter().any(|cell| code::matches(held, cell, index, units));
            if let Some(held) = held.clone().map(Data::into_bytes).filter(current) {
                row_units[index] = Some(held);
            } else if gap.heard && (in_sync || held.is_some()) {
                let at =
                    self.geometry.group_range(group).offset + index as u64 * self.geometry.unit() + row * PAGE_BYTES;
                lost.push(ByteRange::new(self.start + at, PAGE_BYTES));
            } else {
                // The member may return with the page.
                return Err(gap.error);
            }
        }
        Ok(row_units)
    }
}

/// Zeros take no bytes on the network.
fn content(unit: &Bytes) -> Data {
    if is_zero(unit) { Data::zeros(unit.len() as u64) } else { unit.clone().into() }
}
