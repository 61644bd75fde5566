//! What the device drivers of Windows answer, parsed: structures of `winioctl.h` and `ntddstor.h`, little-endian.
//!
//! A driver may answer less than the structure, or places outside of the answer: what is not there is `None`, and nothing
//! here panics.

/// The most partitions that are taken from a layout.
pub const PARTITIONS_MAX: usize = 4096;
/// The most parts of a volume that are taken.
const EXTENTS_MAX: usize = 1024;
/// The length of a `PARTITION_INFORMATION_EX`.
const PARTITION_LEN: usize = 144;
/// The place of the first one in a `DRIVE_LAYOUT_INFORMATION_EX`.
const PARTITIONS_AT: usize = 48;
/// The length of a `DISK_EXTENT`, and the place of the first one in `VOLUME_DISK_EXTENTS`.
const EXTENT_LEN: usize = 24;
const EXTENTS_AT: usize = 8;

/// What a disk says of itself: `STORAGE_DEVICE_DESCRIPTOR`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The maker, if the model does not name it.
    pub vendor: Option<String>,
    /// The model.
    pub product: Option<String>,
    /// The serial number.
    pub serial: Option<String>,
    /// How it is attached, in the words of disks of other systems.
    pub bus: Option<&'static str>,
    /// Whether its medium can be taken out.
    pub is_removable: bool,
}

impl Descriptor {
    /// Parses the answer to `IOCTL_STORAGE_QUERY_PROPERTY` for `StorageDeviceProperty`.
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let text_at = |at: usize| {
            let place = u32_at(answer, at)? as usize;
            let text = answer.get(place..).filter(|_| place >= 36)?;
            clean(&text[..text.iter().position(|byte| *byte == 0).unwrap_or(text.len())])
        };
        Some(Self {
            vendor: text_at(12),
            product: text_at(16),
            serial: text_at(24),
            bus: bus(u32_at(answer, 28)?),
            is_removable: *answer.get(10)? != 0,
        })
    }

    /// Maker and model, as one name.
    pub fn model(&self) -> Option<String> {
        let product = self.product.clone()?;
        // Drivers of ATA disks name no maker, or the bus.
        let vendor = self.vendor.as_deref().filter(|vendor| *vendor != "ATA" && !product.starts_with(vendor));
        Some(vendor.map_or_else(|| product.clone(), |vendor| format!("{vendor} {product}")))
    }
}

/// The name of a `STORAGE_BUS_TYPE`.
fn bus(number: u32) -> Option<&'static str> {
    Some(match number {
        1 | 0xa => "scsi",
        2 | 3 | 0xb => "ata",
        4 => "ieee1394",
        6 => "fibre",
        7 => "usb",
        8 => "raid",
        9 => "iscsi",
        0xc | 0xd => "mmc",
        0xe | 0xf => "virtual",
        0x10 => "spaces",
        0x11 => "nvme",
        0x13 => "ufs",
        _ => return None,
    })
}

/// The sizes of a disk's sectors: `STORAGE_ACCESS_ALIGNMENT_DESCRIPTOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sectors {
    /// Bytes in a logical sector, the unit of reads.
    pub logical_bytes: u32,
    /// Bytes in a sector of the medium.
    pub physical_bytes: u32,
}

impl Sectors {
    /// Parses the answer to `IOCTL_STORAGE_QUERY_PROPERTY` for `StorageAccessAlignmentProperty`.
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let found = Self { logical_bytes: u32_at(answer, 16)?, physical_bytes: u32_at(answer, 20)? };
        (is_sector(found.logical_bytes) && is_sector(found.physical_bytes)).then_some(found)
    }
}

/// The size of a disk, and of its sectors: `DISK_GEOMETRY_EX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in a logical sector.
    pub sector_bytes: u32,
    /// Bytes in all.
    pub size_bytes: u64,
}

impl Geometry {
    /// Parses the answer to `IOCTL_DISK_GET_DRIVE_GEOMETRY_EX`.
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let found = Self { sector_bytes: u32_at(answer, 20)?, size_bytes: positive_at(answer, 24)? };
        is_sector(found.sector_bytes).then_some(found)
    }
}

