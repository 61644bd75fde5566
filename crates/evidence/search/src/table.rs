//! The table of hits, as CSV (RFC 4180).

use std::io::{self, Write};

use cheetah_device::ByteRange;
use csv::Writer;

use crate::hit::{Hit, InnerHit};
use crate::places::{AcrossHit, Place};
use crate::search::Search;

/// The names of the columns.
const COLUMNS: [&str; 7] = ["offset", "length", "pattern", "encoding", "text", "context", "inside"];
/// The names of the columns behind them, of a table that says where hits lie.
const PLACE_COLUMNS: [&str; 6] = ["volume", "path", "state", "file_offset", "others", "fragments"];

/// A table of hits that is written row by row.
pub struct HitTable<W: Write> {
    rows: Writer<W>,
}

impl<W: Write> HitTable<W> {
    /// Begins a table, with the names of its columns.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(to: W) -> io::Result<Self> {
        let mut rows = Writer::from_writer(to);
        rows.write_record(COLUMNS)?;
        Ok(Self { rows })
    }

    /// Begins a table that also says where hits lie: each row then has a place.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn with_places(to: W) -> io::Result<Self> {
        let mut rows = Writer::from_writer(to);
        rows.write_record(COLUMNS.iter().chain(&PLACE_COLUMNS))?;
        Ok(Self { rows })
    }

    /// Adds a row.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add(&mut self, hit: &Hit, place: Option<&Place<'_>>, search: &Search) -> io::Result<()> {
        self.add_row((hit.offset, ""), hit, search, &place.map(|place| place_cells(place, &[])))
    }

    /// Adds the row of a hit across fragments of a file, of a table that says where hits lie.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add_across(&mut self, across: &AcrossHit, place: &Place<'_>, search: &Search) -> io::Result<()> {
        let cells = place_cells(place, &across.fragments);
        self.add_row((across.hit.offset, ""), &across.hit, search, &Some(cells))
    }

    /// Adds the row of a hit inside compressed data.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add_inner(&mut self, inner: &InnerHit, place: Option<&Place<'_>>, search: &Search) -> io::Result<()> {
        let cells = place.map(|place| place_cells(place, &[]));
        self.add_row((inner.offset, &inner.inside), &inner.hit, search, &cells)
    }

    fn add_row(
        &mut self,
        (offset, inside): (u64, &str),
        hit: &Hit,
        search: &Search,
        place: &Option<[String; PLACE_COLUMNS.len()]>,
    ) -> io::Result<()> {
        let name = search.patterns().get(hit.pattern).map_or("", |pattern| pattern.name.as_str());
        let (offset, length) = (offset.to_string(), hit.len().to_string());
        let (encoding, text, context) = (hit.encoding.name(), hit.text(), hit.context());
        let cells = [offset.as_str(), &length, name, &encoding, &text, &context, inside];
        self.rows.write_record(cells.into_iter().chain(place.iter().flatten().map(String::as_str)))?;
        Ok(())
    }

    /// Writes what is left, and returns the writer below.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(self) -> io::Result<W> {
        self.rows.into_inner().map_err(csv::IntoInnerError::into_error)
    }
}

/// The cells of a place, in the order of their columns.
fn place_cells(place: &Place<'_>, fragments: &[ByteRange]) -> [String; PLACE_COLUMNS.len()] {
    let fragments: Vec<_> = fragments.iter().map(|range| format!("{}:{}", range.offset, range.len)).collect();
    [
        place.volume.map_or_else(String::new, |volume| volume.to_string()),
        place.path.unwrap_or_default().to_owned(),
        place.state.name().to_owned(),
        place.file_offset.map_or_else(String::new, |offset| offset.to_string()),
        place.others.to_string(),
        fragments.join(" "),
    ]
}
