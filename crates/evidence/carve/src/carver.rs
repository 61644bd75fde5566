//! Saves files that are carved, and makes the table of them.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cheetah_device::around::is_local;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use cheetah_kit::folder::Folder;
use csv::Writer;
use sha2::{Digest as _, Sha256};

use crate::archives::ZipChain;
use crate::reader::Reader;
use crate::{Format, NoFile, end};

/// The names of the columns of the table.
const COLUMNS: [&str; 5] = ["offset", "length", "format", "sha256", "file"];
/// Bytes that are read and written at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// As often as this, all of the device may be read for places where no file begins.
const WASTE: u64 = 4;
/// When that is used up, files of at most this size are looked for.
const BYTES_MAX_AT_LEAST: u64 = 1 << 20;
/// The most files whose content waits to be stored: each is open.
const WAITING_MAX: usize = 256;

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

/// A file that was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarvedFile {
    /// The offset in the device.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The format.
    pub format: Format,
    /// The SHA-256 in hexadecimal digits.
    pub sha256: String,
}

impl CarvedFile {
    /// Its name in the folder: its offset, and the usual end.
    pub fn name(&self) -> String {
        format!("{:014}.{}", self.offset, self.format.extension())
    }
}

/// How far carving has come: what the places that follow depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Where the last file ends of which all was looked at. Within it, nothing else is looked for.
    pub end_of_whole: u64,
    /// Where the last file ends of which only some was looked at: other files may lie in it, or be what is left of it.
    pub end_of_framed: u64,
    /// Where files of ZIP archives end that follow each other and are no archive from the first of them on.
    pub end_of_chain: u64,
    /// Where the archive begins that ends behind them, if there is a directory that says so.
    pub archive: Option<u64>,
    /// Bytes that were read for places where no file begins.
    pub wasted_bytes: u64,
    /// What became of the places so far.
    pub counts: Counts,
}

/// Saves files into a folder, each under its offset.
pub struct Carver {
    folder: Folder,
    /// The path of the folder, for errors.
    path: PathBuf,
    progress: Progress,
    waiting: Waiting,
}

/// Files whose content may not be on the disk yet. Many are stored together much faster than each by itself.
#[derive(Default)]
struct Waiting {
    files: Vec<File>,
    /// Why one could not be stored. The system says that once.
    failed: Option<io::ErrorKind>,
}

impl Waiting {
    /// Has their content on the disk.
    fn store(&mut self) -> io::Result<()> {
        if let Some(kind) = self.failed {
            return Err(kind.into());
        }
        let stored = self.files.drain(..).try_for_each(|file| file.sync_all());
        self.failed = stored.as_ref().err().map(io::Error::kind);
        stored
    }

    /// Adds a file.
    fn push(&mut self, file: File) -> io::Result<()> {
        self.files.push(file);
        if self.files.len() >= WAITING_MAX { self.store() } else { Ok(()) }
    }
}

