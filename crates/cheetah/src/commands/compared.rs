//! How a comparison with what was recorded is shown, by whoever made it.

use std::fmt::Display;

use cheetah_device::ByteRange;
use cheetah_drive::{HashKind, Hashes, ImageState};

/// Bad ranges printed one by one; `--json` has them all.
const RANGES_SHOWN_MAX: usize = 20;

/// A line for each hash, with what is to be said of it.
pub fn hash_lines(hashes: &Hashes, remark: impl Fn(HashKind) -> String) -> Vec<String> {
    let line = |(kind, digest): (HashKind, &str)| match remark(kind) {
        remark if remark.is_empty() => format!("  {:<7} {digest}", kind.name()),
        remark => format!("  {:<7} {digest}  {remark}", kind.name()),
    };
    hashes.iter().map(line).collect()
}

/// A line for each of the first ranges, with why they are bad.
pub fn range_lines<W: Display>(what: &str, ranges: impl ExactSizeIterator<Item = (ByteRange, W)>) -> Vec<String> {
    let more = ranges.len().saturating_sub(RANGES_SHOWN_MAX);
    let shown = ranges.take(RANGES_SHOWN_MAX);
    let mut lines: Vec<_> = shown.map(|(range, why)| format!("  {what}: {range}: {why}")).collect();
    if more > 0 {
        lines.push(format!("  {what}: and {more} more ranges; --json lists them all"));
    }
    lines
}

/// Why a drive may differ from what was loaded into it, if there is a reason.
pub const fn since_load(state: ImageState) -> Option<&'static str> {
    match state {
        ImageState::Intact => None,
        ImageState::Modified => Some("it was opened for writing since it was loaded"),
        ImageState::Loading => Some("its load never finished"),
        ImageState::Filling => Some("it is still being filled"),
        ImageState::Incomplete => Some("parts of it could not be read from its source"),
    }
}
