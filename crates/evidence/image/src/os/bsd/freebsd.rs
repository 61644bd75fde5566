//! What the drivers of FreeBSD tell of a disk (sys/disk.h), which is a character device.

#![allow(unsafe_code, reason = "ioctls without safe wrappers")]

use std::ffi::{c_int, c_uint};
use std::fs::File;
use std::io::Result as IoResult;

use rustix::ioctl::{Getter, Opcode, Updater, ioctl, opcode};

use crate::clean::clean;
use crate::disk::Disk;

/// The length of texts: `DISK_IDENT_SIZE`.
const TEXT_BYTES: usize = 256;
/// The length of the name of an attribute.
const NAME_BYTES: usize = 64;

const DIOCGSECTORSIZE: Opcode = opcode::read::<c_uint>(b'd', 128);
const DIOCGMEDIASIZE: Opcode = opcode::read::<i64>(b'd', 129);
const DIOCGIDENT: Opcode = opcode::read::<[u8; TEXT_BYTES]>(b'd', 137);
const DIOCGATTR: Opcode = opcode::read_write::<Attribute>(b'd', 142);

/// `struct diocgattr_arg`: the name of an attribute and the length of its value, which the driver writes.
#[repr(C)]
struct Attribute {
    name: [u8; NAME_BYTES],
    len: c_int,
    value: Value,
}

/// A union, of which texts are the largest member, and numbers of 64 bits another.
#[repr(C, align(8))]
struct Value([u8; TEXT_BYTES]);

pub(super) fn size_bytes(disk: &File) -> IoResult<u64> {
    // SAFETY: the request writes a number of 64 bits.
    let size: i64 = unsafe { ioctl(disk, Getter::<DIOCGMEDIASIZE, _>::new()) }?;
    u64::try_from(size).map_err(|_| std::io::ErrorKind::InvalidData.into())
}

pub(super) fn facts(disk: &File) -> Disk {
    Disk { sector_size: sector_bytes(disk), model: model(disk), serial: serial(disk), ..Disk::default() }
}

fn sector_bytes(disk: &File) -> Option<u32> {
    // SAFETY: the request writes an unsigned int.
    let bytes: c_uint = unsafe { ioctl(disk, Getter::<DIOCGSECTORSIZE, _>::new()) }.ok()?;
    (bytes > 0).then_some(bytes)
}

fn serial(disk: &File) -> Option<String> {
    // SAFETY: the request writes this many bytes, of which every value is valid.
    let ident: [u8; TEXT_BYTES] = unsafe { ioctl(disk, Getter::<DIOCGIDENT, _>::new()) }.ok()?;
    text(&ident)
}

fn model(disk: &File) -> Option<String> {
    const NAME: &[u8] = b"GEOM::descr";
    let len = c_int::try_from(TEXT_BYTES).ok()?;
    let mut attribute = Attribute { name: [0; NAME_BYTES], len, value: Value([0; TEXT_BYTES]) };
    attribute.name.get_mut(..NAME.len())?.copy_from_slice(NAME);
    // SAFETY: the request reads the name and the length, and writes at most as many bytes of the value, of which every value is
    // valid.
    unsafe { ioctl(disk, Updater::<DIOCGATTR, _>::new(&mut attribute)) }.ok()?;
    text(&attribute.value.0)
}

/// The text up to the first zero, if there is any.
fn text(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    let text = clean(&String::from_utf8_lossy(text)).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// There is no cache of disks.
pub(super) fn do_not_cache(_disk: &File) -> IoResult<()> {
    Ok(())
}

// The sizes are part of the numbers of the requests.
const _: () = assert!(size_of::<Attribute>() == 328);
