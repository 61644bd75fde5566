//! Surveys of hand-made volumes, with structures that mkfs programs seldom write.

use cheetah_device::ByteRange;

use super::boot;
use super::runs::Run;
use super::runs::tests::encode;
use crate::offline::{Surveyed, survey};
use crate::survey::{FileRuns, WINDOW_BYTES};

pub(crate) const CLUSTER: u64 = 4096;
const RECORD: usize = 1024;
const SIZE: u64 = 4 << 20;

/// A volume with an MFT in the clusters that a test chooses.
pub(crate) struct Volume {
    pub(crate) bytes: Vec<u8>,
    /// The MFT's clusters, in order.
    mft: Vec<u64>,
}

impl Volume {
    fn new(mft: impl IntoIterator<Item = u64>) -> Self {
        Self::of_size(SIZE, mft)
    }

    pub(crate) fn of_size(size: u64, mft: impl IntoIterator<Item = u64>) -> Self {
        let mft: Vec<_> = mft.into_iter().collect();
        let mut bytes = boot::tests::sector(size, mft[0] * CLUSTER);
        bytes.resize(size as usize, 0);
        Self { bytes, mft }
    }

    /// Writes record `number`, which extends `base`, with these attributes.
    pub(crate) fn put(&mut self, number: u64, base: Option<u64>, is_directory: bool, attributes: &[Vec<u8>]) {
        let mut record = vec![0; RECORD];
        record[..4].copy_from_slice(b"FILE");
        record[4..8].copy_from_slice(&[48, 0, 3, 0]);
        record[20] = 56;
        record[22] = 1 | u8::from(is_directory) << 1;
        record[32..40].copy_from_slice(&base.map_or(0, |base| base | 1 << 48).to_le_bytes());
        let attributes = [attributes.concat(), vec![0xff; 4]].concat();
        record[56..56 + attributes.len()].copy_from_slice(&attributes);
        // The update sequence: a number replaces the last two bytes of each sector, which are saved.
        record[48..50].copy_from_slice(b"no");
        for end in [510, 1022] {
            record.copy_within(end..end + 2, 50 + (end / 512) * 2);
            record[end..end + 2].copy_from_slice(b"no");
        }
        let at = number as usize * RECORD;
        let at = self.mft[at / CLUSTER as usize] as usize * CLUSTER as usize + at % CLUSTER as usize;
        self.bytes[at..at + RECORD].copy_from_slice(&record);
    }

    fn survey(&self) -> Surveyed {
        let surveyed = survey(&self.bytes, 10_000).unwrap();
        assert!(surveyed.ended && surveyed.outside.is_empty());
        surveyed
    }
}

/// An attribute's header, and the bytes after it.
fn attribute(kind: u32, name: &str, is_resident: bool, header: &[u8], behind: &[u8]) -> Vec<u8> {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let start = 16 + header.len();
    let len = (start + name.len() + behind.len()).next_multiple_of(8);
    let mut bytes = [&kind.to_le_bytes()[..], &(len as u32).to_le_bytes()].concat();
    bytes.extend([u8::from(!is_resident), (name.len() / 2) as u8, start as u8, 0, 0, 0, 0, 0]);
    bytes.extend([header, &name, behind].concat());
    bytes.resize(len, 0);
    bytes
}

pub(crate) fn file_name(parent: u64, name: &str, namespace: u8) -> Vec<u8> {
    let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut content = parent.to_le_bytes().to_vec();
    content.resize(64, 0);
    content.extend([(units.len() / 2) as u8, namespace]);
    content.extend(units);
    let header = [&(content.len() as u32).to_le_bytes()[..], &[24, 0, 0, 0]].concat();
    attribute(0x30, "", true, &header, &content)
}

