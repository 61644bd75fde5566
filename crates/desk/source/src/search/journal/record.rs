//! The records of a journal, and how hits are written in them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use cheetah_device::ByteRange;
use cheetah_device::coverage::State;
use cheetah_search::{BlockKey, CONTEXT_BYTES_MAX, Hit, InnerHit, PatternKind, Search, Truncation};
use serde::{Deserialize, Serialize};

use super::keep::KeptFile;
use super::near::Near;
use super::start::Start;

/// The most characters of a reason.
pub const WHY_CHARS_MAX: usize = 300;
/// The most characters of the way to a hit in compressed data.
const INSIDE_CHARS_MAX: usize = 1000;

/// Why a line of a journal is refused; as text, a phrase that follows "is".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// It is no record, or its check is wrong.
    #[error("no record")]
    NoRecord,
    /// The first record is of another kind, or another one is a beginning.
    #[error("a beginning elsewhere")]
    Beginning,
    /// A range is not within the source, or its parts are not those of the range.
    #[error("of a range that does not fit")]
    Range,
    /// Hits are no hits of this search, are not in order, or lie elsewhere.
    #[error("of hits that do not fit")]
    Hits,
    /// Numbers of places are less than before, or more than there are.
    #[error("of a number that does not fit")]
    Number,
    /// A file cannot be one that was saved.
    #[error("of a file that does not fit")]
    File,
    /// There are more than can be kept in memory.
    #[error("one too many")]
    TooMany,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// What is searched: the first record.
    Start(Box<Start>),
    /// Hits of the range that follows.
    Hits(Vec<HitRow>),
    /// A range that is done.
    Searched(SearchedRange),
    /// Hits of the compressed data that follow.
    InnerHits(Vec<InnerRow>),
    /// Compressed data that are done.
    Inside(InsidePlaces),
    /// Headers whose files are carved.
    Carved(CarvedFiles),
    /// All is done: files of the result.
    Finished(Vec<KeptFile>),
}

/// A hit: its offset, its pattern, its encoding among those of the pattern, the bytes before it, its length, and all its bytes
/// in base64: those before it, its own, and those after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitRow(u64, u32, u16, u32, u32, String);

/// A hit in compressed data: the offset of these, the way from there, and the hit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerRow(u64, String, HitRow);

/// A range that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchedRange {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its parts, in order.
    pub parts: Vec<RangePart>,
    /// The nodes that searched some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeRow>,
    /// The number of hits in the records before.
    pub hits: u64,
    /// What was searched where, in all, if nodes were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<Near>,
}

/// A part of a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangePart {
    /// Its length in bytes.
    pub len: u64,
    /// What became of it; `None` if it stays as it was: it was not searched again, or could not be.
    #[serde(with = "states")]
    pub state: Option<State>,
    /// Why it was not searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The node that searched it, among those of the record; none if this machine did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<usize>,
}

/// A node: its name, and its instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow(pub String, pub String);

/// Compressed data that are done: all numbers are those of all so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InsidePlaces {
    /// Places that were searched.
    pub places: u64,
    /// The bytes that were read and unpacked for them.
    pub work_bytes: u64,
    /// What became of them: streams, bytes, hits, cut, damaged, given up, invalid, unreadable.
    pub counts: [u64; 8],
    /// The number of hits in the records before.
    pub hits: u64,
    /// What was searched only partly since the record before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<TruncatedRow>,
}

/// A range that was searched only partly: its offset, its length, and the limit that was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruncatedRow(pub u64, pub u64, pub String);

/// Headers whose files are carved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CarvedFiles {
    /// Headers that are done, in all.
    pub headers: u64,
    /// Where the last files end, the last chain of files of ZIP archives, and the bytes that were read in vain.
    pub progress: [u64; 4],
    /// The archive behind that chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<u64>,
    /// What became of the headers, in all: files, bytes, inside, invalid, unreadable, given up.
    pub counts: [u64; 6],
    /// The files that were saved since the record before.
    pub files: Vec<CarvedRow>,
}

/// A file that was carved: its offset, length, format and SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarvedRow(pub u64, pub u64, pub String, pub String);

