//! What the drivers of macOS tell of a disk (sys/disk.h): `/dev/disk1` by the cache, `/dev/rdisk1` past it. Its model and serial
//! number are known to I/O Kit only.

#![allow(unsafe_code, reason = "ioctls without safe wrappers")]

use std::fs::File;
use std::io::Result as IoResult;

use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

use crate::disk::Disk;

const DKIOCGETBLOCKSIZE: Opcode = opcode::read::<u32>(b'd', 24);
const DKIOCGETBLOCKCOUNT: Opcode = opcode::read::<u64>(b'd', 25);
const DKIOCISWRITABLE: Opcode = opcode::read::<u32>(b'd', 29);
const DKIOCGETPHYSICALBLOCKSIZE: Opcode = opcode::read::<u32>(b'd', 77);

pub(super) fn size_bytes(disk: &File) -> IoResult<u64> {
    // SAFETY: the request writes a number of 64 bits.
    let blocks: u64 = unsafe { ioctl(disk, Getter::<DKIOCGETBLOCKCOUNT, _>::new()) }?;
    let block_bytes = number::<DKIOCGETBLOCKSIZE>(disk)?;
    blocks.checked_mul(block_bytes.into()).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

pub(super) fn facts(disk: &File) -> Disk {
    Disk {
        sector_size: number::<DKIOCGETBLOCKSIZE>(disk).ok().filter(|bytes| *bytes > 0),
        physical_sector_size: number::<DKIOCGETPHYSICALBLOCKSIZE>(disk).ok().filter(|bytes| *bytes > 0),
        write_protected: number::<DKIOCISWRITABLE>(disk).ok().map(|writable| writable == 0),
        ..Disk::default()
    }
}

/// The answer to a request that writes a number of 32 bits, such as those above.
fn number<const REQUEST: Opcode>(disk: &File) -> IoResult<u32> {
    // SAFETY: the requests of this module with which this is called write a number of 32 bits.
    Ok(unsafe { ioctl(disk, Getter::<REQUEST, u32>::new()) }?)
}

/// For all handles of the same opening, of which there is no need for a cache either.
pub(super) fn do_not_cache(disk: &File) -> IoResult<()> {
    Ok(rustix::fs::fcntl_nocache(disk, true)?)
}
