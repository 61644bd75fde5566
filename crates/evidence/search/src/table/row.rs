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
        Self { hit, offset: hit.offset, inside: None, node, place: None }
    }

    /// The row of a hit across fragments of a file. No node finds these.
    pub fn across(across: &'a AcrossHit, place: Place<'a>) -> Self {
        let place = RowPlace { place, fragments: &across.fragments };
        Self { place: Some(place), ..Self::new(&across.hit, None) }
    }

    /// The same row, which lies here.
    #[must_use]
    pub fn lying(self, place: Option<Place<'a>>) -> Self {
        Self { place: place.map(|place| RowPlace { place, fragments: &[] }), ..self }
    }

    /// The row of a hit inside compressed data. No node unpacks these.
    pub fn inner(inner: &'a InnerHit) -> Self {
        Self { hit: &inner.hit, offset: inner.offset, inside: Some(&inner.inside), node: None, place: None }
    }
}
