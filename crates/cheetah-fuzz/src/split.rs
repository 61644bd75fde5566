//! File names and signatures: format detection does not panic, and a part's name parses back to its number.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cheetah_image::detect::{END_LEN, Footer, START_LEN, detect};
use cheetah_image::split::PartName;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((number, bytes)) = data.split_first_chunk() else { return };
    let number = u64::from_le_bytes(*number);
    let (start, end) = (&bytes[..bytes.len().min(START_LEN)], &bytes[bytes.len().saturating_sub(END_LEN)..]);
    detect(start, end, number);
    Footer::parse(end);

    let Some(name) = PartName::of(Path::new(OsStr::from_bytes(bytes))) else { return };
    name.firsts();
    if let Some(other) = name.with_number(number) {
        // Beyond nine digits there are no parts.
        if let Some(other) = PartName::of(Path::new(&other)) {
            assert_eq!(other.number(), number);
        }
    }
}
