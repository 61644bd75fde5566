//! What a report tells.

use cheetah_search::{Histogram, Order, Search};
use cheetah_source::OpenedSource;
use time::OffsetDateTime;

use super::samples::Samples;
use crate::answers::search::Search as Answer;

/// What is known of a search beside its answer.
pub struct About {
    /// When it began.
    pub(super) began: OffsetDateTime,
    /// The kind of the source, such as `E01`.
    pub(super) kind: &'static str,
    /// Hashes that the source stores: claims, not computed values.
    pub(super) hashes: Vec<(&'static str, String)>,
    /// What is lost or in doubt of the source, a sentence each.
    pub(super) doubts: Vec<String>,
    /// Whether the case of letters was ignored.
    pub(super) ignore_case: bool,
    /// Bytes before and after each hit.
    pub(super) context_bytes: usize,
    /// The encodings that were chosen.
    pub(super) encodings: Vec<String>,
}

/// What a report tells.
pub struct Told<'a> {
    /// The answer of the command.
    pub answer: &'a Answer<'a>,
    /// What was searched for.
    pub search: &'a Search,
    /// What else is known.
    pub about: &'a About,
}

/// What a report shows of the hits.
pub struct Made {
    /// How often features were found.
    pub histograms: Vec<Histogram>,
    /// The first hits.
    pub samples: Samples,
}

impl About {
    /// A search that begins now.
    pub fn new(opened: &OpenedSource, order: &Order) -> Self {
        let mut doubts = opened.lost.clone();
        doubts.extend(opened.doubts.iter().filter(|doubt| !opened.lost.contains(doubt)).cloned());
        let hashes = opened.identity.hashes.iter();
        Self {
            began: OffsetDateTime::now_utc(),
            kind: opened.identity.kind.name(),
            hashes: hashes.map(|(kind, digest)| (kind.name(), digest.to_owned())).collect(),
            doubts,
            ignore_case: order.ignore_case,
            context_bytes: order.context_bytes,
            encodings: order.encodings.iter().map(|encoding| encoding.name()).collect(),
        }
    }

    /// The same search, begun at this time, in seconds since 1970.
    #[must_use]
    pub fn since(self, begun_s: u64) -> Self {
        let begun = i64::try_from(begun_s).ok().and_then(|begun| OffsetDateTime::from_unix_timestamp(begun).ok());
        Self { began: begun.unwrap_or(self.began), ..self }
    }
}
