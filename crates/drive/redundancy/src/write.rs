//! Writing: data, redundancy and digests at once, to every member that takes part.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cheetah_device::data::Part as Run;
use cheetah_device::{ByteRange, Data, Result};
use futures::future::join_all;
use tokio::time::{Instant, sleep};

use crate::array::Inner;
use crate::code;
use crate::geometry::{DIGEST_BYTES, PAGE_BYTES, UnitSpan};
use crate::members::Failure;
use crate::read::{Part, rows_of};

/// How long a write is repeated to a member that the drive cannot do without.
const INDISPENSABLE_PATIENCE: Duration = Duration::from_secs(10);
const INDISPENSABLE_PAUSE: Duration = Duration::from_millis(100);

/// The writes to each member of the array, by index: offsets on the member, and data.
#[derive(Default)]
pub(crate) struct Edits(BTreeMap<usize, Vec<(u64, Data)>>);

impl Edits {
    /// Adds a piece; pieces that continue the last one of their member become one request.
    pub fn push(&mut self, member: usize, offset: u64, data: Data) {
        if data.is_empty() {
            return;
        }
        let edits = self.0.entry(member).or_default();
        // Data, redundancy and digests of a request alternate, so the piece to continue is one of the last three.
        let recent = edits.iter_mut().rev().take(3).find(|(start, data)| start + data.len() == offset);
        match recent {
            Some((_, before)) => before.append(data),
            None => edits.push((offset, data)),
        }
    }

    /// The bytes to write.
    pub fn bytes(&self) -> u64 {
        self.0.values().flatten().map(|(_, data)| data.len()).sum()
    }

    /// Keeps the edits of the members for which `keep` holds.
    pub fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        self.0.retain(|member, _| keep(*member));
    }

    /// Removes and returns the edits of the members for which `remove` holds.
    pub fn split_off(&mut self, remove: impl Fn(usize) -> bool) -> Self {
        let (removed, kept) = std::mem::take(&mut self.0).into_iter().partition(|(member, _)| remove(*member));
        self.0 = kept;
        Self(removed)
    }
}

impl Inner {
    /// Writes, and returns once every member that takes part has the bytes, or is recorded as stale.
    pub(crate) async fn write(self: &Arc<Self>, offset: u64, data: Data, fua: bool) -> Result<()> {
        let range = ByteRange::new(offset, data.len());
        let mut admitted = self.members.admit(self.regions_of(range)).await?;
        let _lock = self.locks.lock(self.geometry.groups_of(range), true).await;
        let is_bad = self.check_good(range).is_err();
        let (range, data) = if is_bad { self.whole_bad_pages(range, data)? } else { (range, data) };
        let edits = self.encode(range, &data).await?;
        let sent = self.send(edits, self.regions_of(range), fua).await;
        admitted.consistent = sent.is_ok();
        if sent.is_ok() && is_bad {
            return self.members.heal(range.shifted(self.start)).await;
        }
        sent
    }

    /// Extends a write to the whole of the bad pages in which it begins and ends. What was there besides is lost: it becomes
    /// zeros, if a layer above can tell them from content; otherwise such a write is an error.
    fn whole_bad_pages(&self, range: ByteRange, data: Data) -> Result<(ByteRange, Data)> {
        let (mut start, mut end) = (range.offset, range.end());
        for at in [range.offset, range.end() - 1] {
            let page = ByteRange::new(at, 1).aligned_to(PAGE_BYTES);
            match self.check_good(page) {
                Err(error) if !range.contains(page) && !self.is_authenticated.load(Ordering::Relaxed) => {
                    return Err(error);
                }
                Err(_) => (start, end) = (start.min(page.offset), end.max(page.end())),
                Ok(()) => {}
            }
        }
        let mut whole = Data::zeros(range.offset - start);
        whole.append(data);
        whole.append(Data::zeros(end - range.end()));
        Ok((ByteRange::between(start, end), whole))
    }