/// A non-resident attribute with runs of clusters, from its cluster `first` on.
pub(crate) fn runs(kind: u32, name: &str, first: u64, size: u64, runs: &[(Option<u64>, u64)]) -> Vec<u8> {
    let runs: Vec<_> = runs.iter().map(|&(start, clusters)| Run { start, clusters }).collect();
    let mut header = [first, 0].map(u64::to_le_bytes).concat();
    header.extend([64 + 2 * name.len() as u64].map(u64::to_le_bytes).concat());
    header.extend([size.next_multiple_of(CLUSTER), size, size].map(u64::to_le_bytes).concat());
    attribute(kind, name, false, &header, &encode(&runs, 1))
}

fn clusters(start: u64, count: u64) -> ByteRange {
    ByteRange::new(start * CLUSTER, count * CLUSTER)
}

fn file(id: u64, directory: u64, place: u32, runs: &[ByteRange]) -> FileRuns {
    FileRuns { id, directory, place, runs: runs.iter().copied().collect() }
}

#[test]
fn a_fragmented_mft_is_followed_from_piece_to_piece() {
    // Four records to a cluster. Records 0 to 31 at 100, 32 to 39 at 300, 40 to 47 at 200: each piece locates the next.
    let mut volume = Volume::new((100..108).chain([300, 301, 200, 201]));
    let size = 12 * CLUSTER;
    volume.put(0, None, false, &[runs(0x80, "", 0, size, &[(Some(100), 8)])]);
    volume.put(24, Some(0), false, &[runs(0x80, "", 8, 0, &[(Some(300), 2)])]);
    volume.put(33, Some(0), false, &[runs(0x80, "", 10, 0, &[(Some(200), 1), (Some(201), 1), (Some(500), 9)])]);
    volume.put(47, None, false, &[file_name(5, "last", 1), runs(0x80, "", 0, 9000, &[(Some(400), 3)])]);
    let surveyed = volume.survey();
    assert_eq!(surveyed.files, [file(47, 5, 0, &[ByteRange::new(400 * CLUSTER, 9000)])]);
    // The head, in two reads, which holds the first piece; then a piece each.
    assert_eq!(surveyed.rounds, 3);
    assert_eq!(surveyed.reads[2..], [clusters(300, 2), clusters(200, 1), clusters(201, 1)]);
}

#[test]
fn a_piece_that_overlaps_another_is_ignored() {
    let mut volume = Volume::new(100..132);
    let records = [(Some(100), 32), (Some(100), 32), (Some(101), 1 << 40), (Some(90), 20)];
    volume.put(0, None, false, &[runs(0x80, "", 0, 1 << 40, &records)]);
    volume.put(30, None, false, &[file_name(5, "one", 1), runs(0x80, "", 0, 1, &[(Some(400), 1)])]);
    let surveyed = volume.survey();
    assert_eq!(surveyed.files, [file(30, 5, 0, &[ByteRange::new(400 * CLUSTER, 1)])]);
}

