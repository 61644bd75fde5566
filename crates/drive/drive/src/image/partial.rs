//! Saving the readable part of a drive, with a map of the missing ranges.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage, Data, DynDevice};
use futures::StreamExt as _;

use crate::copy::rescue::Rescue;
use crate::copy::sparse_file::SparseFile;
use crate::copy::{ChunkWriter, CopyProgress, ReadChunk, chunks_of};
use crate::file::coverage;
use crate::file::digests::{CHUNK_BYTES, ChunkDigest, Digests, digest};
use crate::file::disk::{directory, give_name, temporary_in, write_atomically};
use crate::file::{DriveFile, ImageState, beside};
use crate::open::Drive;
use crate::options::OpenOptions;
use crate::session::Session;
use cheetah_error::{Error, Result, next};
use cheetah_image::space;
use cheetah_kit::file::{make_sparse, sync_folder};

use super::save::instead_of_space;

/// How to save a part.
#[derive(Debug, Clone)]
pub struct PartialOptions {
    /// Replace the image file and its map if they exist.
    pub force: bool,
    /// Fail before anything is written if the file system may have too little space.
    pub check_space: bool,
    /// What the drive is opened with.
    pub session: Session,
}

/// The result of a partial save.
#[derive(Debug, Clone)]
pub struct PartialSave {
    /// The ranges that the image file holds; everything else is a hole in it.
    pub coverage: Coverage,
    /// Where the map was written.
    pub map: PathBuf,
    /// Bytes left out because their chunk differs from its digest recorded at load.
    pub differing_bytes: u64,
    /// The nodes that cannot be used, a sentence each.
    pub lost: Vec<String>,
}

/// Writes the readable ranges of a drive's image (of the whole drive, if it has none) to a sparse file at `path`, and a
/// map of it to `path.map`. Ranges on lost nodes and chunks that differ from their recorded digests are unreadable in
/// the map.
///
/// Another process may be filling the drive meanwhile: the state recorded at the start is saved.
pub async fn save_partial(
    file: &DriveFile,
    path: &Path,
    options: &PartialOptions,
    progress: impl FnMut(CopyProgress) + Send,
) -> Result<PartialSave> {
    let shown = path.display();
    let failed = |error: std::io::Error| Error::io(format_args!("writing {shown}"), &error);
    let map = beside(path, "map");
    if let Some(there) = [path, &map].into_iter().find(|path| !options.force && path.symlink_metadata().is_ok()) {
        let there = there.display();
        return Err(Error::misuse(format!("{there} exists already")).next(next::Files::Replace));
    }
    if map.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        let map = map.display();
        return Err(Error::misuse(format!("{map} is not a regular file, and is not replaced; choose another name")));
    }
    // Read before the drive: ranges that are `Read` in the map have been flushed, and stay.
    let present = present(file)?;
    let digests = digests(file)?;
    if options.check_space {
        let files = [(path.to_owned(), present.bytes(State::Read)), (map.clone(), space::RECORD_BYTES)];
        space::check(&files, instead_of_space())?;
    }
    let open = OpenOptions { allow_lost: true, prefetch_budget: 0, ..OpenOptions::new(options.session.clone()) };
    let drive = Drive::open_unmarked(file, open).await?;
    let lost = drive.troubles().iter().map(ToString::to_string).collect();
    let partial = temporary_in(directory(path)).map_err(failed)?;
    // Otherwise what is missing only takes space.
    let _ = make_sparse(partial.as_file());
    partial.as_file().set_len(present.size()).map_err(failed)?;
    let target = partial.as_file().try_clone().map_err(failed)?;
    let target: DynDevice = Arc::new(SparseFile::new(target, shown.to_string(), present.size()));
    let copy = PartialCopy {
        rescue: Rescue::new(file, drive.device()),
        from: drive.device(),
        writer: ChunkWriter::new(target.clone(), shown.to_string()),
        digests,
        saved: present.clone(),
        differing_bytes: 0,
        first_error: None,
    };
    let copied = copy.run(&present, progress).await;
    drive.close().await?;
    let (coverage, differing_bytes) = copied?;
    target.flush().await.map_err(Error::device(format!("writing {shown}")))?;
    // The map first: the image must never be there without it.
    write_atomically(&map, coverage.to_string().as_bytes(), true)?;
    give_name(partial, path, options.force).map_err(failed)?;
    sync_folder(directory(path)).map_err(failed)?;
    Ok(PartialSave { coverage, map, differing_bytes, lost })
}

