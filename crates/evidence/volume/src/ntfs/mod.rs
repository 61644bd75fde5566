//! NTFS: all metadata starts from the MFT, a table of records, which is itself a file and may be fragmented.
//!
//! The first record locates the others. Three steps therefore find everything: the start of the MFT, then all of it at
//! once, then the directories' indexes in the order of a listing. Nothing waits for what it does not need: the second
//! step begins with the first few records, and the third, for some MiB, with the directories that are known. Extension
//! records name their base record, so attribute lists are fetched for tools but not followed.
//!
//! After Carrier, *File System Forensic Analysis*, chapters 11 to 13, the Linux-NTFS project's documentation, and the
//! observed reads of The Sleuth Kit 4.11.

mod boot;
mod catalogue;
mod record;
mod runs;
mod table;
#[cfg(test)]
pub(crate) mod tests;

use cheetah_device::ByteRange;

use self::boot::Boot;
use self::catalogue::Catalogue;
use self::record::{Attribute, FileName, NonResident, Record, kind};
use self::table::Table;
use crate::survey::pending_reads::part_of;
use crate::survey::{RequestFilter, SurveyPlan, Surveyor, WINDOW_BYTES};

/// The number of bytes of the MFT that are read first, as tools do.
const HEAD_BYTES: u64 = 64 << 10;
/// The length of the first of these reads. It has the records of the files that tools need to open the file system, if
/// records have 1 KiB, and a connection that was used before delivers it in one round trip.
const FIRST_BYTES: u64 = 16 << 10;
/// The maximum size read of an MFT, about 16 million records.
const MFT_BYTES_MAX: u64 = 16 << 30;
/// The number of bytes fetched of a journal.
const JOURNAL_HEAD_BYTES: u64 = 64 << 10;
/// The maximum number of bytes fetched of a system file of fixed size; none is that large.
const SYSTEM_FILE_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of bytes that The Sleuth Kit loads of `$Secure`.
const SECURE_BYTES_MAX: u64 = 64_000_000;
/// The number of bytes of directories that are fetched before all of the MFT has arrived, in its order: what a fast link
/// carries while the last of the MFT crosses it.
const EARLY_BYTES_MAX: u64 = 4 << 20;
/// The maximum number of ranges deferred.
const LATER_MAX: usize = 4096;

/// The records of system files.
mod system {
    pub const MFT: u64 = 0;
    pub const MIRROR: u64 = 1;
    pub const LOG: u64 = 2;
    pub const ATTRIBUTE_DEFINITIONS: u64 = 4;
    pub const BITMAP: u64 = 6;
    pub const SECURE: u64 = 9;
    pub const UPPER_CASE: u64 = 10;
}

/// Surveys an NTFS volume.
#[derive(Debug)]
pub struct Ntfs {
    boot: Boot,
    requests: RequestFilter,
    /// The MFT's start, until its first record has arrived.
    head: Option<MftStart>,
    table: Table,
    mft_bytes: u64,
    /// Unrequested parts of the MFT: offset in it, and range on the volume.
    found: Vec<(u64, ByteRange)>,
    catalogue: Option<Catalogue>,
    has_journal: bool,
    /// The bytes of directories that may still be fetched early.
    early_bytes: u64,
    /// Deferred ranges.
    later: Vec<ByteRange>,
}

/// The start of the MFT, as far as it has arrived.
#[derive(Debug)]
struct MftStart {
    range: ByteRange,
    bytes: Vec<u8>,
    arrived: Vec<ByteRange>,
    /// The bytes that the first record lacks.
    missing: u64,
}

/// Returns a surveyor, if the volume starts like NTFS.
pub(crate) fn recognise(start: &[u8]) -> Option<Box<dyn Surveyor>> {
    Some(Box::new(Ntfs::new(Boot::parse(start)?)))
}

impl Ntfs {
    fn new(boot: Boot) -> Self {
        Self {
            boot,
            requests: RequestFilter::new(boot.volume_bytes),
            head: None,
            table: Table::new(boot.record_bytes),
            mft_bytes: 0,
            found: Vec::new(),
            catalogue: Some(Catalogue::default()),
            has_journal: false,
            early_bytes: EARLY_BYTES_MAX,
            later: Vec::new(),
        }
    }