/// Parses the answer to `IOCTL_DISK_GET_LENGTH_INFO`: bytes in all.
pub fn length(answer: &[u8]) -> Option<u64> {
    positive_at(answer, 0)
}

/// A partition, by the disk's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1.
    pub number: u32,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Bytes in all.
    pub len: u64,
}

/// Parses the answer to `IOCTL_DISK_GET_DRIVE_LAYOUT_EX`: the partitions that have a place, in the table's order. Unused
/// entries of a table of the MBR have no number.
pub fn partitions(answer: &[u8]) -> Vec<Partition> {
    let count = u32_at(answer, 4).map_or(0, |count| (count as usize).min(PARTITIONS_MAX));
    let entries = answer.get(PARTITIONS_AT..).unwrap_or_default().chunks_exact(PARTITION_LEN).take(count);
    entries
        .filter_map(|entry| {
            Some(Partition { number: u32_at(entry, 24)?, offset: u64_at(entry, 8)?, len: positive_at(entry, 16)? })
        })
        .filter(|partition| partition.number > 0 && i64::try_from(partition.offset).is_ok())
        .collect()
}

/// A part of a volume on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The disk's number.
    pub disk: u32,
    /// Where it begins there, in bytes.
    pub offset: u64,
    /// Bytes in all.
    pub len: u64,
}

/// Parses the answer to `IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS`.
pub fn extents(answer: &[u8]) -> Vec<Extent> {
    let count = u32_at(answer, 0).map_or(0, |count| (count as usize).min(EXTENTS_MAX));
    let entries = answer.get(EXTENTS_AT..).unwrap_or_default().chunks_exact(EXTENT_LEN).take(count);
    entries
        .filter_map(|entry| {
            Some(Extent { disk: u32_at(entry, 0)?, offset: u64_at(entry, 8)?, len: u64_at(entry, 16)? })
        })
        .collect()
}

const fn is_sector(bytes: u32) -> bool {
    bytes.is_power_of_two() && bytes >= 256 && bytes <= 1 << 20
}

