//! The label of a disk: metadata that are not encrypted, which name the log of the others. There are several copies.

use cheetah_device::le::{u16_at, u32_at, u64_at};
use futures::future::join_all;

use super::super::part::Part;
use super::super::plist::Value;
use super::super::{Flaw, Result};
use super::header::{Header, is_whole};
use super::objects::{BLOCK_BYTES, BLOCK_HEADER_BYTES, LogPlace};
use crate::checks::Checks;

/// The part of a label that is read: its block, and the description of the group behind it.
const LABEL_BYTES: u64 = 2 * BLOCK_BYTES;
const KIND: u16 = 0x11;
const DESCRIPTION_BYTES: usize = 48;
/// The longest log that is read, in bytes. They have some ten MiB.
const LOG_BYTES_MAX: u64 = 256 << 20;
/// A place is the number of a block, and in the highest 16 bits that of a disk.
const DISK_SHIFT: u32 = 48;

/// What a label says.
pub(super) struct Label {
    /// The number of this disk in its group.
    pub disk: u64,
    /// The name of the group.
    pub group: String,
    /// The copies of the log that are on this disk.
    pub copies: Vec<LogPlace>,
}

impl Label {
    /// Reads all copies; the last one that was written counts.
    pub async fn read(part: &Part<'_>, header: &Header, checks: Checks) -> Result<Self> {
        let reads = join_all(header.labels_at.iter().map(|at| part.read(*at, LABEL_BYTES))).await;
        let mut newest: Option<(u64, Self)> = None;
        let mut why = Flaw::Damaged("no copy of its label is named");
        for label in reads {
            match label.and_then(|bytes| Self::parse(&bytes, header, checks)) {
                Ok((transaction, label)) => {
                    if newest.as_ref().is_none_or(|(known, _)| *known < transaction) {
                        newest = Some((transaction, label));
                    }
                }
                Err(flaw) => why = flaw,
            }
        }
        newest.map(|(_, label)| label).ok_or(why)
    }

    /// Parses one copy, and returns the transaction that wrote it.
    fn parse(bytes: &[u8], header: &Header, checks: Checks) -> Result<(u64, Self)> {
        let wrong = || Flaw::Damaged("no copy of its label is whole");
        let block = bytes.get(..BLOCK_BYTES as usize).ok_or_else(wrong)?;
        if u16_at(block, 10) != KIND || checks == Checks::Compared && !is_whole(block) {
            return Err(wrong());
        }
        let content = &block[BLOCK_HEADER_BYTES..];
        let slice = |at: u32, len: usize| bytes.get(at as usize..)?.get(..len);
        let description = slice(u32_at(content, 156), DESCRIPTION_BYTES).ok_or_else(wrong)?;
        let len = u64_at(description, 8).checked_mul(header.block_bytes).filter(|len| *len <= LOG_BYTES_MAX);
        let len = len.ok_or(Flaw::Damaged("the length of its metadata is wrong"))?;
        let disk = u64::from(u16_at(content, 174));
        let places = [32, 40].map(|at| u64_at(description, at)).into_iter();
        let here = places.filter(|place| place >> DISK_SHIFT == disk).map(|place| place & ((1 << DISK_SHIFT) - 1));
        let copies: Vec<_> = here
            .filter_map(|block| block.checked_mul(header.block_bytes))
            .filter(|at| *at > 0)
            .map(|at| LogPlace { at, len: len - len % BLOCK_BYTES })
            .collect();
        if copies.is_empty() {
            return Err(Flaw::Unsupported("a group of several disks whose metadata are on another one".to_owned()));
        }
        let list = slice(u32_at(content, 160), u32_at(content, 164) as usize).and_then(Value::parse);
        let group = list.map(|list| list.name("com.apple.corestorage.lvg.name")).unwrap_or_default();
        Ok((u64_at(block, 16), Self { disk, group, copies }))
    }
}
