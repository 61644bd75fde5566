//! The first hits of each pattern.

use std::collections::BTreeMap;
use std::sync::Arc;

use cheetah_search::{Hit, Row, Search};

/// Hits of a pattern that the report shows.
const SAMPLES_OF_PATTERN_MAX: usize = 10;
/// Hits of all patterns that the report shows.
const SAMPLES_MAX: usize = 2000;
/// Bytes of a hit that the report shows, and bytes before and after it. Both are even, as characters of UTF-16
/// have two or four bytes.
const HIT_BYTES_MAX: usize = 256;
const SIDE_BYTES_MAX: usize = 128;

/// The first hits of each pattern.
#[derive(Default)]
pub struct Samples {
    by_pattern: BTreeMap<usize, Vec<Sample>>,
    taken: usize,
}

/// A hit that the report shows.
pub struct Sample {
    /// The offset in the source, and the way from there into compressed data.
    pub place: String,
    /// Its length in bytes.
    pub len: u64,
    /// The encoding in which it was found.
    pub encoding: String,
    /// The text around it, itself included.
    pub context: String,
    /// Whether there is more of that.
    pub is_cut: bool,
    /// The name of the node that found it, if one did.
    pub node: Option<Arc<str>>,
}

impl Samples {
    /// The first hits of a pattern, by its index.
    pub fn of(&self, pattern: usize) -> &[Sample] {
        self.by_pattern.get(&pattern).map(Vec::as_slice).unwrap_or_default()
    }

    /// Keeps a hit, if there is room.
    pub fn push(&mut self, row: &Row<'_>, search: &Search) {
        if self.taken >= SAMPLES_MAX || self.of(row.hit.pattern).len() >= SAMPLES_OF_PATTERN_MAX {
            return;
        }
        let short = shortened(row.hit);
        let position = search.position(row.hit);
        let is_cut = position.is_none() && short.room_bytes() < row.hit.room_bytes();
        self.by_pattern.entry(row.hit.pattern).or_default().push(Sample {
            place: place(row),
            len: row.len(),
            encoding: row.hit.encoding.name(),
            context: position.unwrap_or_else(|| short.context()),
            is_cut,
            node: row.node.map(|node| node.name.clone()),
        });
        self.taken += 1;
    }
}

/// Where a hit lies: its offset, and the way from there into compressed data; of a match of a rule, also its file.
fn place(row: &Row<'_>) -> String {
    match (row.rule, row.inside) {
        (None, None) => row.offset.to_string(),
        (None, Some(inside)) => format!("{}-{inside}", row.offset),
        (Some(rule), _) => {
            let offset = rule.offset.map(|offset| offset.to_string());
            let path = row.place.and_then(|place| place.place.path).map(str::to_owned);
            [offset, path].into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
    }
}

/// A hit of which long parts are cut, those far from its beginning.
fn shortened(hit: &Hit) -> Hit {
    let (before, bytes) = (&hit.before, &hit.bytes);
    let after: &[u8] = if bytes.len() > HIT_BYTES_MAX { &[] } else { &hit.after };
    Hit {
        before: before.get(before.len().saturating_sub(SIDE_BYTES_MAX)..).unwrap_or_default().to_vec(),
        bytes: bytes.iter().take(HIT_BYTES_MAX).copied().collect(),
        after: after.iter().take(SIDE_BYTES_MAX).copied().collect(),
        ..*hit
    }
}
