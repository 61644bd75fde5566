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

    for name in PartName::all_of(Path::new(OsStr::from_bytes(bytes))) {
        name.longer();
        // Beyond nine digits there are no parts.
        if let Some(other) = name.with_number(number)
            && let Some(again) = name.sibling(&other.file_name())
        {
            assert_eq!(again.number(), number);
        }
    }
}
