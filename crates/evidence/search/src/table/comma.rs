//! A table as CSV (RFC 4180).

use std::borrow::Cow;
use std::io::{self, Write};

use csv::Writer;

use crate::table::columns::{Cell, Layout, columns};

/// A table of hits as CSV, written row by row.
pub struct CsvTable<W: Write> {
    rows: Writer<W>,
}

impl<W: Write> CsvTable<W> {
    /// Begins a table, with the names of its columns. `layout` says what its rows are.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(to: W, layout: Layout) -> io::Result<Self> {
        let mut rows = Writer::from_writer(to);
        rows.write_record(columns(layout).iter().map(|column| column.name))?;
        Ok(Self { rows })
    }

    /// Adds a row: its [`cells`](crate::cells).
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn push(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        let texts: Vec<Cow<'_, str>> = cells.iter().map(Cell::to_text).collect();
        self.rows.write_record(texts.iter().map(|text| text.as_bytes()))?;
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