/// The ranges that the drive should hold.
fn present(file: &DriveFile) -> Result<Coverage> {
    if let Some(image) = file.image.as_ref().filter(|image| image.state == ImageState::Loading) {
        return Err(Error::evidence(format!(
            "{} holds only part of {}, and which part is unknown: its load never finished; load it again",
            file.name, image.source
        )));
    }
    if let Some(coverage) = coverage::recorded(file)? {
        return Ok(coverage);
    }
    let size = file.image.as_ref().map_or(file.size, |image| image.size);
    let mut whole = Coverage::new(size);
    whole.set(ByteRange::new(0, size), State::Read);
    Ok(whole)
}

/// The digests to compare chunks with; `None` if there are none, or the drive was opened for writing since.
fn digests(file: &DriveFile) -> Result<Option<Digests>> {
    let comparable = |state| matches!(state, ImageState::Intact | ImageState::Incomplete);
    let image = file.image.as_ref().filter(|image| comparable(image.state));
    let recorded = image.and_then(|image| image.digests.as_ref().map(|digests| (digests, image.size)));
    recorded.map(|(digests, size)| Digests::load(file, digests, size)).transpose()
}

/// A copy of the readable ranges.
struct PartialCopy {
    from: DynDevice,
    rescue: Rescue,
    writer: ChunkWriter,
    digests: Option<Digests>,
    saved: Coverage,
    differing_bytes: u64,
    first_error: Option<String>,
}

impl PartialCopy {
    /// Copies the ranges that are read in `present`; returns what was copied, and how many bytes were left out because
    /// they differ.
    async fn run(
        mut self,
        present: &Coverage,
        mut progress: impl FnMut(CopyProgress) + Send,
    ) -> Result<(Coverage, u64)> {
        let total = present.bytes(State::Read);
        let ranges: Vec<_> = present.in_state(State::Read).collect();
        let (compared, size) = (self.digests.is_some(), present.size());
        let whole_chunk = move |range: ByteRange| {
            range.offset.is_multiple_of(CHUNK_BYTES) && (range.len == CHUNK_BYTES || range.end() == size)
        };
        let mut reads =
            std::pin::pin!(chunks_of(self.from.clone(), ranges, move |range| compared && whole_chunk(range)));
        let mut done = 0;
        while let Some(ReadChunk { range, read }) = reads.next().await {
            match read {
                Ok((data, digest)) => self.write(range, data, digest).await?,
                Err(_) => self.rescue(range, compared && whole_chunk(range)).await?,
            }
            done += range.len;
            progress(CopyProgress { done, total });
        }
        self.writer.wait().await?;
        match self.first_error {
            Some(why) if self.saved.bytes(State::Read) == 0 => {
                Err(Error::evidence(format!("nothing can be read, and nothing was saved: {why}")))
            }
            _ => Ok((self.saved, self.differing_bytes)),
        }
    }

    /// Writes a range, unless it differs from its recorded digest.
    async fn write(&mut self, range: ByteRange, data: Data, digest: Option<ChunkDigest>) -> Result<()> {
        let recorded = self.digests.as_ref().and_then(|digests| digests.get(range.offset));
        if digest.is_some_and(|digest| recorded != Some(&digest)) {
            self.differing_bytes += range.len;
            self.saved.set(range, State::Unreadable);
            return Ok(());
        }
        self.writer.write(range, data).await
    }

    /// Writes the readable parts of a range that failed as a whole.
    async fn rescue(&mut self, range: ByteRange, compared: bool) -> Result<()> {
        let parts = self.rescue.read(range).await;
        if parts.iter().all(|(_, read)| read.is_ok()) {
            let mut whole = Data::new();
            parts.into_iter().flat_map(|(_, read)| read).for_each(|data| whole.append(data));
            let digest = compared.then(|| digest(&whole));
            return self.write(range, whole, digest).await;
        }
        for (part, read) in parts {
            match read {
                Ok(data) => self.writer.write(part, data).await?,
                Err(why) => {
                    self.saved.set(part, State::Unreadable);
                    self.first_error.get_or_insert_with(|| why.to_string());
                }
            }
        }
        Ok(())
    }
}
