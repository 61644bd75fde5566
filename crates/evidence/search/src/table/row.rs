//! A row.

use cheetah_device::ByteRange;

use crate::hit::{Hit, InnerHit};
use crate::node::SearchNode;
use crate::places::{AcrossHit, Place};

/// A hit, and what else is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The hit.
    pub hit: &'a Hit,
    /// The offset in the source, in bytes: of the hit's first byte, or of the compressed data that hold it.
    pub offset: u64,
    /// Of a hit inside compressed data, the way from there ([`InnerHit::inside`]).
    pub inside: Option<&'a str>,
    /// The node that found it; `None` if this process did.
    pub node: Option<&'a SearchNode>,
    /// Where it lies, in a table that says so.
    pub place: Option<RowPlace<'a>>,
    /// Of a match of a YARA rule, what else is known.
    pub rule: Option<RowRule<'a>>,
}

/// What is known of a match of a YARA rule.
#[derive(Debug, Clone, Copy)]
pub struct RowRule<'a> {
    /// The name of the file of the rule.
    pub file: &'a str,
    /// The tags of the rule, with blanks between them.
    pub tags: &'a str,
    /// The identifier of the string that matches; `None` if the condition holds without one.
    pub string: Option<&'a str>,
    /// The offset of the first byte of the match in the source; `None` if there is no string, or the content is stored otherwise than it
    /// is read.
    pub offset: Option<u64>,
    /// The length of the match in bytes; the hit may have its first ones only.
    pub len: u64,
}

/// Where a hit lies.
#[derive(Debug, Clone, Copy)]
pub struct RowPlace<'a> {
    /// The place of its first byte.
    pub place: Place<'a>,
    /// Of a hit across fragments of a file, the ranges in the source that it covers.
    pub fragments: &'a [ByteRange],
}

impl<'a> Row<'a> {
    /// The row of a hit that this node found, or this process.
    pub const fn new(hit: &'a Hit, node: Option<&'a SearchNode>) -> Self {
        Self { hit, offset: hit.offset, inside: None, node, place: None, rule: None }
    }

    /// The row of a hit across fragments of a file. No node finds these.
    pub fn across(across: &'a AcrossHit, place: Place<'a>) -> Self {
        let place = RowPlace { place, fragments: &across.fragments };
        Self { place: Some(place), ..Self::new(&across.hit, None) }
    }

    /// The row of a match of a YARA rule in a file.
    pub const fn matched(hit: &'a Hit, place: Place<'a>, rule: RowRule<'a>) -> Self {
        Self { place: Some(RowPlace { place, fragments: &[] }), rule: Some(rule), ..Self::new(hit, None) }
    }

    /// The offset in the source, in bytes; `None` if it is not known, as of some matches of rules.
    pub fn known_offset(&self) -> Option<u64> {
        self.rule.map_or(Some(self.offset), |rule| rule.offset)
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.rule.map_or(self.hit.len(), |rule| rule.len)
    }

    /// Whether it has no bytes, as a rule whose condition holds without a string.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same row, which lies here.
    #[must_use]
    pub fn lying(self, place: Option<Place<'a>>) -> Self {
        Self { place: place.map(|place| RowPlace { place, fragments: &[] }), ..self }
    }

    /// The row of a hit inside compressed data. No node unpacks these.
    pub fn inner(inner: &'a InnerHit) -> Self {
        let (hit, inside) = (&inner.hit, Some(inner.inside.as_str()));
        Self { hit, offset: inner.offset, inside, node: None, place: None, rule: None }
    }
}
