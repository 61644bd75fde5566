//! The table of hits, as CSV (RFC 4180).

use std::io::{self, Write};

use csv::Writer;

use crate::hit::{Hit, InnerHit};
use crate::search::Search;

/// The names of the columns.
const COLUMNS: [&str; 7] = ["offset", "length", "pattern", "encoding", "text", "context", "inside"];

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

    /// Adds a row.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add(&mut self, hit: &Hit, search: &Search) -> io::Result<()> {
        self.add_row(hit.offset, "", hit, search)
    }

    /// Adds the row of a hit inside compressed data.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add_inner(&mut self, inner: &InnerHit, search: &Search) -> io::Result<()> {
        self.add_row(inner.offset, &inner.inside, &inner.hit, search)
    }

    fn add_row(&mut self, offset: u64, inside: &str, hit: &Hit, search: &Search) -> io::Result<()> {
        let name = search.patterns().get(hit.pattern).map_or("", |pattern| pattern.name.as_str());
        let (offset, length) = (offset.to_string(), hit.len().to_string());
        let (encoding, text, context) = (hit.encoding.name(), hit.text(), hit.context());
        self.rows.write_record([offset.as_str(), &length, name, &encoding, &text, &context, inside])?;
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
