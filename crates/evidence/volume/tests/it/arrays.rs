//! Arrays that mdadm and the kernel made (`workshop/boot/tests/md_arrays.py`), read with each choice of members.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_volume::md::{Assembly, LeftOut, NotOpened, Remark, Why, assemble};
use cheetah_volume::partition::read_partitions;

/// A disk, and its members.
struct Disk {
    device: DynDevice,
    members: Vec<ByteRange>,
}

impl Disk {
    async fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arrays").join(format!("{name}.raw.xz"));
        let mut bytes = Vec::new();
        let packed = fs::read(path).unwrap();
        lzma_rust2::XzReader::new(&packed[..], false).read_to_end(&mut bytes).unwrap();
        let device: DynDevice = Arc::new(Memory::new(bytes));
        let partitions = read_partitions(&*device, None).await;
        assert!(partitions.iter().all(|partition| partition.is_for_linux_raid()));
        Self { device, members: partitions.iter().map(|partition| partition.range).collect() }
    }

    /// Puts the array together without some members.
    async fn without(&self, missing: &[usize]) -> Assembly {
        let is_here = |(number, _): &(usize, &ByteRange)| !missing.contains(number);
        let places: Vec<_> = self.members.iter().enumerate().filter(is_here).map(|(_, place)| *place).collect();
        assemble(&*self.device, &places).await
    }

    /// The content of the only array.
    async fn content(&self, assembly: &Assembly) -> Vec<u8> {
        let [array] = &assembly.volumes[..] else { panic!("{assembly:?}") };
        let device = array.over(&self.device).unwrap();
        device.read(ByteRange::new(0, array.size_bytes)).await.unwrap().into_bytes().into()
    }
}

/// What the sectors of an array repeat.
fn expected(name: &str, bytes: usize) -> Vec<u8> {
    (0..bytes / 512)
        .flat_map(|sector| format!("{name} {sector:06}\n").into_bytes().into_iter().cycle().take(512))
        .collect()
}

/// Checks the array without each choice of this number of members.
async fn reads(name: &str, level: &str, may_be_missing: usize) {
    let disk = Disk::new(name).await;
    let count = disk.members.len();
    for first in 0..=count {
        for second in first..=count {
            let missing: Vec<_> = [first, second].into_iter().filter(|number| *number < count).collect();
            let lost = if missing.len() == 2 && first == second { 1 } else { missing.len() };
            let assembly = disk.without(&missing).await;
            if lost > may_be_missing {
                assert_eq!(assembly.volumes, [], "{name} without {missing:?}");
                continue;
            }
            let content = disk.content(&assembly).await;
            assert!(!content.is_empty() && content == expected(name, content.len()), "{name} without {missing:?}");
            assert_eq!(assembly.volumes[0].level, level);
            assert_eq!(assembly.not_opened, []);
        }
    }
}

#[tokio::test]
async fn arrays_without_redundancy_read_as_the_kernel_wrote_them() {
    for name in ["zero-even", "zero-uneven"] {
        reads(name, "RAID 0", 0).await;
    }
}

#[tokio::test]
async fn mirrors_read_as_the_kernel_wrote_them_from_any_copy() {
    for name in ["one-old", "one-end"] {
        reads(name, "RAID 1", 1).await;
    }
    reads("ten-near", "RAID 10", 1).await;
    reads("ten-three", "RAID 10", 2).await;
}

#[tokio::test]
async fn arrays_with_parity_read_as_the_kernel_wrote_them_without_members() {
    reads("four", "RAID 4", 1).await;
    reads("five-old", "RAID 5", 1).await;
    for layout in ["la", "ra", "ls", "rs", "parity-first", "parity-last"] {
        reads(&format!("five-{layout}"), "RAID 5", 1).await;
        reads(&format!("six-{layout}"), "RAID 6", 2).await;
    }
}

#[tokio::test]
async fn a_member_that_the_kernel_left_behind_is_left_out() {
    for name in ["one-behind", "five-behind"] {
        let disk = Disk::new(name).await;
        let assembly = disk.without(&[]).await;
        let content = disk.content(&assembly).await;
        assert!(content == expected(name, content.len()));
        let remarks = &assembly.volumes[0].remarks;
        assert_eq!(remarks[0], Remark::Degraded(vec![1]));
        assert!(matches!(remarks[1], Remark::LeftOut(LeftOut { number: Some(1), .. })), "{remarks:?}");
    }
}

#[tokio::test]
async fn an_array_that_was_not_closed_is_said() {
    for name in ["one-open", "five-open"] {
        let disk = Disk::new(name).await;
        let assembly = disk.without(&[]).await;
        let content = disk.content(&assembly).await;
        assert!(content == expected(name, content.len()));
        assert_eq!(assembly.volumes[0].remarks[0], Remark::NotClosed);
    }
    let assembly = Disk::new("five-open").await.without(&[2]).await;
    assert!(matches!(&assembly.not_opened[..], [NotOpened::Array { why: Why::Dirty(_), .. }]), "{assembly:?}");
}

#[tokio::test]
async fn an_array_with_far_copies_is_refused_by_name() {
    let assembly = Disk::new("ten-far").await.without(&[]).await;
    let [NotOpened::Array { name, why, .. }] = &assembly.not_opened[..] else { panic!("{assembly:?}") };
    assert_eq!((name.as_str(), why), ("lab:ten-far", &Why::Kind("RAID 10 with far copies".to_owned())));
}
