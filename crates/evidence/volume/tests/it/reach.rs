//! How far tables and file systems reach, by images of tools.

use std::io::Cursor;

use cheetah_device::Device as _;
use cheetah_device::memory::Memory;
use cheetah_volume::reach::{Claim, ReachOptions, add_claims, beyond_end};
use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::partition_types::LINUX_FS;

const SIZE: usize = 8 << 20;

fn memory(bytes: &[u8]) -> Memory {
    Memory::new(bytes.to_vec())
}

async fn reach(disk: &Memory, options: ReachOptions) -> Vec<Claim> {
    let mut claims = Vec::new();
    add_claims(disk, options, &mut claims).await;
    claims
}

async fn beyond(disk: &Memory, options: ReachOptions) -> Vec<String> {
    beyond_end(reach(disk, options).await, disk.geometry().size)
}

/// A disk with an MBR of two partitions: an ext file system in 512 KiB at 1 MiB, and one without up to the end.
fn mbr(sector: u32) -> Vec<u8> {
    let mut disk = vec![0; SIZE];
    let mut entry = |index: usize, first: u32, end: u32| {
        let at = 446 + 16 * index;
        disk[at + 4] = 0x83;
        disk[at + 8..at + 16].copy_from_slice(&[first / sector, (end - first) / sector].map(u32::to_le_bytes).concat());
    };
    entry(0, 1 << 20, 3 << 19);
    entry(1, 2 << 20, SIZE as u32);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let at = (1 << 20) + 1024;
    disk[at + 4..at + 8].copy_from_slice(&512u32.to_le_bytes());
    disk[at + 0x38..at + 0x3a].copy_from_slice(&[0x53, 0xef]);
    disk
}

/// A disk with a GPT and its copy at the end.
fn gpt(sector: LogicalBlockSize) -> Vec<u8> {
    let mut bytes = Cursor::new(vec![0; SIZE]);
    ProtectiveMBR::with_lb_size(1).overwrite_lba0(&mut bytes).unwrap();
    let config = GptConfig::default().writable(true).logical_block_size(sector);
    let mut disk = config.create_from_device(bytes, None).unwrap();
    disk.add_partition("one", 4 << 20, LINUX_FS, 0, None).unwrap();
    disk.write().unwrap().into_inner()
}

#[tokio::test]
async fn a_whole_disk_reaches_nowhere_beyond_its_end_and_a_cut_one_does() {
    for (name, disk, words) in [
        ("mbr", mbr(512), &["partition 2 of the MBR"][..]),
        ("mbr of 4096", mbr(4096), &["partition 2 of the MBR"]),
        ("gpt", gpt(LogicalBlockSize::Lb512), &["the copy of the GPT"]),
        ("gpt of 4096", gpt(LogicalBlockSize::Lb4096), &["the copy of the GPT"]),
    ] {
        let options = ReachOptions::default();
        assert!(!reach(&memory(&disk), options).await.is_empty(), "{name}");
        assert_eq!(beyond(&memory(&disk), options).await, Vec::<String>::new(), "{name}");
        for cut in [SIZE - 4096, SIZE / 2, SIZE / 4, (1 << 20) + 4096] {
            let found = beyond(&memory(&disk[..cut]), options).await;
            for word in words {
                let said = found.iter().any(|line| line.contains(word) && line.contains("beyond the end"));
                assert!(said, "{name} cut to {cut}: {found:?}");
            }
        }
    }
    // The file system in the first partition, too.
    let found = beyond(&memory(&mbr(4096)[..(5 << 18) + 4096]), ReachOptions::default()).await;
    assert!(found.iter().any(|line| line.contains("the ext file system in partition 1 of the MBR")), "{found:?}");
}

#[tokio::test]
async fn only_the_start_is_read_where_the_rest_must_not_be() {
    let (disk, options) = (mbr(512), ReachOptions { read_up_to: 1 << 20, sector_bytes: Some(512) });
    let claims = reach(&memory(&disk), options).await;
    assert_eq!(claims.iter().map(|claim| claim.end_bytes).collect::<Vec<_>>(), [3 << 19, SIZE as u64]);
}
