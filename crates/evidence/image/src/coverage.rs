//! The coverage map beside an incomplete image: which ranges were read, unread or unreadable.
//!
//! It is a map file in the format of GNU ddrescue, so the map of an image made with that program is used as well, if it
//! has this name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::coverage::State;
use cheetah_device::coverage_filter::CoverageFilter;
use cheetah_device::{ByteRange, Coverage, Size, coalesce};

use crate::own_file::OwnFile;
use crate::source::Source;
use cheetah_error::{Error, Result};

/// A map of any program: its content is checked in full.
const MAP: OwnFile = OwnFile { name: "coverage map", begins: |_| true };
/// The maximum length of a map.
pub const MAP_LEN_MAX: u64 = 256 << 20;

/// Returns the path of an image's coverage map: `x.raw.map` beside `x.raw`.
pub fn map_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".map");
    name.into()
}

/// Reads the map at `path`; `None` if there is none.
///
/// # Errors
///
/// `Kind::Evidence` if the file is not a map, or larger than 256 MiB; `Kind::Misuse` if it is a symbolic link or
/// not a regular file.
pub fn read_map(path: &Path) -> Result<Option<Coverage>> {
    let Some(bytes) = MAP.read(path, MAP_LEN_MAX)? else { return Ok(None) };
    parse_map(bytes, &path.display().to_string()).map(Some)
}

/// Parses the content of the map that errors call `name`.
///
/// # Errors
///
/// `Kind::Evidence` if it is not a map, or larger than 256 MiB.
pub fn parse_map(bytes: Vec<u8>, name: &str) -> Result<Coverage> {
    let refuse = |why: &dyn std::fmt::Display| Error::evidence(format!("{name}: {why}"));
    if bytes.len() as u64 > MAP_LEN_MAX {
        return Err(refuse(&"too large for a coverage map"));
    }
    let text = String::from_utf8(bytes).map_err(|_| refuse(&"not a coverage map"))?;
    text.parse().map_err(|error| refuse(&error))
}

/// Applies the map beside `image`, if there is one: reads of ranges that the map marks as unread or unreadable fail.
pub(crate) fn applied(source: Source, image: &Path) -> Result<Source> {
    let path = map_path(image);
    match read_map(&path)? {
        Some(map) => apply(source, map, (&path.display().to_string(), &image.display().to_string())),
        None => Ok(source),
    }
}

/// Applies a map: reads of ranges that it marks as unread or unreadable fail. Errors call the map and the image by these names.
///
/// # Errors
///
/// `Kind::Evidence` if it is the map of an image of another size.
pub fn apply(source: Source, map: Coverage, (map_name, image_name): (&str, &str)) -> Result<Source> {
    let mut identity = source.identity.clone();
    if map.size() != identity.size {
        return Err(Error::evidence(format!(
            "{map_name} is the map of an image of {}, but {image_name} has {}: replace the map with the right one, or \
             remove it",
            Size(map.size()),
            Size(identity.size)
        )));
    }
    if map.is_whole() {
        return Ok(source);
    }
    let missing = map.runs(ByteRange::new(0, map.size())).filter(|(_, state)| *state != State::Read);
    identity.unreadable.extend(missing.map(|(run, _)| run));
    identity.unreadable = coalesce(identity.unreadable, 0);
    let device = Arc::new(CoverageFilter::new(source.device.clone(), map, image_name, "when the image was made"));
    Ok(Source { device, identity, ..source })
}
