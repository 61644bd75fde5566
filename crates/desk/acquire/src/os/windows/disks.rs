//! The disks of this machine.

use std::io;

use cheetah_image::disk::Disk;
use cheetah_windows::name::Name;
use cheetah_windows::{disks as found, volumes};

use super::super::FoundDisk;

pub(crate) fn disks() -> io::Result<Vec<FoundDisk>> {
    let mounted = volumes()?;
    let described = |disk: found::FoundDisk| {
        let users = disk.users(&mounted);
        let found::Facts { size_bytes, sector_size, physical_sector_size, model, serial, bus, write_protected } =
            disk.facts;
        Some(FoundDisk {
            path: Name::Disk(disk.number).to_string().into(),
            size_bytes: size_bytes?,
            bus,
            properties: Disk { sector_size, physical_sector_size, model, serial, write_protected, aoe: None },
            users,
        })
    };
    Ok(found::disks().into_iter().filter_map(described).collect())
}
