//! Partition tables: made by other tools, damaged, and malicious.

use std::io::Cursor;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};
use cheetah_error::next::Measure;
use cheetah_volume::partition::{
    BadCopy, Defect, Doubt, PartitionTables, Remark, SectorSize, read_partitions, read_tables,
};
use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::partition_types::LINUX_FS;
use proptest::prelude::*;

const SIZE: usize = 8 << 20;

/// The number and the place of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    number: u32,
    range: ByteRange,
}

/// The partitions in use, which reading the least and reading everything find alike.
fn partitions(device: &dyn Device) -> Vec<Place> {
    let place = |number, range| Place { number, range };
    let least = futures::executor::block_on(read_partitions(device, None));
    let least: Vec<_> = least.iter().map(|one| place(one.number, one.range)).collect();
    let all = futures::executor::block_on(read_tables(device, None)).partitions;
    assert_eq!(least, all.iter().map(|one| place(one.number, one.range)).collect::<Vec<_>>());
    least
}

fn partitions_of(bytes: &[u8]) -> Vec<Place> {
    partitions(&Memory::new(bytes.to_vec()))
}

fn tables_of(bytes: &[u8], sector_bytes: Option<u32>) -> PartitionTables {
    futures::executor::block_on(read_tables(&Memory::new(bytes.to_vec()), sector_bytes))
}

fn partition(number: u32, offset: u64, len: u64) -> Place {
    Place { number, range: ByteRange::new(offset, len) }
}

