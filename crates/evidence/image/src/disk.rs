//! Properties of a block device from sysfs (Documentation/ABI/stable/sysfs-block).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The properties of a disk; `None` where the kernel does not know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    /// Bytes in a logical sector.
    pub sector_size: Option<u32>,
    /// Bytes in a sector of the medium.
    pub physical_sector_size: Option<u32>,
    /// Maker and model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Whether the kernel refuses writes to it.
    pub write_protected: Option<bool>,
    /// The target, if the disk is reached by ATA over Ethernet.
    pub aoe: Option<AoeTarget>,
}

/// A target of ATA over Ethernet (AoE, revision 11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AoeTarget {
    /// The major address.
    pub shelf: u16,
    /// The minor address.
    pub slot: u8,
    /// The hardware address of the machine that answers, in hexadecimal digits; `None` if the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

impl AoeTarget {
    /// Returns the target whose block device has this name in sysfs, such as `etherd!e0.1`.
    fn named(name: &str) -> Option<Self> {
        let (shelf, slot) = name.strip_prefix("etherd!e")?.split_once('.')?;
        Some(Self { shelf: shelf.parse().ok()?, slot: slot.parse().ok()?, mac: None })
    }
}

impl fmt::Display for AoeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shelf {}, slot {}", self.shelf, self.slot)?;
        self.mac.as_ref().map_or(Ok(()), |mac| write!(f, ", hardware address {mac}"))
    }
}

/// The maximum length of an attribute: a page in sysfs.
const ATTRIBUTE_LEN_MAX: usize = 4096;

impl Disk {
    /// Reads the device's folder under /sys. A partition has the sector sizes and names of its disk.
    pub fn look(folder: &Path) -> Self {
        let whole = if folder.join("partition").exists() { folder.join("..") } else { folder.to_path_buf() };
        let number = |name: &str| text(&whole.join(name)).and_then(|text| text.parse().ok());
        Self {
            sector_size: number("queue/logical_block_size"),
            physical_sector_size: number("queue/physical_block_size"),
            model: model(&whole),
            serial: serial(&whole),
            write_protected: text(&folder.join("ro")).map(|text| text != "0"),
            aoe: aoe(&whole),
        }
    }
}

/// The size in bytes of an open disk, and what its driver tells of it.
///
/// # Errors
///
/// If it is no disk, or has no medium.
#[cfg(any(target_os = "freebsd", target_os = "macos"))]
pub fn known_of(file: &fs::File) -> std::io::Result<(u64, Disk)> {
    crate::os::known_of(file)
}

/// Returns the sysfs folder of the block device with these numbers.
pub fn folder(major: u32, minor: u32) -> PathBuf {
    format!("/sys/dev/block/{major}:{minor}").into()
}

/// SCSI and ATA disks have a vendor and a model, NVMe and MMC disks one name.
fn model(disk: &Path) -> Option<String> {
    let model = text(&disk.join("device/model")).or_else(|| text(&disk.join("device/name")))?;
    // With libata every disk's vendor is "ATA"; virtio's vendor is a PCI number.
    let vendor = text(&disk.join("device/vendor")).filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x"));
    Some(vendor.map_or_else(|| model.clone(), |vendor| format!("{vendor} {model}")))
}

fn aoe(disk: &Path) -> Option<AoeTarget> {
    let folder = fs::canonicalize(disk).ok()?;
    let target = AoeTarget::named(folder.file_name()?.to_str()?)?;
    Some(AoeTarget { mac: text(&disk.join("mac")), ..target })
}

fn serial(disk: &Path) -> Option<String> {
    text(&disk.join("device/serial")).or_else(|| text(&disk.join("serial"))).or_else(|| unit_serial(disk))
}

/// The Unit Serial Number page (SPC-4, 7.8.16): a length in bytes 2 and 3, then ASCII.
fn unit_serial(disk: &Path) -> Option<String> {
    let page = fs::read(disk.join("device/vpd_pg80")).ok()?;
    let Some(&[_, 0x80, high, low]) = page.first_chunk() else { return None };
    let serial = page.get(4..)?;
    clean(&serial[..serial.len().min(u16::from_be_bytes([high, low]).into())])
}

fn text(path: &Path) -> Option<String> {
    clean(&fs::read(path).ok()?)
}

/// Returns the text trimmed, if it is printable and not empty.
fn clean(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(ATTRIBUTE_LEN_MAX)]);
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    #[test]
    fn a_sata_disk_and_its_partition_have_the_disks_model_and_serial() {
        let dir = tree(&[
            ("sda/queue/logical_block_size", b"512\n"),
            ("sda/queue/physical_block_size", b"4096\n"),
            ("sda/ro", b"0\n"),
            ("sda/device/vendor", b"ATA     \n"),
            ("sda/device/model", b"WDC WD40EFRX-68N\n"),
            ("sda/device/vpd_pg80", b"\0\x80\0\x0c  WD-WCC7K1234and more"),
            ("sda/sda1/partition", b"1\n"),
            ("sda/sda1/ro", b"1\n"),
        ]);
        let disk = Disk::look(&dir.path().join("sda"));
        assert_eq!((disk.sector_size, disk.physical_sector_size), (Some(512), Some(4096)));
        assert_eq!(disk.model.as_deref(), Some("WDC WD40EFRX-68N"));
        assert_eq!(disk.serial.as_deref(), Some("WD-WCC7K12"));
        assert_eq!(disk.write_protected, Some(false));
        let partition = Disk::look(&dir.path().join("sda/sda1"));
        assert_eq!(partition, Disk { write_protected: Some(true), ..disk });
    }

    #[test]
    fn a_target_of_ata_over_ethernet_and_its_partition_are_known_by_shelf_and_slot() {
        let dir = tree(&[
            ("etherd!e7.1/mac", b"525400123456\n"),
            ("etherd!e7.1/ro", b"1\n"),
            ("etherd!e7.1/etherd!e7.1p1/partition", b"1\n"),
            ("etherd!e7.1/etherd!e7.1p1/ro", b"1\n"),
        ]);
        let disk = Disk::look(&dir.path().join("etherd!e7.1"));
        let target = AoeTarget { shelf: 7, slot: 1, mac: Some("525400123456".into()) };
        assert_eq!(target.to_string(), "shelf 7, slot 1, hardware address 525400123456");
        assert_eq!(disk.aoe.as_ref(), Some(&target));
        assert_eq!(Disk::look(&dir.path().join("etherd!e7.1/etherd!e7.1p1")).aoe, Some(target));
        for name in ["etherd!e7", "etherd!e7.256", "etherd!e65536.0", "sda"] {
            assert_eq!(AoeTarget::named(name), None, "{name}");
        }
    }

    #[test]
    fn a_disk_with_few_facts_is_described_by_those() {
        let dir = tree(&[("vda/serial", b"serial-7"), ("vda/device/vendor", b"0x1af4\n"), ("vda/ro", b"1")]);
        let disk = Disk::look(&dir.path().join("vda"));
        let known = Disk { serial: Some("serial-7".into()), write_protected: Some(true), ..Disk::default() };
        assert_eq!(disk, known);
        assert_eq!(Disk::look(&dir.path().join("absent")), Disk::default());
    }
}
