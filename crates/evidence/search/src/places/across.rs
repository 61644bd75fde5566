//! Hits across the fragments of a file, which lie apart in the source.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cheetah_device::around::is_local;
use cheetah_device::{ByteRange, DynDevice, Error as DeviceError};
use cheetah_error::{Error, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::Places;
use super::chain::{Chain, Group, chains_of};
use crate::hit::Hit;
use crate::seam::{Overlap, Window};
use crate::search::{PatternKind, Search};

/// The number of reads in flight for each file: fragments are small, and may be far away.
const READ_AHEAD: usize = 16;
/// The most memory that the hits of a file take: several are searched side by side.
const HITS_BYTES_MAX: usize = 64 << 20;

/// The joints of a file: where its fragments meet.
#[derive(Debug)]
pub struct FileJoints {
    /// The number of the file.
    pub file: usize,
    /// Fragments that are not looked at: the file has too many.
    pub left_out: u64,
    chains: Vec<(Chain, Vec<Group>)>,
}

/// A hit across fragments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcrossHit {
    /// The hit; its offset is that of its first byte in the source.
    pub hit: Hit,
    /// The offset of its first byte in the file.
    pub file_offset: u64,
    /// The ranges in the source that it covers, in the order of the file.
    pub fragments: Vec<ByteRange>,
}

/// What was found across the fragments of a file.
#[derive(Debug, Default)]
pub struct AcrossFound {
    /// The hits, in the order of the file.
    pub hits: Vec<AcrossHit>,
    /// The number of joints that were searched.
    pub searched: u64,
    /// The number of joints beside which something cannot be read.
    pub unreadable: u64,
    /// The number of joints that were not searched, because the hits before took too much memory.
    pub left_out: u64,
}

impl Places {
    /// The joints of a file, for a search with this overlap; `None` if it lies in one piece.
    pub fn joints_of(&self, file: usize, overlap: Overlap) -> Option<FileJoints> {
        let (chains, left_out) = chains_of(self, file);
        let with_groups = |chain: Chain| {
            let groups = chain.groups(overlap);
            (chain, groups)
        };
        let chains: Vec<_> = chains.into_iter().map(with_groups).collect();
        (left_out > 0 || !chains.is_empty()).then_some(FileJoints { file, left_out, chains })
    }
}

impl FileJoints {
    /// The number of joints.
    pub fn joints(&self) -> u64 {
        self.groups().map(|group| group.joints).sum()
    }

    /// The number of bytes that are read to search them.
    pub fn bytes(&self) -> u64 {
        self.groups().map(|group| group.window.len).sum()
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        self.chains.iter().flat_map(|(_, groups)| groups)
    }

    /// Searches them. A hit that a search of the bytes in their order finds at the same place is left out.
    ///
    /// # Errors
    ///
    /// If the device fails as a whole, or if there are too many hits at one place.
    pub async fn search(self, device: &DynDevice, search: &Arc<Search>) -> Result<AcrossFound> {
        let (mut found, mut room_bytes) = (AcrossFound::default(), 0usize);
        for (chain, groups) in self.chains {
            let chain = Arc::new(chain);
            for group in groups {
                if room_bytes >= HITS_BYTES_MAX {
                    found.left_out += group.joints;
                    continue;
                }
                let before = found.hits.len();
                search_group(&chain, group, (device, search), &mut found).await?;
                let added = found.hits.iter().skip(before).map(|hit| hit.hit.room_bytes());
                room_bytes = added.fold(room_bytes, usize::saturating_add);
            }
        }
        Ok(found)
    }
}

/// Searches a group of joints; where it cannot be read, each of them alone.
async fn search_group(
    chain: &Arc<Chain>,
    group: Group,
    (device, search): (&DynDevice, &Arc<Search>),
    found: &mut AcrossFound,
) -> Result<()> {
    if let Some(bytes) = read(chain, group.window, device).await? {
        found.searched += group.joints;
        return scan(chain, (group, bytes), (device, search), found).await;
    }
    let overlap = search.overlap();
    for alone in alone(chain, group, overlap) {
        match read(chain, alone.window, device).await? {
            Some(bytes) => {
                found.searched += 1;
                scan(chain, (alone, bytes), (device, search), found).await?;
            }
            None => found.unreadable += 1,
        }
    }
    Ok(())
}

