//! The disks of this machine, and what is known of each. Nothing here writes, and listing takes no administrator.

use std::fs::File;
use std::io;

use windows_sys::Win32::Foundation::ERROR_WRITE_PROTECT;
use windows_sys::Win32::System::Ioctl::{
    FSCTL_ALLOW_EXTENDED_DASD_IO, IOCTL_DISK_GET_DRIVE_GEOMETRY_EX, IOCTL_DISK_GET_DRIVE_LAYOUT_EX,
    IOCTL_DISK_GET_LENGTH_INFO, IOCTL_DISK_IS_WRITABLE, IOCTL_STORAGE_QUERY_PROPERTY,
};

use crate::Volume;
use crate::buffers::{self, Descriptor, Geometry, Partition, Sectors};
use crate::control::{ask, open_to_ask};
use crate::name::{DISKS_MAX, Name};

/// `StorageDeviceProperty` and `StorageAccessAlignmentProperty` (`STORAGE_PROPERTY_ID`).
const DEVICE_PROPERTY: u32 = 0;
const ALIGNMENT_PROPERTY: u32 = 6;

/// What the driver of a disk or a volume answers; `None` where it does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Bytes in all.
    pub size_bytes: Option<u64>,
    /// Bytes in a logical sector.
    pub sector_size: Option<u32>,
    /// Bytes in a sector of the medium.
    pub physical_sector_size: Option<u32>,
    /// Maker and model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// How it is attached.
    pub bus: Option<&'static str>,
    /// Whether writes to it are refused.
    pub write_protected: Option<bool>,
}

/// A disk of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDisk {
    /// Its number.
    pub number: u32,
    /// Its facts.
    pub facts: Facts,
    /// Its partitions, in the table's order.
    pub partitions: Vec<Partition>,
}

impl FoundDisk {
    /// What uses it, a clause each: `partition 2 is mounted on C:\`.
    pub fn users(&self, volumes: &[Volume]) -> Vec<String> {
        let mut users = Vec::new();
        for volume in volumes.iter().filter(|volume| !volume.paths.is_empty()) {
            let paths = volume.paths.join(" and ");
            for extent in volume.extents.iter().filter(|extent| extent.disk == self.number) {
                let of = self.partitions.iter().find(|partition| partition.offset == extent.offset);
                users.push(match of {
                    Some(partition) => format!("partition {} is mounted on {paths}", partition.number),
                    None => format!("a part of it is mounted on {paths}"),
                });
            }
        }
        users
    }
}

/// Returns the disks of this machine that have a medium, by number.
pub fn disks() -> Vec<FoundDisk> {
    (0..DISKS_MAX).filter_map(look).filter(|disk| disk.facts.size_bytes.is_some()).collect()
}

fn look(number: u32) -> Option<FoundDisk> {
    let device = open_to_ask(&Name::Disk(number).to_string()).ok()?;
    let layout = ask(&device, IOCTL_DISK_GET_DRIVE_LAYOUT_EX, &[]).unwrap_or_default();
    Some(FoundDisk { number, facts: facts(&device), partitions: buffers::partitions(&layout) })
}

/// Asks the driver of an open disk or volume.
pub fn facts(device: &File) -> Facts {
    let answer = |code: u32, question: &[u8]| ask(device, code, question).ok();
    let property = |id: u32| {
        // STORAGE_PROPERTY_QUERY: the property, PropertyStandardQuery, and no parameters.
        let question = [id.to_le_bytes(), 0_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat();
        answer(IOCTL_STORAGE_QUERY_PROPERTY, &question)
    };
    let descriptor = property(DEVICE_PROPERTY).and_then(|answer| Descriptor::parse(&answer)).unwrap_or_default();
    let sectors = property(ALIGNMENT_PROPERTY).and_then(|answer| Sectors::parse(&answer));
    let geometry = answer(IOCTL_DISK_GET_DRIVE_GEOMETRY_EX, &[]).and_then(|answer| Geometry::parse(&answer));
    let length = length(device).ok();
    Facts {
        size_bytes: length.or(geometry.map(|geometry| geometry.size_bytes)),
        sector_size: sectors.map(|sectors| sectors.logical_bytes).or(geometry.map(|geometry| geometry.sector_bytes)),
        physical_sector_size: sectors.map(|sectors| sectors.physical_bytes),
        model: descriptor.model(),
        serial: descriptor.serial,
        bus: descriptor.bus,
        write_protected: is_write_protected(device),
    }
}

/// Bytes in all of an open disk or volume, exactly.
///
/// # Errors
///
/// Those of the driver; `InvalidData` if it answers something else.
pub fn length(device: &File) -> io::Result<u64> {
    let answer = ask(device, IOCTL_DISK_GET_LENGTH_INFO, &[])?;
    buffers::length(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether the driver refuses writes; `None` if it does not say.
fn is_write_protected(device: &File) -> Option<bool> {
    match ask(device, IOCTL_DISK_IS_WRITABLE, &[]) {
        Ok(_) => Some(false),
        Err(error) if error.raw_os_error().map(i32::cast_unsigned) == Some(ERROR_WRITE_PROTECT) => Some(true),
        Err(_) => None,
    }
}

/// Lets reads of a volume go past the end of its file system, to the end of its partition. Fails for a whole disk, which
/// needs nothing of the kind.
///
/// # Errors
///
/// Those of the file system.
pub fn read_to_the_end(volume: &File) -> io::Result<()> {
    ask(volume, FSCTL_ALLOW_EXTENDED_DASD_IO, &[]).map(drop)
}