/// Writes a boot record to a sector: entries of a type, a first sector and a number of sectors.
fn put_record(bytes: &mut [u8], sector: u32, entries: &[(u8, u32, u32)]) {
    let record = &mut bytes[sector as usize * 512..][..512];
    for (entry, (kind, start, sectors)) in record[446..].chunks_exact_mut(16).zip(entries) {
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
}

/// An MBR with two primary partitions and an extended one that holds three logical ones.
fn with_logical() -> (Vec<u8>, Vec<Place>) {
    let mut bytes = vec![0; SIZE];
    put_record(&mut bytes, 0, &[(0x07, 2048, 1000), (0x05, 4096, 8000), (0, 0, 0), (0x83, 13_000, 100)]);
    // A partition's offset is relative to its own record, that of the next record to the start of the extended
    // partition.
    put_record(&mut bytes, 4096, &[(0x83, 104, 1000), (0x05, 1896, 1008)]);
    put_record(&mut bytes, 5992, &[(0x83, 8, 1000), (0x05, 4896, 1008)]);
    put_record(&mut bytes, 8992, &[(0x83, 8, 1000)]);
    let expected = [(1, 2048, 1000), (4, 13_000, 100), (5, 4200, 1000), (6, 6000, 1000), (7, 9000, 1000)];
    (bytes, expected.map(|(number, start, sectors)| partition(number, start * 512, sectors * 512)).to_vec())
}

/// A GPT with three partitions.
fn with_gpt(sector: LogicalBlockSize) -> (Vec<u8>, Vec<Place>) {
    let mut bytes = Cursor::new(vec![0; SIZE]);
    ProtectiveMBR::with_lb_size(1).overwrite_lba0(&mut bytes).unwrap();
    let config = GptConfig::default().writable(true).logical_block_size(sector);
    let mut disk = config.create_from_device(bytes, None).unwrap();
    for (name, size) in [("one", 1 << 20), ("two", 1 << 20), ("three", 3 << 20)] {
        disk.add_partition(name, size, LINUX_FS, 0, None).unwrap();
    }
    let expected = disk.partitions().iter().filter(|(_, found)| found.is_used()).map(|(number, found)| {
        partition(*number, found.bytes_start(sector).unwrap(), found.bytes_len(sector).unwrap())
    });
    let expected = expected.collect();
    (disk.write().unwrap().into_inner(), expected)
}

#[test]
fn logical_partitions_of_an_mbr_are_found() {
    let (bytes, expected) = with_logical();
    assert_eq!(partitions_of(&bytes), expected);
}

#[test]
fn a_gpt_is_read_with_small_and_large_sectors() {
    for sector in [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096] {
        let (bytes, expected) = with_gpt(sector);
        assert_eq!(expected.iter().map(|found| found.number).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(partitions_of(&bytes), expected);
    }
}

#[test]
fn the_backup_gpt_is_used_if_the_primary_is_damaged() {
    for sector in [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096] {
        let (intact, expected) = with_gpt(sector);
        let first = sector.as_usize();
        // In turn: the header's checksum, the entries' content, and a missing header.
        for damage in [first + 20..first + 21, 2 * first..2 * first + 300, first..2 * first] {
            let mut bytes = intact.clone();
            bytes[damage.clone()].iter_mut().for_each(|byte| *byte ^= 0x55);
            assert_eq!(partitions_of(&bytes), expected, "{damage:?}");
            let last = SIZE - first;
            bytes[last..].fill(0);
            assert_eq!(partitions_of(&bytes), [], "{damage:?} and the second gone");
        }
    }
}

#[test]
fn partitions_beyond_the_end_are_cut_or_left_out() {
    let (mut bytes, mut expected) = with_logical();
    // In the middle of the second logical partition.
    let end = expected[3].range.offset + 512;
    bytes.truncate(end as usize);
    expected.retain(|found| found.range.offset < end);
    expected.last_mut().unwrap().range.len = 512;
    assert_eq!(partitions_of(&bytes), expected);
}

#[test]
fn a_file_system_without_a_table_has_no_partitions() {
    let mut boot = vec![0; 1 << 20];
    boot[..11].copy_from_slice(b"\xeb\x52\x90NTFS    ");
    boot[430..500]
        .copy_from_slice(&b"BOOTMGR is missing\r\nPress Ctrl+Alt+Del to restart\r\n....................."[..70]);
    boot[510..512].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(partitions_of(&boot), []);
    for size in [0, 1, 511, 512, 4096, 5000] {
        assert_eq!(partitions_of(&vec![0; size]), []);
    }
}

#[test]
fn a_cyclic_chain_of_boot_records_ends() {
    let mut bytes = vec![0; 1 << 20];
    put_record(&mut bytes, 0, &[(5, 99, 500)]);
    // A partition of one sector, and a next record that refers to itself.
    put_record(&mut bytes, 99, &[(0x83, 1, 1), (5, 1, 500)]);
    put_record(&mut bytes, 100, &[(0x83, 1, 1), (5, 1, 500)]);
    let found = partitions_of(&bytes);
    assert!(found.len() <= 128, "{}", found.len());
    assert_eq!(found[0], partition(5, 512 * 100, 512));
}

#[test]
fn an_unreadable_table_gives_no_partitions() {
    struct Lost;
    impl Device for Lost {
        fn geometry(&self) -> Geometry {
            Geometry { size: 1 << 40, writable: false, block_preferred: 4096 }
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            Io::fail(Error::Lost { device: "node-a".into(), range, why: "gone".into() })
        }
    }
    assert_eq!(partitions(&Lost), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Reading any table ends, and every partition is within the device.
    #[test]
    fn any_partition_table_is_handled_without_panic(
        kind in 0usize..3, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        resealed in any::<bool>(), size in 0..SIZE,
    ) {
        let (mut bytes, table) = match kind {
            0 => (with_logical().0, 446..510),
            1 => (with_gpt(LogicalBlockSize::Lb512).0, 512..512 + 92 + 512),
            _ => (with_gpt(LogicalBlockSize::Lb4096).0, 4096..4096 + 92),
        };
        let header = table.start;
        for (at, value) in changes {
            bytes[table.start + at.index(table.len())] = value;
        }
        if resealed && kind > 0 {
            // A malicious table has the right checksums.
            bytes[header..header + 8].copy_from_slice(b"EFI PART");
            bytes[header + 12..header + 20].copy_from_slice(&[92, 0, 0, 0, 0, 0, 0, 0]);
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &bytes[header..header + 92]) as u32;
            bytes[header + 16..header + 20].copy_from_slice(&crc.to_le_bytes());
        }
        bytes.truncate(size.max(1 << 16));
        for found in partitions_of(&bytes) {
            prop_assert!(found.range.fits(bytes.len() as u64) && !found.range.is_empty());
        }
    }
}

/// Marks the start of a volume as one of a known format.
fn put_volume(bytes: &mut [u8], at: usize) {
    bytes[at..at + 4].copy_from_slice(b"XFSB");
}

fn starts(partitions: &[cheetah_volume::partition::Partition]) -> Vec<u64> {
    partitions.iter().map(|one| one.range.offset).collect()
}

fn said(tables: &PartitionTables) -> String {
    tables.remarks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Whether something is in doubt.
fn has(tables: &PartitionTables, doubt: &Doubt) -> bool {
    tables.remarks.iter().any(|remark| remark.doubt == *doubt)
}

/// Whether a table of this kind is named that is not in use.
fn names_unused(tables: &PartitionTables, kind: &str) -> bool {
    tables.remarks.iter().any(|remark| matches!(remark.doubt, Doubt::NotInUse { table, .. } if table == kind))
}

#[test]
fn an_mbr_counts_in_the_sectors_of_its_source() {
    let mut bytes = vec![0; SIZE];
    put_record(&mut bytes, 0, &[(0x83, 256, 512), (0x05, 1024, 512)]);
    // The record of the chain is in a sector of 4096 bytes, too.
    let mut record = vec![0; 512];
    put_record(&mut record, 0, &[(0x83, 16, 256)]);
    bytes[1024 * 4096..][..512].copy_from_slice(&record);
    let found = tables_of(&bytes, Some(4096));
    assert_eq!(starts(&found.partitions), [256 * 4096, 1040 * 4096]);
    assert_eq!(found.partitions[1].number, 5);
    assert_eq!(found.remarks, []);
    assert_eq!(starts(&tables_of(&bytes, Some(512)).partitions), [256 * 512]);
}

#[test]
fn known_formats_decide_where_the_size_of_a_sector_is_unknown() {
    let mut bytes = vec![0; SIZE];
    put_record(&mut bytes, 0, &[(0x83, 256, 512)]);
    let neither = tables_of(&bytes, None);
    assert_eq!(starts(&neither.partitions), [256 * 512]);
    assert!(
        neither.remarks.iter().any(|remark| remark.next == Some(Measure::GiveSectorSize.into())),
        "{}",
        said(&neither)
    );
    put_volume(&mut bytes, 256 * 4096);
    let by_formats = Doubt::ByFormats { used: 4096, other: 512, formats: 1, other_formats: 0 };
    for (sector_bytes, doubt) in [(None, by_formats), (Some(512), Doubt::MbrUnlikeSource { recorded: 512, used: 4096 })]
    {
        let large = tables_of(&bytes, sector_bytes);
        assert_eq!(starts(&large.partitions), [256 * 4096]);
        assert!(has(&large, &doubt), "{}", said(&large));
    }
    let given = futures::executor::block_on(read_tables(&Memory::new(bytes.clone()), SectorSize::Given(512)));
    assert_eq!((starts(&given.partitions), given.remarks), (vec![256 * 512], vec![]));
    put_volume(&mut bytes, 256 * 512);
    let both = tables_of(&bytes, None);
    assert_eq!((starts(&both.partitions), starts(&both.others)), (vec![256 * 512], vec![256 * 4096]));
    assert!(has(&both, &Doubt::Ambiguous { used: 512, other: 4096, with_formats: true }), "{}", said(&both));
}

#[test]
fn a_table_that_is_only_possible_in_small_sectors_is_not_ambiguous() {
    let mut bytes = vec![0; SIZE];
    put_record(&mut bytes, 0, &[(0x83, 2048, 8192)]);
    assert_eq!(tables_of(&bytes, None).remarks, []);
}

#[test]
fn entries_of_a_hybrid_mbr_stand_beside_the_gpt() {
    let (mut bytes, expected) = with_gpt(LogicalBlockSize::Lb512);
    put_record(&mut bytes, 0, &[(0xee, 1, 2047), (0x83, 2048, 2048), (0x0c, 12288, 1024)]);
    assert_eq!(partitions_of(&bytes), expected);
    assert_eq!(starts(&tables_of(&bytes, None).others), [0; 0]);
    put_volume(&mut bytes, 12288 * 512);
    let found = tables_of(&bytes, None);
    assert_eq!(starts(&found.others), [12288 * 512]);
    assert!(names_unused(&found, "an MBR"), "{}", said(&found));
}

#[test]
fn a_gpt_that_cannot_be_used_is_a_gap_and_the_other_entries_of_its_mbr_are_used() {
    let (mut bytes, _) = with_gpt(LogicalBlockSize::Lb512);
    put_record(&mut bytes, 0, &[(0xee, 1, 2047), (0x83, 2048, 2048)]);
    bytes[512..520].fill(0);
    bytes[SIZE - 496] ^= 1;
    let found = tables_of(&bytes, None);
    assert_eq!(starts(&found.partitions), [2048 * 512]);
    let backup = BadCopy { is_backup: true, why: Defect::HeaderChecksum };
    let is_named = |remark: &Remark| match &remark.doubt {
        Doubt::NoGpt(tables) => remark.is_gap && tables.iter().any(|table| table.copies.contains(&backup)),
        _ => false,
    };
    assert!(found.remarks.iter().any(is_named), "{}", said(&found));
}

#[test]
fn the_backup_gpt_is_used_if_the_first_sectors_are_gone() {
    let (mut bytes, expected) = with_gpt(LogicalBlockSize::Lb512);
    for sectors in [0..1, 1..34, 0..34] {
        bytes[sectors.start * 512..sectors.end * 512].fill(0);
        assert_eq!(partitions_of(&bytes), expected);
        assert!(!tables_of(&bytes, None).remarks.is_empty());
    }
}

#[test]
fn remains_of_a_gpt_in_front_of_a_volume_are_not_used() {
    let (mut bytes, _) = with_gpt(LogicalBlockSize::Lb512);
    bytes[..34 * 512].fill(0);
    put_volume(&mut bytes, 0);
    let found = tables_of(&bytes, None);
    assert_eq!(found.partitions, []);
    assert!(has(&found, &Doubt::RemainsOfGpt), "{}", said(&found));
}

#[test]
fn remains_of_a_log_of_xfs_in_front_of_the_partitions_do_not_make_the_gpt_remains() {
    let (mut bytes, expected) = with_gpt(LogicalBlockSize::Lb512);
    bytes[..34 * 512].fill(0);
    for (at, number) in [(0, 0xfeed_babe_u32), (8, 2), (12, 512), (300, 1)] {
        bytes[40 * 512 + at..][..4].copy_from_slice(&number.to_be_bytes());
    }
    assert_eq!(partitions_of(&bytes), expected);
}

/// Writes an Apple partition map: entries of a type, a first block and a number of blocks.
fn put_apple_map(bytes: &mut [u8], block: usize, entries: &[(&str, u32, u32)]) {
    for (number, (kind, start, blocks)) in entries.iter().enumerate() {
        let entry = &mut bytes[(number + 1) * block..][..512];
        entry[..2].copy_from_slice(b"PM");
        entry[4..8].copy_from_slice(&(entries.len() as u32).to_be_bytes());
        entry[8..12].copy_from_slice(&start.to_be_bytes());
        entry[12..16].copy_from_slice(&blocks.to_be_bytes());
        entry[48..48 + kind.len()].copy_from_slice(kind.as_bytes());
    }
}

#[test]
fn an_apple_map_is_read_in_blocks_of_each_size() {
    for block in [512, 2048, 4096] {
        let mut bytes = vec![0; SIZE];
        put_apple_map(&mut bytes, block, &[("Apple_partition_map", 1, 63), ("Apple_HFS", 128, 256)]);
        assert_eq!(partitions_of(&bytes), [partition(2, 128 * block as u64, 256 * block as u64)]);
    }
}

#[test]
fn an_mbr_beside_an_old_apple_map_is_used_and_both_are_named() {
    let mut bytes = vec![0; SIZE];
    put_record(&mut bytes, 0, &[(0x83, 2048, 8192)]);
    put_apple_map(&mut bytes, 512, &[("Apple_partition_map", 1, 63), ("Apple_HFS", 12288, 1024)]);
    assert_eq!(partitions_of(&bytes), [partition(1, 2048 * 512, 8192 * 512)]);
    let found = tables_of(&bytes, None);
    assert!(names_unused(&found, "an Apple partition map"), "{}", said(&found));
    assert_eq!(found.others, []);
    put_volume(&mut bytes, 12288 * 512);
    assert_eq!(starts(&tables_of(&bytes, None).others), [12288 * 512]);
}

#[test]
fn a_broken_apple_map_is_a_gap() {
    let mut bytes = vec![0; SIZE];
    put_apple_map(&mut bytes, 512, &[("Apple_HFS", 128, 256), ("Apple_HFS", 512, 256)]);
    bytes[1024..1026].fill(0);
    let found = tables_of(&bytes, None);
    assert!(found.remarks.iter().any(|remark| remark.is_gap), "{}", said(&found));
}

#[test]
fn a_bsd_label_is_read() {
    let mut bytes = vec![0; SIZE];
    for at in [512, 512 + 132] {
        bytes[at..at + 4].copy_from_slice(&0x8256_4557_u32.to_le_bytes());
    }
    bytes[512 + 138] = 3;
    for (index, (size, start, kind)) in [(2048_u32, 16_u32, 7), (0, 0, 0), (16384, 0, 0)].into_iter().enumerate() {
        let at = 512 + 148 + 16 * index;
        bytes[at..at + 4].copy_from_slice(&size.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&start.to_le_bytes());
        bytes[at + 12] = kind;
    }
    assert_eq!(partitions_of(&bytes), [partition(1, 16 * 512, 2048 * 512)]);
}

#[test]
fn a_sun_table_counts_in_cylinders() {
    let mut bytes = vec![0; SIZE];
    let short = |bytes: &mut [u8], at: usize, value: u16| bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    short(&mut bytes, 436, 4);
    short(&mut bytes, 438, 8);
    short(&mut bytes, 142, 2);
    short(&mut bytes, 446, 3);
    short(&mut bytes, 450, 640);
    short(&mut bytes, 508, 0xdabe);
    let sum = bytes[..512].chunks(2).fold(0, |sum, two| sum ^ u16::from_be_bytes([two[0], two[1]]));
    short(&mut bytes, 510, sum);
    assert_eq!(partitions_of(&bytes), [partition(1, 3 * 32 * 512, 640 * 512)]);
}

#[test]
fn an_unreadable_first_sector_is_a_gap_and_the_backup_is_used() {
    let (bytes, expected) = with_gpt(LogicalBlockSize::Lb512);
    struct Damaged(Memory);
    impl Device for Damaged {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            if range.offset < 1024 {
                return Io::fail(Error::Unreadable { device: "disk".into(), range, why: "bad sector".into() });
            }
            self.0.read(range)
        }
    }
    let damaged = Damaged(Memory::new(bytes));
    let found = futures::executor::block_on(read_tables(&damaged, None));
    let places: Vec<_> =
        found.partitions.iter().map(|one| partition(one.number, one.range.offset, one.range.len)).collect();
    assert_eq!(places, expected);
    let is_named = |remark: &Remark| {
        let is_bad = matches!(remark.doubt, Doubt::FirstSector(Defect::Device(Error::Unreadable { .. })));
        remark.is_gap && is_bad
    };
    assert!(found.remarks.iter().any(is_named), "{}", said(&found));
}
