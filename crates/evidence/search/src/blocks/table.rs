//! Tables of what was found of known files, as CSV (RFC 4180).

use std::io::{self, Write};

use csv::Writer;

use super::{KnownFiles, KnownFound};

impl KnownFound {
    /// Writes the runs, in the order of their offsets.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn write_runs(&self, known: &KnownFiles, to: impl Write) -> io::Result<()> {
        let mut rows = Writer::from_writer(to);
        rows.write_record(["offset", "length", "file", "file_offset"])?;
        for run in &self.runs {
            let name = known.files().get(run.file).map_or("", |file| file.name.as_str());
            rows.write_record([&run.offset.to_string(), &run.len.to_string(), name, &run.file_offset.to_string()])?;
        }
        rows.flush()
    }

    /// Writes the known files, also those of which nothing was found, with the number of their blocks and of those in runs.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn write_files(&self, known: &KnownFiles, to: impl Write) -> io::Result<()> {
        let mut rows = Writer::from_writer(to);
        rows.write_record(["file", "blocks", "found"])?;
        for (index, file) in known.files().iter().enumerate() {
            let found = self.blocks.get(&index).map_or(0, |blocks| blocks.len());
            rows.write_record([&file.name, &file.blocks.to_string(), &found.to_string()])?;
        }
        rows.flush()
    }
}
