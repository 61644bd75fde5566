//! Saving what there is of an image that is not whole: with a map that says what is missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::coverage::State;
use cheetah_device::{Coverage, DynDevice};
use cheetah_image::{Error, Result};

use super::covered;
use crate::copy::{Progress, Writer, read_exactly};
use crate::digests::CHUNK_BYTES;
use crate::file::disk::{directory, sync_directory, temporary_in, write_atomically};
use crate::file::{DriveFile, name_beside};
use crate::open::{Drive, OpenOptions};
use crate::sparse::SparseFile;

/// What was saved.
#[derive(Debug, Clone)]
pub struct Partial {
    /// What the image file has; everything else is a hole in it.
    pub coverage: Coverage,
    /// Where the map was written.
    pub map: PathBuf,
}

/// Writes what the drive has of its image to a sparse file at `path`, and to `path.map` which parts that is. Somebody
/// else may be filling the drive meanwhile: what was recorded when this began is saved. `None` if the drive's image is
/// neither being filled nor incomplete.
pub async fn save_partial(
    file: &DriveFile,
    path: &Path,
    force: bool,
    timeout: Duration,
    progress: impl FnMut(Progress) + Send,
) -> Result<Option<Partial>> {
    let shown = path.display();
    let failed = |error: std::io::Error| Error::io(format_args!("writing {shown}"), &error);
    let map = path.with_file_name(name_beside(path, "map"));
    if let Some(there) = [path, &map].into_iter().find(|path| !force && path.symlink_metadata().is_ok()) {
        let there = there.display();
        return Err(Error::misuse(format!("{there} exists already; choose another name, or --force to replace it")));
    }
    // Before the drive: what the map says has been flushed stays, whatever is added to it.
    let Some(covered) = covered(file)? else { return Ok(None) };
    let coverage = covered.coverage;
    let options = OpenOptions { timeout, prefetch_budget: 0, ..OpenOptions::default() };
    let drive = Drive::open_unmarked(file, options).await?;
    let partial = temporary_in(directory(path)).map_err(failed)?;
    partial.as_file().set_len(coverage.size()).map_err(failed)?;
    let target = partial.as_file().try_clone().map_err(failed)?;
    let target: DynDevice = Arc::new(SparseFile::new(target, shown.to_string(), coverage.size()));
    let copied = copy(&drive.device(), target, &coverage, progress).await;
    drive.close().await?;
    copied?;
    // First the map: an image of this name must not be there for a moment without it.
    write_atomically(&map, coverage.to_string().as_bytes(), true)?;
    let persisted = if force { partial.persist(path) } else { partial.persist_noclobber(path) };
    persisted.map_err(|error| failed(error.error))?;
    sync_directory(directory(path)).map_err(failed)?;
    Ok(Some(Partial { coverage, map }))
}

async fn copy(
    from: &DynDevice,
    to: DynDevice,
    coverage: &Coverage,
    mut progress: impl FnMut(Progress) + Send,
) -> Result<()> {
    let total = coverage.bytes(State::Read);
    let mut writer = Writer::new(to.clone(), "the image");
    for range in coverage.in_state(State::Read).flat_map(|run| run.split_at_multiples(CHUNK_BYTES)) {
        let data = read_exactly(from, range).await.map_err(Error::device("reading the drive"))?;
        writer.write(range, data).await?;
        progress(Progress { done: writer.written(), total });
    }
    writer.wait().await?;
    progress(Progress { done: total, total });
    to.flush().await.map_err(Error::device("writing the image"))
}
