//! A row.

use crate::hit::{Hit, InnerHit};
use crate::node::SearchNode;

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
}

impl<'a> Row<'a> {
    /// The row of a hit that this node found, or this process.
    pub const fn new(hit: &'a Hit, node: Option<&'a SearchNode>) -> Self {
        Self { hit, offset: hit.offset, inside: None, node }
    }

    /// The row of a hit inside compressed data. No node unpacks these.
    pub fn inner(inner: &'a InnerHit) -> Self {
        Self { hit: &inner.hit, offset: inner.offset, inside: Some(&inner.inside), node: None }
    }
}
