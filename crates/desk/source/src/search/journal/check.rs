//! What is in the folder of a search is looked at before anything is changed.

use std::io::ErrorKind;
use std::path::Path;

use cheetah_carve::CarvedFile;
use cheetah_error::next::Search as Step;
use cheetah_error::{Error, Result};
use cheetah_image::own_file::NotOurs;
use cheetah_kit::file::NotItself;
use cheetah_kit::folder::{Entry, Folder};

use super::errors::{holds_something_else, not_ours, not_ours_because, reading};
use super::keep::{KeptFile, is_carved_name};
use super::names::{CARVED, CARVED_TABLE, NAME, NEXT, Names};
use super::state::State;

/// A carved file as one that is kept.
pub fn kept(file: &CarvedFile) -> KeptFile {
    KeptFile { name: format!("{CARVED}/{}", file.name()), len: file.len, sha256: file.sha256.clone() }
}

/// Fails if something in the folder is not of a search. Returns whether there is more than a journal.
pub fn check_names(folder: &Folder, path: &Path, names: Names) -> Result<bool> {
    let entries = |folder: &Folder| folder.entries().map_err(|error| reading(path, &error));
    let mut has_more = false;
    for (name, is) in entries(folder)? {
        let wanted = match name.as_str() {
            NAME | NEXT => Entry::File,
            CARVED => Entry::Folder,
            name if names.files.contains(&name) => Entry::File,
            name if names.folders.contains(&name) => Entry::Folder,
            _ => return Err(holds_something_else(path, &name)),
        };
        if is != wanted {
            let is = if is == Entry::Link { NotOurs::Link } else { NotOurs::NotRegular };
            return Err(not_ours_because(&path.join(name), is));
        }
        has_more |= name != NAME;
        if name == CARVED {
            let carved = folder.folder(CARVED).map_err(|error| not_ours(&path.join(CARVED), &error))?;
            for (name, is) in entries(&carved)? {
                if is != Entry::File || !(is_carved_name(&name) || name == CARVED_TABLE) {
                    return Err(holds_something_else(&path.join(CARVED), &name));
                }
            }
        }
    }
    Ok(has_more)
}

/// Fails if a file that was kept is not what it was.
pub fn check_kept(folder: &Folder, path: &Path, state: &State) -> Result<()> {
    let files = match &state.finished {
        Some(files) => files.clone(),
        None => state.carved.iter().map(kept).collect(),
    };
    for file in files {
        let is_same = match KeptFile::read(folder, &file.name) {
            Ok(now) => now == file,
            Err(error) if error.kind() == ErrorKind::NotFound || NotItself::of(&error).is_some() => false,
            Err(error) => return Err(reading(path, &error)),
        };
        if !is_same {
            let path = path.join(&file.name);
            let why = format!("{} is not the file that the search saved: it was altered, or is gone", path.display());
            return Err(Error::evidence(why).next(Step::NameFolder));
        }
    }
    Ok(())
}
