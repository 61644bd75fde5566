//! Partition tables: made by other tools, damaged, and malicious.

use std::io::Cursor;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};
use cheetah_volume::partition::{Partition, read_partitions};
use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::partition_types::LINUX_FS;
use proptest::prelude::*;

const SIZE: usize = 8 << 20;

fn partitions(device: &dyn Device) -> Vec<Partition> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(read_partitions(device))
}

fn partitions_of(bytes: &[u8]) -> Vec<Partition> {
    partitions(&Memory::new(bytes.to_vec()))
}

fn partition(number: u32, offset: u64, len: u64) -> Partition {
    Partition { number, range: ByteRange::new(offset, len) }
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
fn with_logical() -> (Vec<u8>, Vec<Partition>) {
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
fn with_gpt(sector: LogicalBlockSize) -> (Vec<u8>, Vec<Partition>) {
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