    /// Computes what a write changes on the members. Reads the rest of groups that are written in part.
    async fn encode(self: &Arc<Self>, range: ByteRange, data: &Data) -> Result<Edits> {
        let mut edits = Edits::default();
        let mut spans = self.geometry.spans(range).peekable();
        while let Some(first) = spans.next() {
            let mut group = vec![first];
            while let Some(next) = spans.next_if(|next| next.group == first.group) {
                group.push(next);
            }
            let piece = |span: &UnitSpan| data.slice(span.at - range.offset, span.within.len);
            let pieces: Vec<(UnitSpan, Data)> = group.iter().map(|span| (*span, piece(span))).collect();
            if !self.geometry.has_digests() {
                self.copy_group(&pieces, &mut edits);
            } else if self.is_group_of_zeros(&pieces) {
                self.zero_group(&pieces, &mut edits);
            } else {
                self.encode_group(range, &pieces, &mut edits).await?;
            }
        }
        Ok(edits)
    }

    /// A mirror's group: the same bytes for each copy.
    fn copy_group(&self, pieces: &[(UnitSpan, Data)], edits: &mut Edits) {
        for (span, data) in pieces {
            self.edit_data(span, data.clone(), edits);
            for index in 0..self.geometry.redundancy_units() {
                let offset = self.geometry.redundancy_offset(span.group, index) + span.within.offset;
                edits.push(self.geometry.redundancy_member(span.group, index), offset, data.clone());
            }
        }
    }

    /// Whether the pieces of a group are all of it, and runs of zeros.
    fn is_group_of_zeros(&self, pieces: &[(UnitSpan, Data)]) -> bool {
        pieces.iter().all(|(_, data)| matches!(data.parts(), [Run::Zeros(_)]))
            && pieces.iter().map(|(_, data)| data.len()).sum::<u64>() == self.geometry.group_bytes()
    }

    /// A group of zeros: its redundancy and its digests are zeros too, so nothing is computed, and no byte is sent. All its
    /// bad pages become good.
    fn zero_group(&self, pieces: &[(UnitSpan, Data)], edits: &mut Edits) {
        let group = pieces[0].0.group;
        self.digest_cells.remove(group..group + 1);
        for (span, zeros) in pieces {
            self.edit_data(span, zeros.clone(), edits);
        }
        for index in 0..self.geometry.redundancy_units() {
            let member = self.geometry.redundancy_member(group, index);
            edits.push(member, self.geometry.redundancy_offset(group, index), Data::zeros(self.geometry.unit()));
            let cell = self.geometry.digest_range(group, index, 0..self.geometry.unit() / PAGE_BYTES);
            edits.push(member, cell.offset, Data::zeros(cell.len));
        }
    }

    fn edit_data(&self, span: &UnitSpan, data: Data, edits: &mut Edits) {
        let offset = self.geometry.data_offset(span.group, span.index) + span.within.offset;
        edits.push(self.geometry.data_member(span.group, span.index), offset, data);
    }

