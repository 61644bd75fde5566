//! Segments on another machine.

use std::io::{Error as IoError, Result as IoResult};

use cheetah_device::ByteRange;

use super::segments::Segments;
use crate::behind::FileBehind;
use crate::file::ImageFile as _;
use crate::unpack::Blocking;

/// Segments that are read through devices.
pub(super) struct Remote {
    pub segments: Vec<FileBehind>,
    /// The name of the one that would follow.
    pub missing: String,
}

impl Segments for Remote {
    fn count(&self) -> usize {
        self.segments.len()
    }

    fn name(&self, segment: usize) -> String {
        self.segments.get(segment).map_or_else(|| self.missing.clone(), |file| file.name().to_owned())
    }

    fn len(&self, segment: usize) -> u64 {
        self.segments[segment].len()
    }

    fn read(&self, segment: usize, offset: u64, buf: &mut [u8], blocking: Blocking) -> IoResult<bool> {
        if matches!(blocking, Blocking::Refused) {
            return Ok(false);
        }
        let read = self.segments[segment].read(ByteRange::new(offset, buf.len() as u64));
        buf.copy_from_slice(&read.map_err(IoError::other)?);
        Ok(true)
    }
}
