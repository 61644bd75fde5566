//! The headers of files that a search found, at which files are carved.

use cheetah_carve::Format;
use cheetah_search::{Finder, Hit, PatternKind, Search};

/// The maximum number of headers that are remembered: more are no use, and take memory.
const HEADERS_MAX: usize = 10_000_000;

/// The headers that a search has found, of formats whose files can be carved.
pub struct Headers {
    /// The format of each pattern.
    formats: Vec<Option<Format>>,
    found: Vec<(u64, Format)>,
    /// Headers that were found when there was no room.
    left_out: u64,
}

impl Headers {
    /// None yet.
    pub fn new(search: &Search) -> Self {
        let formats = search.patterns().iter().map(|pattern| match pattern.kind {
            PatternKind::Header => pattern.name.parse().ok().and_then(format),
            _ => None,
        });
        Self { formats: formats.collect(), found: Vec::new(), left_out: 0 }
    }

    /// Adds a hit, if it is such a header. Hits come in the order of their offsets.
    pub fn add(&mut self, hit: &Hit) {
        let format = self.formats.get(hit.pattern).copied().flatten();
        match format {
            Some(format) if self.found.len() < HEADERS_MAX => self.found.push((hit.offset, format)),
            Some(_) => self.left_out += 1,
            None => {}
        }
    }

    /// Where they begin, in order.
    pub fn found(&self) -> &[(u64, Format)] {
        &self.found
    }

    /// The headers that were found when there was no room.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// The format whose files have such a header, if they can be carved. Each has one name wherever it is known.
fn format(finder: Finder) -> Option<Format> {
    let Finder::Header(kind) = finder else { return None };
    Format::of_name(kind.name())
}

#[cfg(test)]
mod tests {
    use cheetah_search::FileKind;

    use super::*;

    #[test]
    fn each_format_that_can_be_carved_is_found_by_its_header() {
        let formats: Vec<_> = FileKind::ALL.into_iter().filter_map(|kind| format(Finder::Header(kind))).collect();
        assert_eq!(formats.len(), Format::ALL.len(), "{formats:?}");
        assert_eq!(format(Finder::Header(FileKind::Pe)), None);
    }
}