/// The joints of a group, each as one.
fn alone(chain: &Chain, group: Group, overlap: Overlap) -> Vec<Group> {
    let whole = chain.range();
    let mut groups = Vec::new();
    let mut before = group.own.offset;
    let first = chain.fragments.partition_point(|fragment| fragment.file_offset <= group.own.offset);
    let joints = chain.fragments.get(first..).unwrap_or_default().iter().map(|fragment| fragment.file_offset);
    for joint in joints.take_while(|joint| *joint <= group.own.end()) {
        let own = ByteRange::between(joint.saturating_sub(overlap.after as u64).max(before), joint);
        before = joint;
        let begin = own.offset.saturating_sub(overlap.before as u64).max(whole.offset);
        let end = joint.saturating_add(overlap.after as u64).min(whole.end());
        groups.push(Group { window: ByteRange::between(begin, end), own, joints: 1 });
    }
    groups
}

/// Reads bytes of the file; `None` if some cannot be read.
async fn read(chain: &Chain, bytes: ByteRange, device: &DynDevice) -> Result<Option<Bytes>> {
    let device = device.clone();
    let each = move |range: ByteRange| {
        let device = device.clone();
        async move { device.read(range).await }
    };
    let mut reads = stream::iter(chain.places(bytes)).map(each).buffered(READ_AHEAD);
    let mut all = BytesMut::new();
    loop {
        match reads.try_next().await {
            Ok(Some(data)) => data.append_to(&mut all),
            Ok(None) => return Ok(Some(all.freeze())),
            Err(error) => return unread(error),
        }
    }
}

fn unread(error: DeviceError) -> Result<Option<Bytes>> {
    if is_local(&error) { Ok(None) } else { Err(Error::device("reading the fragments of a file")(error)) }
}

/// Scans a group, and keeps the hits across its joints.
async fn scan(
    chain: &Arc<Chain>,
    (group, bytes): (Group, Bytes),
    (device, search): (&DynDevice, &Arc<Search>),
    found: &mut AcrossFound,
) -> Result<()> {
    let window = Window { offset: group.window.offset, bytes, own: group.own };
    let (of, crossing) = (search.clone(), chain.clone());
    let is_wanted = move |hit: &Hit| is_result(&of, hit) && crossing.crosses(ByteRange::new(hit.offset, hit.len()));
    let hits = scan_window(search, window, is_wanted).await?;
    for hit in hits {
        let fragments = chain.places(ByteRange::new(hit.offset, hit.len()));
        let Some(first) = fragments.first().copied() else { continue };
        if !is_found_there(device, search, &hit, first.offset).await? {
            let file_offset = hit.offset;
            found.hits.push(AcrossHit { hit: Hit { offset: first.offset, ..hit }, file_offset, fragments });
        }
    }
    Ok(())
}

/// Whether a hit is a result of a search, and not the beginning of compressed data, a block or an atom, which are looked at elsewhere.
fn is_result(search: &Search, hit: &Hit) -> bool {
    let kind = search.patterns().get(hit.pattern).map(|pattern| pattern.kind);
    !matches!(kind, None | Some(PatternKind::Compressed | PatternKind::Block | PatternKind::Atom | PatternKind::Rule))
}

/// Whether a search of the bytes in their order finds the same hit at this offset: the same bytes follow each other there, and those
/// beside them, which an expression may look at, let them be one.
async fn is_found_there(device: &DynDevice, search: &Arc<Search>, hit: &Hit, offset: u64) -> Result<bool> {
    let (range, size) = (ByteRange::new(offset, hit.len()), device.geometry().size);
    if !range.fits(size) {
        return Ok(false);
    }
    let there = match device.read(range).await {
        Ok(data) => data.into_bytes(),
        Err(error) => return unread(error).map(|_| false),
    };
    if there != hit.bytes {
        return Ok(false);
    }
    let overlap = search.overlap();
    let around = ByteRange::between(
        offset.saturating_sub(overlap.before as u64),
        range.end().saturating_add(overlap.after as u64).min(size),
    );
    let bytes = match device.read(around).await {
        Ok(data) => data.into_bytes(),
        // Whether the search finds it is in doubt. Two hits in place of one lose nothing.
        Err(error) => return unread(error).map(|_| false),
    };
    let window = Window { offset: around.offset, bytes, own: ByteRange::new(offset, 1) };
    let hits = scan_window(search, window, |_| true).await?;
    let same = |other: &Hit| (other.pattern, other.encoding, other.len()) == (hit.pattern, hit.encoding, hit.len());
    Ok(hits.iter().any(same))
}

/// Scans a window beside the runtime, and keeps the hits that `is_wanted`.
async fn scan_window(
    search: &Arc<Search>,
    window: Window,
    is_wanted: impl Fn(&Hit) -> bool + Send + 'static,
) -> Result<Vec<Hit>> {
    let scanner = search.clone();
    let scanning = tokio::task::spawn_blocking(move || -> Result<Vec<Hit>> {
        let mut hits = scanner.scan(&window)?;
        hits.retain(is_wanted);
        Ok(hits)
    });
    scanning.await.map_err(|error| Error::failed(format!("searching fragments: {error}")))?
}