impl Carver {
    /// Begins in an existing folder.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn new(path: &Path) -> Result<Self> {
        let folder = Folder::open(path).map_err(|error| writing(path, &error))?;
        Ok(Self::resume(folder, path, Progress::default()))
    }

    /// Goes on in a folder that is open, and has this path in errors.
    pub fn resume(folder: Folder, path: &Path, progress: Progress) -> Self {
        Self { folder, path: path.to_owned(), progress, waiting: Waiting::default() }
    }

    /// How far it has come.
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Saves the file of this format that begins at `offset`, if there is a valid one that is not part of one before it, and returns
    /// it. Offsets do not decrease.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or if the device fails as a whole.
    pub async fn carve(&mut self, device: &DynDevice, offset: u64, format: Format) -> Result<Option<CarvedFile>> {
        if self.is_within_another(offset, format) {
            return Ok(None);
        }
        let budget_bytes = WASTE.saturating_mul(device.geometry().size);
        let left = budget_bytes.saturating_sub(self.progress.wasted_bytes).max(BYTES_MAX_AT_LEAST);
        let whole = format.bytes_max().min(device.geometry().size.saturating_sub(offset));
        let mut reader = Reader::new(device, offset, whole.min(left));
        let len = match end(&mut reader, format).await {
            Ok(Ok(len)) => len,
            Ok(Err(why)) => {
                let wasted = self.progress.wasted_bytes.saturating_add(reader.bytes_read());
                self.progress.wasted_bytes = wasted;
                if let NoFile::Zip(ZipChain { end, archive }) = why {
                    self.progress.end_of_chain = offset.saturating_add(end);
                    self.progress.archive = archive.map(|begin| offset.saturating_add(begin));
                }
                match left < whole {
                    true => self.progress.counts.given_up += 1,
                    false => self.progress.counts.invalid += 1,
                }
                return Ok(None);
            }
            Err(error) => return self.unreadable(error),
        };
        self.save(device, ByteRange::new(offset, len), format).await
    }

    /// Whether nothing is looked for at a place, because of what was found before it. Counts the place then.
    const fn is_within_another(&mut self, offset: u64, format: Format) -> bool {
        let progress = &mut self.progress;
        if offset < progress.end_of_whole || !format.is_read_whole() && offset < progress.end_of_framed {
            progress.counts.inside += 1;
            return true;
        }
        let is_archive = matches!(progress.archive, Some(archive) if archive == offset);
        let is_in_chain = matches!(format, Format::Zip) && offset < progress.end_of_chain && !is_archive;
        if is_in_chain {
            progress.counts.invalid += 1;
        }
        is_in_chain
    }

    /// Saves a file.
    async fn save(&mut self, device: &DynDevice, range: ByteRange, format: Format) -> Result<Option<CarvedFile>> {
        let ByteRange { offset, len } = range;
        let file = CarvedFile { offset, len, format, sha256: String::new() };
        let (name, partial) = (file.name(), format!("{}.partial", file.name()));
        let failed = |error: &io::Error| writing(&self.path.join(&name), error);
        let (sha256, written) =
            match copy(device, range, &self.folder, &partial).await.map_err(|error| failed(&error))? {
                Ok(copied) => copied,
                Err(error) => {
                    self.folder.remove(&partial).map_err(|error| failed(&error))?;
                    return self.unreadable(error);
                }
            };
        self.folder.replace(&partial, &name).map_err(|error| failed(&error))?;
        self.waiting.push(written).map_err(|error| failed(&error))?;
        match format.is_read_whole() {
            true => self.progress.end_of_whole = range.end(),
            false => self.progress.end_of_framed = range.end(),
        }
        self.progress.counts.files += 1;
        self.progress.counts.bytes += len;
        Ok(Some(CarvedFile { sha256, ..file }))
    }

    /// Counts a place that cannot be read, unless the device fails as a whole.
    fn unreadable(&mut self, error: cheetah_device::Error) -> Result<Option<CarvedFile>> {
        if !is_local(&error) {
            return Err(Error::device("carving files")(error));
        }
        self.progress.counts.unreadable += 1;
        Ok(None)
    }

    /// Has all files on the disk.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn sync(&mut self) -> Result<()> {
        self.waiting.store().and_then(|()| self.folder.sync()).map_err(|error| writing(&self.path, &error))
    }
}

/// Writes the table of files, as CSV (RFC 4180).
///
/// # Errors
///
/// If it cannot be written.
pub fn write_table<'a>(files: impl IntoIterator<Item = &'a CarvedFile>, to: impl Write) -> io::Result<()> {
    let mut table = Writer::from_writer(to);
    table.write_record(COLUMNS)?;
    for file in files {
        let (offset, len) = (file.offset.to_string(), file.len.to_string());
        table.write_record([offset.as_str(), &len, file.format.name(), &file.sha256, &file.name()])?;
    }
    table.flush()
}

/// Copies a range to a new file; returns its SHA-256 in hexadecimal digits and the file, or why it cannot be read.
async fn copy(
    device: &DynDevice,
    range: ByteRange,
    folder: &Folder,
    name: &str,
) -> io::Result<std::result::Result<(String, File), cheetah_device::Error>> {
    let mut file = folder.create(name)?;
    let mut hash = Sha256::new();
    for piece in range.split_at_multiples(PIECE_BYTES) {
        let data = match device.read(piece).await {
            Ok(data) => data,
            Err(error) => return Ok(Err(error)),
        };
        let bytes = data.into_bytes();
        hash.update(&bytes);
        file.write_all(&bytes)?;
    }
    Ok(Ok((hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), file)))
}

fn writing(path: &Path, error: &io::Error) -> Error {
    Error::io(format!("writing {}", path.display()), error)
}