    /// Handles the first record, which locates the others.
    fn open_mft(&mut self, head: MftStart, plan: &mut SurveyPlan) {
        let Some(first) = head.bytes.get(..self.boot.record_bytes as usize) else { return };
        let mut first = first.to_vec();
        let Some(record) = Record::parse(&mut first) else {
            tracing::debug!("NTFS: the first record of the MFT is damaged");
            return;
        };
        let content = record.attributes().filter(|attribute| is_content(*attribute)).find_map(Attribute::non_resident);
        let Some(content) = content.filter(|content| content.first == 0) else { return };
        self.mft_bytes = content.size.min(MFT_BYTES_MAX);
        self.find_mft(content);
        self.map_found();
        // Tools need these records to open the file system, so they precede the rest of the MFT.
        for &range in &head.arrived {
            self.look(range, part_of(&head.bytes, head.range, range), plan);
        }
    }

    /// Adds runs of the MFT.
    fn find_mft(&mut self, content: NonResident<'_>) {
        let mut at = content.first.saturating_mul(self.boot.cluster_bytes);
        for run in content.runs() {
            let left = self.mft_bytes.saturating_sub(at);
            if let Some(range) = run.start.and_then(|start| self.boot.clusters(start, run.clusters))
                && left > 0
            {
                self.found.push((at, ByteRange::new(range.offset, range.len.min(left))));
            }
            at = at.saturating_add(run.clusters.saturating_mul(self.boot.cluster_bytes));
        }
    }

    fn map_found(&mut self) {
        for &(at, range) in &self.found {
            self.table.add(at, range);
        }
    }

    /// Requests the known parts of the MFT.
    fn read_found(&mut self, plan: &mut SurveyPlan) {
        self.map_found();
        for (_, range) in std::mem::take(&mut self.found) {
            self.requests.read(plan, range);
            self.requests.fetch(plan, ByteRange::new(range.end(), WINDOW_BYTES));
        }
    }

    /// Parses the records in `bytes`, which were read at `range`.
    fn look(&mut self, range: ByteRange, bytes: &[u8], plan: &mut SurveyPlan) {
        let mut table = std::mem::take(&mut self.table);
        table.records(range, bytes, |number, record| self.record(number, record, plan));
        self.table = table;
        self.read_found(plan);
    }

    fn record(&mut self, number: u64, bytes: &mut [u8], plan: &mut SurveyPlan) {
        let Some(record) = Record::parse(bytes) else { return };
        let id = if record.is_extension { record.base } else { number };
        let mut is_named = false;
        for attribute in record.attributes() {
            match attribute.kind() {
                kind::FILE_NAME if !is_named => {
                    let name = attribute.resident().and_then(FileName::parse).filter(|name| !name.is_short);
                    if let (Some(name), Some(catalogue)) = (name, &mut self.catalogue) {
                        catalogue.name(id, name, record.is_directory);
                        is_named = true;
                    }
                }
                kind::DATA if id == system::MFT && is_content(attribute) => {
                    if let Some(content) = attribute.non_resident().filter(|content| content.first > 0) {
                        self.find_mft(content);
                    }
                }
                kind::DATA => self.content(id, attribute, plan),
                kind::INDEX_ALLOCATION => self.index(id, attribute, plan),
                kind::ATTRIBUTE_LIST => self.fetch_soon(attribute, SYSTEM_FILE_BYTES_MAX, plan),
                _ => {}
            }
        }
    }

    fn content(&mut self, id: u64, attribute: Attribute<'_>, plan: &mut SurveyPlan) {
        match id {
            system::SECURE => self.fetch_soon(attribute, SECURE_BYTES_MAX, plan),
            system::BITMAP => {
                // Tools read one cluster of it on opening, and all of it to find unallocated space.
                self.fetch_soon(attribute, self.boot.cluster_bytes, plan);
                let room = LATER_MAX.saturating_sub(self.later.len());
                self.later.extend(ranges(attribute, self.boot).take(room));
            }
            system::LOG => self.fetch_start(attribute, JOURNAL_HEAD_BYTES, plan),
            system::MIRROR | system::ATTRIBUTE_DEFINITIONS | system::UPPER_CASE => {
                self.fetch_start(attribute, SYSTEM_FILE_BYTES_MAX, plan);
            }
            _ if attribute.name() == b"$\0J\0" && !self.has_journal => {
                self.has_journal = ranges(attribute, self.boot).next().is_some();
                self.fetch_start(attribute, JOURNAL_HEAD_BYTES, plan);
            }
            _ if is_content(attribute) => {
                if let (Some(content), Some(catalogue)) = (attribute.non_resident(), &mut self.catalogue) {
                    catalogue.content(id, content, &self.boot);
                }
            }
            _ => {}
        }
    }

