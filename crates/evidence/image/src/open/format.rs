//! The format of a file.

use bytes::Bytes;
use cheetah_device::ByteRange;

use crate::detect::{self, Compression, Format, zstd};
use crate::file::ImageFile;
use cheetah_error::{Error, Result};

/// The maximum number of reads that look for the first frame of a zstd file.
const FRAME_LOOKS_MAX: usize = 1000;

/// The format of a file, and its first bytes. Blocks.
pub(super) fn format(file: &dyn ImageFile) -> Result<(Format, Bytes)> {
    let size = file.len();
    let all = ByteRange::new(0, size);
    let read = |range: ByteRange| {
        let read = file.read(range.intersection(all).unwrap_or_default());
        read.map_err(Error::device(format!("looking at {}", file.name())))
    };
    let start = read(ByteRange::new(0, detect::START_LEN as u64))?;
    let end = read(ByteRange::between(size.saturating_sub(detect::END_LEN as u64), size))?;
    let format = detect::detect(&start, &end, size);
    let (mut at, mut bytes) = (0, start.clone());
    for _ in 0..FRAME_LOOKS_MAX {
        match zstd::first_frame(&bytes, at) {
            zstd::Begins::WithFrame if format == Format::Unknown => {
                return Ok((Format::Compressed(Compression::Zstd), start));
            }
            zstd::Begins::Skipping(next) if format == Format::Unknown && next < size => at = next,
            _ => break,
        }
        bytes = read(ByteRange::new(at, detect::START_LEN as u64))?;
    }
    Ok((format, start))
}