    /// A group with parity: the rows of pages that the write touches are encoded again from all data units.
    async fn encode_group(
        self: &Arc<Self>,
        range: ByteRange,
        pieces: &[(UnitSpan, Data)],
        edits: &mut Edits,
    ) -> Result<()> {
        let spans: Vec<UnitSpan> = pieces.iter().map(|(span, _)| *span).collect();
        if let [(span, data)] = pieces
            && self.update_unit(span, data, edits).await?
        {
            return Ok(());
        }
        let (group, rows) = (spans[0].group, rows_of(&spans));
        let rows_range = ByteRange::between(rows.start * PAGE_BYTES, rows.end * PAGE_BYTES);
        let covered = |index: usize| spans.iter().any(|span| span.index == index && span.within.contains(rows_range));
        let wanted: Vec<bool> = (0..self.geometry.data_units()).map(|index| !covered(index)).collect();
        let mut units = match wanted.contains(&true) {
            true => self.read_rows(group, rows.clone(), &wanted).await?,
            false => vec![None; wanted.len()],
        };
        for (span, data) in pieces {
            let unit = &mut units[span.index];
            *unit = Some(match unit.take() {
                Some(old) if !covered(span.index) => {
                    let start = (span.within.offset - rows_range.offset) as usize;
                    let mut merged = BytesMut::from(&old[..]);
                    data.copy_to(&mut merged[start..start + data.len() as usize]);
                    merged.freeze()
                }
                _ => data.slice(rows_range.offset - span.within.offset, rows_range.len).into_bytes(),
            });
            // Whole pages: writing one repairs a damaged page, and the member has no digest to check.
            let pages = span.within.aligned_to(PAGE_BYTES);
            let content = unit.clone().unwrap_or_default();
            let content = Data::from(content).slice(pages.offset - rows_range.offset, pages.len);
            self.edit_data(&UnitSpan { within: pages, ..*span }, content, edits);
        }
        let units: Vec<Bytes> = units.into_iter().flatten().collect();
        self.edit_redundancy(group, rows, &units, range, edits)
    }

    /// Writes whole pages of one data unit. Where that reads less, redundancy is computed from the former page and the
    /// former redundancy instead of all data units. Returns whether it was. Requires that redundancy agrees with the
    /// data there and can be read.
    async fn update_unit(self: &Arc<Self>, span: &UnitSpan, data: &Data, edits: &mut Edits) -> Result<bool> {
        let (k, m) = (self.geometry.data_units(), self.geometry.redundancy_units());
        let group_range = self.geometry.group_range(span.group);
        let is_whole = span.within.aligned_to(PAGE_BYTES) == span.within;
        // One or two pages only: more would take one request for each digest.
        let is_small = span.within.len <= 2 * PAGE_BYTES;
        if k <= m + 2
            || !is_whole
            || !is_small
            || !self.members.all_ready()
            || !self.members.is_settled(self.regions_of(group_range))
        {
            return Ok(false);
        }
        if !self.bad_pages(span.group, 0..1, ByteRange::default()).is_empty() {
            return Ok(false);
        }
        let rows = rows_of(&[*span]);
        let parts = std::iter::once(Part::Data(span.index)).chain((0..m).map(Part::Redundancy));
        let answers = join_all(parts.map(|part| self.ask(span.group, &rows, part, false))).await;
        let Ok(mut units) = answers
            .into_iter()
            .map(|(_, answer)| answer.map(Data::into_bytes))
            .collect::<std::result::Result<Vec<_>, _>>()
        else {
            return Ok(false);
        };
        let old = units.remove(0);
        let new = data.clone().into_bytes();
        self.digest_cells.remove(span.group..span.group + 1);
        for (index, unit) in code::update(&units, span.index, &old, &new)?.into_iter().enumerate() {
            let member = self.geometry.redundancy_member(span.group, index);
            let offset = self.geometry.redundancy_offset(span.group, index) + rows.start * PAGE_BYTES;
            edits.push(member, offset, unit.into());
            for (row, digest) in rows.clone().zip(code::digests_of_unit(&new)) {
                let cell = self.geometry.digest_range(span.group, index, row..row + 1);
                edits.push(member, cell.offset + span.index as u64 * DIGEST_BYTES, digest.into());
            }
        }
        self.edit_data(span, data.clone(), edits);
        Ok(true)
    }

