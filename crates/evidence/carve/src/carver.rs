//! Saves files that are carved, with a table of them.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use cheetah_device::around::is_local;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use csv::Writer;
use sha2::{Digest as _, Sha256};

use crate::archives::ZipChain;
use crate::reader::Reader;
use crate::{Format, NoFile, end};

/// The name of the table, and the names of its columns.
const TABLE: &str = "carved.csv";
const COLUMNS: [&str; 5] = ["offset", "length", "format", "sha256", "file"];
/// Bytes that are read and written at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// As often as this, all of the device may be read for places where no file begins.
const WASTE: u64 = 4;
/// When that is used up, files of at most this size are looked for.
const BYTES_MAX_AT_LEAST: u64 = 1 << 20;

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
    /// Places where no file was found within the limit that is left when much was read in vain.
    pub given_up: u64,
}

/// Saves files into a folder: each under its offset, and a table of all.
pub struct Carver {
    folder: PathBuf,
    table: Writer<File>,
    /// Where the last file ends of which all was looked at. Within it, nothing else is looked for.
    end_of_whole: u64,
    /// Where the last file ends of which only some was looked at: other files may lie in it, or be what is left of it.
    end_of_framed: u64,
    /// Files of ZIP archives that follow each other and are no archive from the first of them on, by their place in the device.
    chain: ZipChain,
    /// Bytes that were read for places where no file begins.
    wasted_bytes: u64,
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
        Ok(Self {
            folder: folder.to_owned(),
            table,
            end_of_whole: 0,
            end_of_framed: 0,
            chain: ZipChain { end: 0, archive: None },
            wasted_bytes: 0,
            counts: Counts::default(),
        })
    }

    /// Saves the file of this format that begins at `offset`, if there is a valid one that is not part of one before it. Offsets do
    /// not decrease.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or if the device fails as a whole.
    pub async fn carve(&mut self, device: &DynDevice, offset: u64, format: Format) -> Result<()> {
        if offset < self.end_of_whole || !format.is_read_whole() && offset < self.end_of_framed {
            self.counts.inside += 1;
            return Ok(());
        }
        if format == Format::Zip && offset < self.chain.end && self.chain.archive != Some(offset) {
            self.counts.invalid += 1;
            return Ok(());
        }
        let budget_bytes = WASTE.saturating_mul(device.geometry().size);
        let left = budget_bytes.saturating_sub(self.wasted_bytes).max(BYTES_MAX_AT_LEAST);
        let whole = format.bytes_max().min(device.geometry().size.saturating_sub(offset));
        let mut reader = Reader::new(device, offset, whole.min(left));
        let len = match end(&mut reader, format).await {
            Ok(Ok(len)) => len,
            Ok(Err(why)) => {
                self.wasted_bytes += reader.bytes_read();
                if let NoFile::Zip(ZipChain { end, archive }) = why {
                    self.chain = ZipChain { end: offset + end, archive: archive.map(|begin| offset + begin) };
                }
                match left < whole {
                    true => self.counts.given_up += 1,
                    false => self.counts.invalid += 1,
                }
                return Ok(());
            }
            Err(error) => return self.unreadable(error),
        };
        let name = format!("{offset:014}.{}", format.extension());
        let (path, partial) = (self.folder.join(&name), self.folder.join(format!("{name}.partial")));
        let hash = match save(device, ByteRange::new(offset, len), &partial).await? {
            Ok(hash) => hash,
            Err(error) => {
                std::fs::remove_file(&partial).map_err(|error| writing(&partial, &error))?;
                return self.unreadable(error);
            }
        };
        std::fs::rename(&partial, &path).map_err(|error| writing(&path, &error))?;
        let row = [&offset.to_string(), &len.to_string(), format.name(), &hash, &name];
        self.table.write_record(row).map_err(|error| writing(&self.folder, &error.into()))?;
        match format.is_read_whole() {
            true => self.end_of_whole = offset + len,
            false => self.end_of_framed = offset + len,
        }
        self.counts.files += 1;
        self.counts.bytes += len;
        Ok(())
    }

    /// Counts a place that cannot be read, unless the device fails as a whole.
    fn unreadable(&mut self, error: cheetah_device::Error) -> Result<()> {
        if !is_local(&error) {
            return Err(Error::device("carving files")(error));
        }
        self.counts.unreadable += 1;
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

/// Copies a range to a new file; returns its SHA-256 in hexadecimal digits, or why it cannot be read.
async fn save(
    device: &DynDevice,
    range: ByteRange,
    path: &Path,
) -> Result<std::result::Result<String, cheetah_device::Error>> {
    let failed = |error: &io::Error| writing(path, error);
    let mut file = File::create_new(path).map_err(|error| failed(&error))?;
    let mut hash = Sha256::new();
    for piece in range.split_at_multiples(PIECE_BYTES) {
        let data = match device.read(piece).await {
            Ok(data) => data,
            Err(error) => return Ok(Err(error)),
        };
        let bytes = data.into_bytes();
        hash.update(&bytes);
        file.write_all(&bytes).map_err(|error| failed(&error))?;
    }
    file.sync_all().map_err(|error| failed(&error))?;
    Ok(Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
}

fn writing(path: &Path, error: &io::Error) -> Error {
    Error::io(format!("writing {}", path.display()), error)
}