#[test]
fn content_and_index_are_joined_over_records_without_holes() {
    let mut volume = Volume::new(100..116);
    volume.put(0, None, false, &[runs(0x80, "", 0, 16 * CLUSTER, &[(Some(100), 16)])]);
    volume.put(5, None, true, &[file_name(5, ".", 3), runs(0xa0, "$I30", 0, CLUSTER, &[(Some(600), 1)])]);
    // Its extension comes first, and contains its names; the short name is ignored.
    let names = [file_name(31, "BETA~1", 2), file_name(31, "Beta", 1), file_name(5, "also", 1)];
    volume.put(29, Some(30), false, &[names.concat(), runs(0x80, "", 4, 0, &[(None, 3), (Some(210), 2)])]);
    volume.put(30, None, false, &[runs(0x80, "", 0, 8 * CLUSTER + 1, &[(Some(200), 2), (None, 1), (Some(220), 1)])]);
    volume.put(31, None, true, &[file_name(5, "directory", 1), runs(0xa0, "$I30", 0, 17 * CLUSTER, &[(Some(640), 1)])]);
    volume.put(32, Some(31), false, &[runs(0xa0, "$I30", 1, 0, &[(Some(700), 16)])]);
    volume.put(33, None, false, &[file_name(31, "alpha", 1), runs(0x80, "", 0, 5, &[(Some(230), 1)])]);
    let streams = [runs(0x80, "stream", 0, 5, &[(Some(240), 1)]), runs(0xa0, "$O", 0, 5, &[(Some(241), 1)])];
    volume.put(34, None, false, &[file_name(31, "other streams only", 1), streams.concat()]);
    let surveyed = volume.survey();
    let beta = [clusters(200, 2), clusters(220, 1), ByteRange::new(210 * CLUSTER, CLUSTER + 1)];
    let alpha = [ByteRange::new(230 * CLUSTER, 5)];
    let directories = [file(5, 5, 0, &[]), file(31, 5, 1, &[])];
    assert_eq!(surveyed.files[..2], directories);
    assert_eq!(surveyed.files[2..], [file(33, 31, 0, &alpha), file(30, 31, 1, &beta)]);
    // The index of the root, and then that of the directory in it, with the 64 KiB that tools read at least.
    let windows = [600, 640, 700].map(|start| ByteRange::new(start * CLUSTER, WINDOW_BYTES));
    let indexes: Vec<_> = surveyed.fetches.iter().filter(|range| windows.contains(range)).copied().collect();
    assert_eq!(indexes, windows, "{:?}", surveyed.fetches);
}

#[test]
fn system_files_are_fetched_before_the_rest_of_the_mft() {
    let mut volume = Volume::new(100..164);
    volume.put(0, None, false, &[runs(0x80, "", 0, 64 * CLUSTER, &[(Some(100), 64)])]);
    volume.put(6, None, false, &[runs(0x80, "", 0, 3 * CLUSTER, &[(Some(300), 3)])]);
    let secure = [runs(0x80, "$SDS", 0, CLUSTER, &[(Some(400), 1)]), runs(0xa0, "$SII", 0, CLUSTER, &[(Some(520), 1)])];
    volume.put(9, None, false, &[secure.concat(), runs(0xa0, "$SDH", 0, CLUSTER, &[(Some(600), 1)])]);
    let surveyed = volume.survey();
    let window = |start| ByteRange::new(start * CLUSTER, WINDOW_BYTES);
    let head = [clusters(100, 4), clusters(104, 12)];
    let system_files = [window(300), window(400), window(520)];
    assert_eq!(surveyed.reads, [&head[..], &system_files, &[clusters(116, 48)]].concat());
    assert!(!surveyed.fetches.contains(&window(600)));
}

#[test]
fn journal_heads_and_the_whole_bitmap_are_fetched() {
    let mut volume = Volume::new(100..164);
    volume.put(0, None, false, &[runs(0x80, "", 0, 64 * CLUSTER, &[(Some(100), 64)])]);
    volume.put(2, None, false, &[runs(0x80, "", 0, 60 * CLUSTER, &[(Some(800), 60)])]);
    volume.put(6, None, false, &[runs(0x80, "", 0, 50 * CLUSTER, &[(Some(300), 20), (Some(900), 30)])]);
    // The beginning of this journal is a hole, as in a long-lived one.
    let changes = runs(0x80, "$J", 0, 160 * CLUSTER, &[(None, 100), (Some(700), 10), (Some(600), 50)]);
    volume.put(40, None, false, &[file_name(11, "$UsnJrnl", 3), changes]);
    let surveyed = volume.survey();
    let asked = |range: ByteRange| {
        let asked = |at| surveyed.asked().any(|asked| asked.intersection(ByteRange::new(at, 1)).is_some());
        (range.offset..range.end()).step_by(512).all(asked)
    };
    let journals = [clusters(800, 16), clusters(700, 10), clusters(600, 6)];
    assert!(journals.into_iter().chain([clusters(300, 20), clusters(900, 30)]).all(asked), "{surveyed:?}");
    assert!(!asked(clusters(816, 1)) && !asked(clusters(606, 1)), "{surveyed:?}");
}
