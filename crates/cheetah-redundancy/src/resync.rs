//! Resynchronization: redundancy computed anew, and members given what they missed, while the drive is in use.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::data::is_zero;
use cheetah_device::{ByteRange, Data, Error, Result};

use crate::array::Inner;
use crate::geometry::{DIGEST_BYTES, PAGE_BYTES};
use crate::write::Edits;

/// The most data that is locked and held in memory at a time, unless digests need more.
const BATCH_BYTES: u64 = 4 << 20;

impl Inner {
    /// Gives every member that takes part what it should have of a range of the drive. With `settle`, redundancy and
    /// digests are computed anew from data; without, only syncing members are written. Ranges that cannot be read are left
    /// as they are; the error is the last of them.
    pub(crate) async fn resync(self: &Arc<Self>, range: ByteRange, settle: bool) -> Result<()> {
        let own = ByteRange::new(self.start, self.geometry.size());
        let Some(range) = range.intersection(own) else { return Ok(()) };
        let range = ByteRange::new(range.offset - self.start, range.len);
        let groups = self.geometry.groups_of(range);
        // A member that is written anew needs no whole pages of digests at the ends of the range, unless they may be damaged.
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
            if let Err(error) = self.resync_groups(at..end, settle).await {
                result = Err(error);
            }
            at = end;
        }
        result
    }

    /// The groups that are resynchronized at a time. Their digests fill whole pages, so that a damaged page of digests is
    /// written as a whole.
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
        let pages = self.geometry.unit() / PAGE_BYTES;
        let wanted = vec![true; self.geometry.data_units()];
        let start = groups.start * self.geometry.group_bytes();
        let regions = self.regions_of(ByteRange::between(start, groups.end * self.geometry.group_bytes()));
        let is_last = groups.end == self.geometry.groups();
        let reads = groups.map(|group| {
            let wanted = &wanted;
            async move { (group, self.read_rows(group, 0..pages, wanted).await) }
        });
        let mut edits = Edits::default();
        let mut failed: Option<Error> = None;
        for (group, units) in futures::future::join_all(reads).await {
            let units: Vec<Bytes> = match units {
                Ok(units) => units.into_iter().flatten().collect(),
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            // A group whose redundancy no target holds is not encoded, and units of other members are not searched for zeros.
            for (index, unit) in units.iter().enumerate() {
                let member = self.geometry.data_member(group, index);
                if targets[member] {
                    edits.push(member, self.geometry.data_offset(group, index), content(unit));
                }
            }
            if (0..self.geometry.redundancy_units()).any(|index| targets[self.geometry.redundancy_member(group, index)])
            {
                self.edit_redundancy(group, 0..pages, &units, &mut edits)?;
            }
        }
        if is_last {
            // The last page of digests is written as a whole, too.
            let padding = self.geometry.digest_padding();
            (0..targets.len()).for_each(|member| edits.push(member, padding.offset, Data::zeros(padding.len)));
        }
        edits.retain(|member| targets[member]);
        self.send(edits, regions, false).await?;
        failed.map_or(Ok(()), Err)
    }
}

/// Zeros take no room on the wire.
fn content(unit: &Bytes) -> Data {
    if is_zero(unit) { Data::zeros(unit.len() as u64) } else { unit.clone().into() }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
