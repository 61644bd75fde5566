//! Saves files that are carved, with a table of them.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use csv::Writer;
use sha2::{Digest as _, Sha256};

use crate::{Format, length};

/// The name of the table, and the names of its columns.
const TABLE: &str = "carved.csv";
const COLUMNS: [&str; 5] = ["offset", "length", "format", "sha256", "file"];
/// Bytes that are read and written at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// What became of the places where a header was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files that were saved.
    pub files: u64,
    /// The bytes of these files.
    pub bytes: u64,
    /// Places within a file that was saved.
    pub inside: u64,
    /// Places where no valid file begins.
    pub invalid: u64,
    /// Places where something that had to be looked at cannot be read.
    pub unreadable: u64,
}

/// Saves files into a folder: each under its offset, and a table of all.
pub struct Carver {
    folder: PathBuf,
    table: Writer<File>,
    /// Where the last file ends.
    end: u64,
    counts: Counts,
}

impl Carver {
    /// Begins in an existing folder.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(folder: &Path) -> Result<Self> {
        let begun = File::create_new(folder.join(TABLE)).and_then(|file| {
            let mut table = Writer::from_writer(file);
            table.write_record(COLUMNS)?;
            Ok(table)
        });
        let table = begun.map_err(|error| writing(folder, &error))?;
        Ok(Self { folder: folder.to_owned(), table, end: 0, counts: Counts::default() })
    }

    /// Saves the file of this format that begins at `offset`, if there is a valid one that is not part of the one before it. Offsets do
    /// not decrease.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub async fn carve(&mut self, device: &DynDevice, offset: u64, format: Format) -> Result<()> {
        if offset < self.end {
            self.counts.inside += 1;
            return Ok(());
        }
        let len = match length(device, offset, format).await {
            Ok(Some(len)) => len,
            Ok(None) => {
                self.counts.invalid += 1;
                return Ok(());
            }
            Err(_) => {
                self.counts.unreadable += 1;
                return Ok(());
            }
        };
        let name = format!("{offset:014}.{}", format.extension());
        let path = self.folder.join(&name);
        let Some(hash) = save(device, ByteRange::new(offset, len), &path).await? else {
            std::fs::remove_file(&path).map_err(|error| writing(&path, &error))?;
            self.counts.unreadable += 1;
            return Ok(());
        };
        let row = [&offset.to_string(), &len.to_string(), format.name(), &hash, &name];
        self.table.write_record(row).map_err(|error| writing(&self.folder, &error.into()))?;
        self.end = offset + len;
        self.counts.files += 1;
        self.counts.bytes += len;
        Ok(())
    }

    /// Has all on the disk, and returns what became of all places.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(self) -> Result<Counts> {
        let table = self.table.into_inner().map_err(csv::IntoInnerError::into_error);
        table.and_then(|file| file.sync_all()).map_err(|error| writing(&self.folder, &error))?;
        Ok(self.counts)
    }
}

/// Copies a range to a new file; returns its SHA-256 in hexadecimal digits, or `None` if it cannot be read.
async fn save(device: &DynDevice, range: ByteRange, path: &Path) -> Result<Option<String>> {
    let failed = |error: &io::Error| writing(path, error);
    let mut file = File::create_new(path).map_err(|error| failed(&error))?;
    let mut hash = Sha256::new();
    for piece in range.split_at_multiples(PIECE_BYTES) {
        let Ok(data) = device.read(piece).await else { return Ok(None) };
        let bytes = data.into_bytes();
        hash.update(&bytes);
        file.write_all(&bytes).map_err(|error| failed(&error))?;
    }
    file.sync_all().map_err(|error| failed(&error))?;
    Ok(Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
}

fn writing(path: &Path, error: &io::Error) -> Error {
    Error::io(format!("writing {}", path.display()), error)
}