/// Returns the text without control characters and blanks around it, if anything is left.
fn clean(bytes: &[u8]) -> Option<String> {
    let text: String = String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// A signed number that counts bytes.
fn positive_at(bytes: &[u8], at: usize) -> Option<u64> {
    u64_at(bytes, at).filter(|number| *number > 0 && i64::try_from(*number).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor with these texts behind its fields.
    fn descriptor(vendor: &str, product: &str, serial: &str, bus: u32) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        bytes[10] = 1;
        bytes[28..32].copy_from_slice(&bus.to_le_bytes());
        for (at, text) in [(12, vendor), (16, product), (24, serial)] {
            if !text.is_empty() {
                let place = bytes.len() as u32;
                bytes[at..at + 4].copy_from_slice(&place.to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
                bytes.push(0);
            }
        }
        bytes
    }

    #[test]
    fn a_disk_is_described_by_the_texts_that_its_driver_gives() {
        let found = Descriptor::parse(&descriptor("SanDisk ", "Ultra Fit  ", "  4C53 \x01", 7)).unwrap();
        assert_eq!(found.model().as_deref(), Some("SanDisk Ultra Fit"));
        assert_eq!((found.serial.as_deref(), found.bus, found.is_removable), (Some("4C53"), Some("usb"), true));
        let ata = Descriptor::parse(&descriptor("", "WDC WD40EFRX-68N", "", 11)).unwrap();
        assert_eq!((ata.model().as_deref(), ata.serial, ata.bus), (Some("WDC WD40EFRX-68N"), None, Some("ata")));
        let twice = Descriptor::parse(&descriptor("QEMU", "QEMU HARDDISK", "", 0)).unwrap();
        assert_eq!((twice.model().as_deref(), twice.bus), (Some("QEMU HARDDISK"), None));
    }

    #[test]
    fn answers_that_are_cut_off_or_point_elsewhere_give_what_is_there() {
        let whole = descriptor("A", "B", "C", 17);
        for len in 0..whole.len() {
            let _ = Descriptor::parse(&whole[..len]);
        }
        let mut astray = whole.clone();
        astray[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        // Into the fields themselves.
        astray[24..28].copy_from_slice(&4_u32.to_le_bytes());
        let found = Descriptor::parse(&astray).unwrap();
        assert_eq!((found.vendor.as_deref(), found.model(), found.serial), (Some("A"), None, None));
        for len in 0..64 {
            let bytes = vec![0xff; len];
            assert_eq!((Sectors::parse(&bytes), Geometry::parse(&bytes), length(&bytes)), (None, None, None));
            assert!(partitions(&bytes).is_empty() && extents(&bytes[..len.min(31)]).is_empty());
        }
    }

    #[test]
    fn sizes_are_those_of_sectors_and_of_the_whole() {
        let mut alignment = vec![0; 28];
        alignment[16..20].copy_from_slice(&512_u32.to_le_bytes());
        alignment[20..24].copy_from_slice(&4096_u32.to_le_bytes());
        assert_eq!(Sectors::parse(&alignment), Some(Sectors { logical_bytes: 512, physical_bytes: 4096 }));
        alignment[20..24].copy_from_slice(&500_u32.to_le_bytes());
        assert_eq!(Sectors::parse(&alignment), None);
        let mut geometry = vec![0; 40];
        geometry[20..24].copy_from_slice(&512_u32.to_le_bytes());
        geometry[24..32].copy_from_slice(&(500_u64 << 30).to_le_bytes());
        assert_eq!(Geometry::parse(&geometry), Some(Geometry { sector_bytes: 512, size_bytes: 500 << 30 }));
        assert_eq!(length(&(500_u64 << 30).to_le_bytes()), Some(500 << 30));
        assert_eq!((length(&(-1_i64).to_le_bytes()), length(&[0; 8])), (None, None));
    }

    #[test]
    fn partitions_have_a_number_and_a_place() {
        let mut layout = vec![0; PARTITIONS_AT + 4 * PARTITION_LEN];
        layout[4..8].copy_from_slice(&4_u32.to_le_bytes());
        for (entry, (number, offset, len)) in
            [(1_u32, 1_u64 << 20, 100_u64 << 20), (0, 0, 0), (2, 101 << 20, 1 << 30), (3, 1 << 31, -1_i64 as u64)]
                .into_iter()
                .enumerate()
        {
            let at = PARTITIONS_AT + entry * PARTITION_LEN;
            layout[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            layout[at + 16..at + 24].copy_from_slice(&len.to_le_bytes());
            layout[at + 24..at + 28].copy_from_slice(&number.to_le_bytes());
        }
        let first = Partition { number: 1, offset: 1 << 20, len: 100 << 20 };
        assert_eq!(partitions(&layout), [first.clone(), Partition { number: 2, offset: 101 << 20, len: 1 << 30 }]);
        assert_eq!(partitions(&layout[..PARTITIONS_AT + PARTITION_LEN + 7]), [first]);
        layout[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(partitions(&layout).len(), 2, "it says that it has more than it has");
    }

    #[test]
    fn a_volume_lies_on_one_disk_or_several() {
        let mut answer = vec![0; EXTENTS_AT + 2 * EXTENT_LEN];
        answer[0..4].copy_from_slice(&2_u32.to_le_bytes());
        for (nth, (disk, offset, len)) in [(0_u32, 1_u64 << 20, 5_u64), (3, 0, 7)].into_iter().enumerate() {
            let at = EXTENTS_AT + nth * EXTENT_LEN;
            answer[at..at + 4].copy_from_slice(&disk.to_le_bytes());
            answer[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            answer[at + 16..at + 24].copy_from_slice(&len.to_le_bytes());
        }
        let both = [Extent { disk: 0, offset: 1 << 20, len: 5 }, Extent { disk: 3, offset: 0, len: 7 }];
        assert_eq!(extents(&answer), both);
        assert_eq!(extents(&answer[..EXTENTS_AT + EXTENT_LEN]), both[..1]);
    }
}
