//! The container: a ZIP64 archive whose members ("segments") are found by name and read in place.

use std::collections::HashMap;
use std::sync::OnceLock;

use bytes::Bytes;
use cheetah_device::{ByteRange, Error as DeviceError};
use libdeflater::Decompressor;

use super::directory;
use crate::file::SharedFile;
use cheetah_error::{Error, Result};

/// A local file header without its variable part (APPNOTE.TXT, 4.3.7).
const LOCAL_HEADER_LEN: u64 = 30;

/// An open container.
pub(super) struct Volume {
    file: SharedFile,
    members: Vec<Member>,
    by_name: HashMap<Box<str>, usize>,
}

/// A segment.
pub(super) struct Member {
    header_start: u64,
    /// The offset of its content, once known.
    data_start: OnceLock<u64>,
    packed_len: u64,
    len: u64,
    crc: u32,
    deflated: bool,
}

impl Volume {
    /// Reads the directory of the archive.
    pub fn open(file: SharedFile) -> Result<Self> {
        let size = file.len();
        let entries = directory::entries(&*file)?;
        let (mut members, mut by_name) = (Vec::with_capacity(entries.len()), HashMap::with_capacity(entries.len()));
        for entry in entries {
            let name = entry.name;
            let member = Member {
                header_start: entry.header_start,
                data_start: OnceLock::new(),
                packed_len: entry.packed_len,
                len: entry.len,
                crc: entry.crc,
                deflated: match entry.method {
                    _ if entry.encrypted => {
                        return Err(Error::failed(format!("{}: its member {name} is encrypted", file.name())));
                    }
                    0 if entry.len == entry.packed_len => false,
                    8 => true,
                    other => {
                        let why = format!("its member {name} has an unsupported compression ({other})");
                        return Err(Error::failed(format!("{}: {why}", file.name())));
                    }
                },
            };
            let end =
                member.header_start.checked_add(LOCAL_HEADER_LEN).and_then(|at| at.checked_add(member.packed_len));
            if end.is_none_or(|end| end > size) {
                return Err(Error::evidence(format!(
                    "{}: its member {name} lies beyond the end of the file: the file is cut short or damaged",
                    file.name()
                )));
            }
            by_name.insert(name, members.len());
            members.push(member);
        }
        Ok(Self { file, members, by_name })
    }

    /// Its name in errors.
    pub fn path(&self) -> &str {
        self.file.name()
    }

    /// Finds the segment with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Drops the names, which take most of the memory.
    pub fn forget_names(&mut self) {
        self.by_name = HashMap::new();
    }

    /// The size of a segment, in bytes.
    pub fn len(&self, member: usize) -> u64 {
        self.members[member].len
    }

    /// Whether ranges of the segment can be read.
    pub fn is_stored(&self, member: usize) -> bool {
        !self.members[member].deflated
    }

    /// Reads the whole segment with this name, and checks its CRC. `None` if there is none.
    pub fn whole(&self, name: &str, len_max: u64) -> Result<Option<Vec<u8>>> {
        let Some(member) = self.find(name) else { return Ok(None) };
        let found = &self.members[member];
        let fail = |why: &str| Error::evidence(format!("{}: its member {name} {why}", self.path()));
        if found.len.max(found.packed_len) > len_max {
            return Err(Error::failed(format!("{}: its member {name} has more than {len_max} bytes", self.path())));
        }
        let packed = self.packed(member, ByteRange::new(0, found.packed_len));
        let packed = packed.map_err(Error::device(format!("reading {name} in {}", self.path())))?;
        let bytes = if found.deflated {
            let len = usize::try_from(found.len).map_err(|_| fail("is too large"))?;
            let mut out = vec![0; len];
            match Decompressor::new().deflate_decompress(&packed, &mut out) {
                Ok(unpacked) if unpacked == len => out,
                _ => return Err(fail("cannot be decompressed: the file is damaged")),
            }
        } else {
            packed.into()
        };
        if libdeflater::crc32(&bytes) != found.crc {
            return Err(fail("does not match its checksum: the file is damaged"));
        }
        Ok(Some(bytes))
    }

    /// Reads a range of an uncompressed segment.
    pub fn read(&self, member: usize, range: ByteRange) -> cheetah_device::Result<Bytes> {
        if self.members[member].deflated {
            return Err(DeviceError::Invalid(format!("{}: a range of a compressed member", self.path()).into()));
        }
        self.packed(member, range)
    }

    fn packed(&self, member: usize, range: ByteRange) -> cheetah_device::Result<Bytes> {
        let found = &self.members[member];
        if !range.fits(found.packed_len) {
            return Err(DeviceError::OutOfBounds { range, size: found.packed_len });
        }
        let start = match found.data_start.get() {
            Some(start) => *start,
            None => {
                let start = self.data_start(found.header_start)?;
                *found.data_start.get_or_init(|| start)
            }
        };
        let range = ByteRange::new(start.saturating_add(range.offset), range.len);
        self.file.read(range)
    }

    /// The offset after the local header, its name and its extra field.
    fn data_start(&self, header_start: u64) -> cheetah_device::Result<u64> {
        let header = self.file.read(ByteRange::new(header_start, LOCAL_HEADER_LEN))?;
        let lengths = header.get(26..).and_then(<[u8]>::first_chunk).filter(|_| header.starts_with(b"PK\x03\x04"));
        let Some(&[name_low, name_high, extra_low, extra_high]) = lengths else {
            let range = ByteRange::new(header_start, LOCAL_HEADER_LEN);
            return Err(DeviceError::Corrupt { device: self.path().into(), range });
        };
        let (name, extra) = (u16::from_le_bytes([name_low, name_high]), u16::from_le_bytes([extra_low, extra_high]));
        Ok(header_start + LOCAL_HEADER_LEN + u64::from(name) + u64::from(extra))
    }
}