    /// Adds the redundancy and the digests of rows of a group. Bad pages within `healed`, a range of the array, become
    /// good.
    pub(crate) fn edit_redundancy(
        &self,
        group: u64,
        rows: Range<u64>,
        units: &[Bytes],
        healed: ByteRange,
        edits: &mut Edits,
    ) -> Result<()> {
        let redundancy = code::encode(units, self.geometry.redundancy_units())?;
        self.digest_cells.remove(group..group + 1);
        let digests = match self.geometry.has_digests() {
            true => code::digests(units, &self.bad_pages(group, rows.clone(), healed)),
            false => Bytes::new(),
        };
        for (index, unit) in redundancy.into_iter().enumerate() {
            let member = self.geometry.redundancy_member(group, index);
            let offset = self.geometry.redundancy_offset(group, index) + rows.start * PAGE_BYTES;
            edits.push(member, offset, unit.into());
            if self.geometry.has_digests() {
                let cell = self.geometry.digest_range(group, index, rows.clone());
                edits.push(member, cell.offset, digests.clone().into());
            }
        }
        Ok(())
    }

    /// Sends edits of these regions to the members that take part. Members that miss them are recorded as stale before
    /// this returns.
    pub(crate) async fn send(self: &Arc<Self>, edits: Edits, regions: Range<u64>, fua: bool) -> Result<()> {
        let members = edits.0.into_iter().map(|(index, edits)| {
            let (member, start) = self.places[index];
            let edits: Vec<_> = edits.into_iter().map(|(offset, data)| (offset + start, data)).collect();
            self.send_to(member, edits, regions.clone(), fua)
        });
        // Waits for all: a write still in flight must not take effect after the group is unlocked.
        join_all(members).await.into_iter().collect()
    }

    async fn send_to(
        self: &Arc<Self>,
        member: usize,
        edits: Vec<(u64, Data)>,
        regions: Range<u64>,
        fua: bool,
    ) -> Result<()> {
        let own = self.insist(member, regions, || self.members.write(member, &edits, fua));
        let (own, second) = futures::join!(own, self.members.write_second(member, &edits, fua));
        own.and(second)
    }

    /// Sends edits only to the nodes that members move to.
    pub(crate) async fn send_incoming(self: &Arc<Self>, edits: Edits) -> Result<()> {
        let members = edits.0.into_iter().map(|(index, edits)| async move {
            let (member, start) = self.places[index];
            let edits: Vec<_> = edits.into_iter().map(|(offset, data)| (offset + start, data)).collect();
            self.members.write_second(member, &edits, false).await
        });
        join_all(members).await.into_iter().collect()
    }

    /// Flushes the members that take part.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<()> {
        let one = |member: usize| self.insist(member, 0..0, move || self.members.flush(member));
        join_all(self.places.iter().map(|(member, _)| one(*member))).await.into_iter().collect()
    }

    /// Runs an operation on a member that takes part, and returns once it is done there, or the member is recorded as
    /// stale. It is repeated for a while where the drive cannot do without the member.
    async fn insist<F>(self: &Arc<Self>, member: usize, regions: Range<u64>, operation: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = std::result::Result<(), Failure>>,
    {
        // Measured from the first failure, not from the beginning: if this process was stopped meanwhile, every member
        // seems silent.
        let mut failing_since = None;
        loop {
            if !self.members.is_written(member) {
                // Another write may have found the member lost without having recorded that yet.
                if self.members.stale_recorded(member).await? {
                    return Ok(());
                }
                continue;
            }
            let failure = match operation().await {
                Ok(()) => return Ok(()),
                Err(Failure::Fatal(error)) => return Err(error),
                Err(Failure::Damaged(error)) => {
                    // The member cannot write a part of a damaged page. Recomputing redundancy writes whole pages.
                    self.members.damaged(regions.clone(), (member, 0, 0));
                    error
                }
                Err(Failure::Lost(error) | Failure::Late(error)) => error,
            };
            let failing_since = *failing_since.get_or_insert_with(Instant::now);
            match self.members.missed(member, &failure).await? {
                Ok(()) => return Ok(()),
                Err(_) if failing_since.elapsed() >= INDISPENSABLE_PATIENCE => return Err(failure),
                Err(_) => sleep(INDISPENSABLE_PAUSE).await,
            }
        }
    }
}
