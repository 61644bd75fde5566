//! Known files, and sets of them.

use std::fs;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_kit::file::sync_folder;
use cheetah_kit::rename_new;
use cheetah_search::KnownFiles;
use cheetah_source::search::known;

use super::Args;
use crate::commands::options::must_not_exist;
use crate::failure::{Context as _, Failure, Result};
use crate::ui::Ui;

/// Reads the known files, or the set of them, if there are any, and stores them as a set if that is asked for. Warns of those that are
/// left out.
pub async fn read(args: &Args, ui: Ui) -> Result<Option<Arc<KnownFiles>>> {
    if let Some(set) = args.blocks.clone() {
        let reading = tokio::task::spawn_blocking(move || known::read_set(&set));
        return Ok(Some(Arc::new(reading.await.context("cannot read the set of known files")??)));
    }
    if args.known.is_empty() {
        return Ok(None);
    }
    if let Some(set) = &args.save_known {
        check(set, &args.known, args.out.as_deref())?;
    }
    let paths = args.known.clone();
    let reading = tokio::task::spawn_blocking(move || known::read(&paths));
    let (known, left_out) = reading.await.context("cannot read the known files")??;
    if left_out > 0 {
        ui.warn(format_args!(
            "of the known files, {left_out} links or special files are left out: links are not followed"
        ));
    }
    let known = Arc::new(known);
    if let Some(set) = args.save_known.clone() {
        let (writing, known) = (format!("cannot write {}", set.display()), known.clone());
        let written = tokio::task::spawn_blocking(move || write(&known, &set)).await.context(&writing)?;
        if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            other_file(args)?;
        }
        written.context(&writing)?;
    }
    Ok(Some(known))
}

/// Refuses to replace another file by the set.
fn other_file(args: &Args) -> Result<()> {
    let set = args.save_known.as_deref();
    set.map_or(Ok(()), |set| must_not_exist(set, "name a new file for the set of known files"))
}

/// Refuses a set that would be one of the known files the next time, or something else in the folder of the result, with which a
/// search does not go on.
fn check(set: &Path, known: &[PathBuf], out: Option<&Path>) -> Result<()> {
    let folder = fs::canonicalize(folder_of(set)).context(format_args!("cannot write {}", set.display()))?;
    for path in known {
        // One that cannot be found is an error when it is read.
        if fs::canonicalize(path).is_ok_and(|known| folder.starts_with(known)) {
            let (set, path) = (set.display(), path.display());
            return Err(Failure::misused(format!(
                "{set} would be in {path}, a folder of known files: name another place"
            )));
        }
    }
    if out.is_some_and(|out| fs::canonicalize(out).is_ok_and(|out| folder.starts_with(out))) {
        return Err(Failure::misused(format!(
            "{} would be in the folder of the result: name another place",
            set.display()
        )));
    }
    Ok(())
}

/// Writes a set that only its owner can read, whole or not at all: the names of known files are data of a case.
///
/// A search that goes on finds the set that it stored when it began; another file is not replaced.
fn write(known: &KnownFiles, set: &Path) -> io::Result<()> {
    let folder = folder_of(set);
    // Temporary files have mode 0600, and are removed unless they are published.
    let mut partial = tempfile::Builder::new().prefix(".cheetah-blocks-").tempfile_in(folder)?;
    known.write_set(BufWriter::new(partial.as_file_mut()))?;
    partial.as_file().sync_all()?;
    let partial = partial.into_temp_path();
    match rename_new(&partial, set) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_same(&partial, set)? => return Ok(()),
        renamed => renamed?,
    }
    // It has another name now, so there is nothing to remove.
    let _ = partial.keep();
    sync_folder(folder)
}

/// Whether two files have the same content. Sets have a limit.
fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let len = fs::metadata(one)?.len();
    // Only a file is read: a pipe would wait for its writer.
    let about = fs::symlink_metadata(other)?;
    Ok(about.is_file() && about.len() == len && fs::read(one)? == fs::read(other)?)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