    fn index(&mut self, id: u64, attribute: Attribute<'_>, plan: &mut SurveyPlan) {
        let name = attribute.name();
        if id == system::SECURE && name == b"$\0S\0I\0I\0" {
            return self.fetch_soon(attribute, SECURE_BYTES_MAX, plan);
        }
        if name != b"$\0I\x003\x000\0" {
            return;
        }
        let Some(index) = attribute.non_resident() else { return };
        let is_kept = self.catalogue.as_mut().is_some_and(|catalogue| catalogue.index(id, index, &self.boot));
        if !is_kept {
            return self.fetch_soon(attribute, SYSTEM_FILE_BYTES_MAX, plan);
        }
        for range in first_bytes(ranges(attribute, self.boot), self.early_bytes) {
            self.early_bytes = self.early_bytes.saturating_sub(range.len.max(WINDOW_BYTES));
            self.requests.fetch_windows(plan, range);
        }
    }

    /// Fetches up to `bytes` of an attribute's content, with The Sleuth Kit's read windows, before the rest of the MFT:
    /// tools need them first.
    fn fetch_soon(&mut self, attribute: Attribute<'_>, bytes_max: u64, plan: &mut SurveyPlan) {
        for range in first_bytes(ranges(attribute, self.boot), bytes_max) {
            self.requests.fetch_windows_soon(plan, range);
        }
    }

    /// Fetches up to `bytes` of an attribute's content.
    fn fetch_start(&mut self, attribute: Attribute<'_>, bytes_max: u64, plan: &mut SurveyPlan) {
        for range in first_bytes(ranges(attribute, self.boot), bytes_max) {
            self.requests.fetch(plan, range);
        }
    }
}

impl Surveyor for Ntfs {
    fn name(&self) -> &'static str {
        "NTFS"
    }

    fn start(&mut self, plan: &mut SurveyPlan) {
        let end = self.boot.mft.saturating_add(HEAD_BYTES).min(self.boot.volume_bytes);
        let range = ByteRange::between(self.boot.mft, end);
        let (bytes, arrived) = (vec![0; range.len as usize], Vec::new());
        self.head = Some(MftStart { range, bytes, arrived, missing: self.boot.record_bytes });
        let first = FIRST_BYTES.max(self.boot.record_bytes);
        self.requests.read(plan, ByteRange::new(range.offset, first));
        self.requests.read(plan, range);
    }

    fn arrived(&mut self, range: ByteRange, bytes: &[u8], plan: &mut SurveyPlan) {
        let Some(mut head) = self.head.take() else { return self.look(range, bytes, plan) };
        head.fill(range, bytes, self.boot.record_bytes);
        if head.missing == 0 {
            self.open_mft(head, plan);
        } else {
            self.head = Some(head);
        }
    }

    fn failed(&mut self, range: ByteRange, _: &mut SurveyPlan) {
        tracing::debug!("NTFS: {range} of the MFT cannot be read; its records are left out");
    }

    fn idle(&mut self, plan: &mut SurveyPlan) {
        let Some(catalogue) = self.catalogue.take() else { return };
        let listing = catalogue.list();
        for range in listing.indexes {
            self.requests.fetch_windows(plan, range);
        }
        for range in std::mem::take(&mut self.later) {
            self.requests.fetch(plan, range);
        }
        plan.files.extend(listing.files);
    }
}

impl MftStart {
    /// Adds bytes that arrived; records have `record_bytes`.
    fn fill(&mut self, range: ByteRange, bytes: &[u8], record_bytes: u64) {
        let at = range.offset.checked_sub(self.range.offset).and_then(|at| usize::try_from(at).ok());
        let Some(at) = at else { return };
        if let Some(to) = self.bytes.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            to.copy_from_slice(bytes);
            self.arrived.push(range);
            let of_first = ByteRange::new(self.range.offset, record_bytes).intersection(range);
            self.missing = self.missing.saturating_sub(of_first.map_or(0, |part| part.len));
        }
    }
}

/// Whether the attribute is a file's main content rather than an alternate stream.
fn is_content(attribute: Attribute<'_>) -> bool {
    attribute.kind() == kind::DATA && attribute.name().is_empty()
}

/// The ranges of an attribute's content on the volume; none if resident.
fn ranges(attribute: Attribute<'_>, boot: Boot) -> impl Iterator<Item = ByteRange> {
    let runs = attribute.non_resident().into_iter().flat_map(NonResident::runs);
    runs.filter_map(move |run| boot.clusters(run.start?, run.clusters))
}

/// The leading `bytes` of `ranges`.
fn first_bytes(ranges: impl Iterator<Item = ByteRange>, bytes_max: u64) -> impl Iterator<Item = ByteRange> {
    ranges.scan(bytes_max, |left, range| {
        let len = range.len.min(*left);
        *left -= len;
        (len > 0).then(|| ByteRange::new(range.offset, len))
    })
}