impl HitRow {
    /// The row of a hit; `None` if it is no hit of this search. Of blocks of known files, the key is kept, and of the beginnings of
    /// compressed data no context.
    pub fn of(hit: &Hit, search: &Search) -> Option<Self> {
        let pattern = search.patterns().get(hit.pattern)?;
        let encoding = pattern.encodings.iter().position(|encoding| *encoding == hit.encoding)?;
        let block = match pattern.kind {
            PatternKind::Block => Some(BlockKey::to_bytes(&[BlockKey::in_hit(&hit.bytes)?])),
            _ => None,
        };
        let bytes = block.as_deref().unwrap_or(&hit.bytes);
        let (before, after) = match pattern.kind {
            PatternKind::Block | PatternKind::Compressed => (&[][..], &[][..]),
            _ => (&hit.before[..], &hit.after[..]),
        };
        let around = STANDARD_NO_PAD.encode([before, bytes, after].concat());
        let number = |len: usize| u32::try_from(len).ok();
        let (index, encoding) = (number(hit.pattern)?, u16::try_from(encoding).ok()?);
        Some(Self(hit.offset, index, encoding, number(before.len())?, number(bytes.len())?, around))
    }

    /// The hit; `None` if it is none of this search.
    pub fn hit(&self, search: &Search) -> Option<Hit> {
        let Self(offset, pattern, encoding, before, len, around) = self;
        let (pattern, before, len) = (*pattern as usize, *before as usize, *len as usize);
        let encoding = *search.patterns().get(pattern)?.encodings.get(usize::from(*encoding))?;
        let around = STANDARD_NO_PAD.decode(around).ok()?;
        let (before, rest) = around.split_at_checked(before)?;
        let (bytes, after) = rest.split_at_checked(len)?;
        let is_hit = !bytes.is_empty() && before.len().max(after.len()) <= CONTEXT_BYTES_MAX;
        let [bytes, before, after] = [bytes, before, after].map(<[u8]>::to_vec);
        is_hit.then_some(Hit { offset: *offset, pattern, encoding, bytes, before, after })
    }
}

impl TruncatedRow {
    /// The row of a range.
    pub fn of(truncation: &Truncation) -> Self {
        let Truncation { range, limit } = truncation;
        Self(range.offset, range.len, limit.name().to_owned())
    }

    /// The range, in a source of this size; `None` if it does not lie there.
    pub fn truncation(&self, size: u64) -> Option<Truncation> {
        let Self(offset, len, limit) = self;
        let range = ByteRange::new(*offset, *len);
        let limit = limit.parse().ok()?;
        (*len > 0 && range.fits(size)).then_some(Truncation { range, limit })
    }
}

impl InnerRow {
    /// The row of a hit; `None` if it is no hit of this search.
    pub fn of(inner: &InnerHit, search: &Search) -> Option<Self> {
        Some(Self(inner.offset, inner.inside.clone(), HitRow::of(&inner.hit, search)?))
    }

    /// The hit; `None` if it is none of this search.
    pub fn hit(&self, search: &Search) -> Option<InnerHit> {
        let Self(offset, inside, row) = self;
        let is_way = inside.len() <= INSIDE_CHARS_MAX
            && inside.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        Some(InnerHit { offset: *offset, inside: inside.clone(), hit: row.hit(search).filter(|_| is_way)? })
    }
}

/// A state by its symbol in a map; none as `=`.
mod states {
    use cheetah_device::coverage::State;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[allow(clippy::trivially_copy_pass_by_ref, clippy::ref_option)]
    pub fn serialize<S: Serializer>(state: &Option<State>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_char(match state {
            Some(State::Read) => '+',
            Some(State::Unreadable) => '-',
            Some(State::Unread) => '?',
            None => '=',
        })
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<State>, D::Error> {
        match char::deserialize(deserializer)? {
            '+' => Ok(Some(State::Read)),
            '-' => Ok(Some(State::Unreadable)),
            '?' => Ok(Some(State::Unread)),
            '=' => Ok(None),
            _ => Err(D::Error::custom("no state")),
        }
    }
}

#[cfg(test)]
mod tests {
    use cheetah_search::SearchLimit;

    use super::*;

    #[test]
    fn a_range_that_was_searched_partly_is_read_again_and_one_that_does_not_fit_is_refused() {
        let truncation = Truncation { range: ByteRange::new(600, 20), limit: SearchLimit::Depth };
        assert_eq!(TruncatedRow::of(&truncation).truncation(620), Some(truncation));
        let row = |offset, len, limit: &str| TruncatedRow(offset, len, limit.to_owned()).truncation(10_000);
        assert!(row(9_999, 1, "size").is_some());
        for bad in [row(9_999, 2, "size"), row(u64::MAX, u64::MAX, "size"), row(0, 0, "size"), row(0, 1, "time")] {
            assert_eq!(bad, None);
        }
    }
}
