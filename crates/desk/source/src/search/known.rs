//! Known files, whose blocks are searched for, and what was found of them.

use std::fs::{self, File};
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::path_text::path_to_text;
use cheetah_error::{Error, Kind, Result};
use cheetah_search::{
    BLOCK_BYTES, Batch, KnownFiles, KnownFound, KnownRun, KnownRuns, NoKnownSet, PatternKind, SET_BYTES_MAX, Search,
};

/// A folder in each database of hashdb, versions 2 and 3.
const HASHDB_STORE: &str = "lmdb_hash_store";
/// The deepest folder within a folder of known files.
const DEPTH_MAX: usize = 64;

/// Reads known files: those named, and all in the folders named, but no links. Also returns how many links and special files were left
/// out.
///
/// # Errors
///
/// If one cannot be read; `Kind::Misuse` if folders are too deep, if a path that is named has no content of its own, or if no block
/// tells the files from others.
pub fn read(paths: &[PathBuf]) -> Result<(KnownFiles, usize)> {
    let (mut known, mut left_out) = (KnownFiles::default(), 0);
    for path in paths {
        let mut next = vec![(path.clone(), 0)];
        while let Some((path, depth)) = next.pop() {
            // What the user names may be a link.
            let metadata = if depth == 0 { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
            let kind = metadata.map_err(|error| unreadable(&path, &error))?.file_type();
            if kind.is_dir() && depth == DEPTH_MAX {
                let why = format!("{} is {DEPTH_MAX} folders deep: name it by itself", path.display());
                return Err(Error::misuse(why));
            }
            if kind.is_dir() {
                next.extend(entries(&path)?.into_iter().rev().map(|entry| (entry, depth + 1)));
            } else if kind.is_file() {
                let file = File::open(&path).map_err(|error| unreadable(&path, &error))?;
                known.add(&path_to_text(&path), file)?;
            } else if depth == 0 {
                let why = format!("{} is neither a file nor a folder: store its content in a file", path.display());
                return Err(Error::misuse(why));
            } else {
                left_out += 1;
            }
        }
    }
    Ok((told_apart(known.without_common_blocks())?, left_out))
}

/// Reads a set of known files.
///
/// # Errors
///
/// If it cannot be read; `Kind::Misuse` if it is none ([`NoKnownSet`], which is the source of the error), or
/// if no block tells its files from others.
pub fn read_set(path: &Path) -> Result<KnownFiles> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    let none = |none: NoKnownSet| Error::caused(Kind::Misuse, none).within(path.display()).advise(none.next());
    if path.join(HASHDB_STORE).is_dir() {
        return Err(none(NoKnownSet::HashdbDatabase));
    }
    // A pipe may have no end.
    if !metadata.is_file() {
        return Err(Error::misuse(format!("{} is no file: name a set of known files", path.display())));
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(SET_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| unreadable(path, &error))?;
    let known = KnownFiles::read_set(&bytes);
    told_apart(known.map_err(none)?)
}

/// The known files, if a block tells them from others.
fn told_apart(known: KnownFiles) -> Result<KnownFiles> {
    match known.files().iter().any(|file| file.blocks > 0) {
        true => Ok(known),
        false => Err(Error::misuse(format!(
            "the known files have no block of {BLOCK_BYTES} bytes that tells them from others: name larger files"
        ))),
    }
}

/// What is in a folder, in the order of the names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries: std::io::Result<Vec<_>> =
        fs::read_dir(folder).and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    let mut entries = entries.map_err(|error| unreadable(folder, &error))?;
    entries.sort_unstable();
    Ok(entries)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format_args!("cannot read {}", path.display()), error)
}

/// The blocks of known files that a search has found.
pub struct Known {
    files: Arc<KnownFiles>,
    runs: KnownRuns,
    /// The pattern of blocks.
    pattern: Option<usize>,
}

impl Known {
    /// None yet.
    pub fn new(files: Arc<KnownFiles>, search: &Search) -> Self {
        let pattern = search.patterns().iter().position(|pattern| pattern.kind == PatternKind::Block);
        Self { runs: KnownRuns::new(files.clone()), files, pattern }
    }

    /// Takes the blocks out of the hits of a batch.
    pub fn take(&mut self, batch: &mut Batch) {
        batch.hits.retain(|hit| {
            let is_block = Some(hit.pattern) == self.pattern;
            if is_block {
                self.runs.add(hit);
            }
            !is_block
        });
    }

    /// What was found.
    pub fn finish(self) -> Found {
        Found { files: self.files, found: self.runs.finish() }
    }
}

/// What was found of known files.
pub struct Found {
    files: Arc<KnownFiles>,
    found: KnownFound,
}

/// What was found of a known file.
#[derive(Debug, Clone, Copy)]
pub struct Share<'a> {
    /// The file.
    pub name: &'a str,
    /// Its blocks in runs.
    pub found: u64,
    /// Its blocks that tell it.
    pub blocks: u64,
}

impl Found {
    /// The number of known files.
    pub fn files(&self) -> usize {
        self.files.files().len()
    }

    /// The number of runs.
    pub fn runs(&self) -> usize {
        self.found.runs.len()
    }

    /// The bytes of all runs. Those of runs of several files at the same place count for each.
    pub fn bytes(&self) -> u64 {
        self.found.runs.iter().map(|run| run.len).sum()
    }

    /// Blocks that were found alone.
    pub const fn singles(&self) -> u64 {
        self.found.singles
    }

    /// The runs, in the order of their offsets, each with the name of its file.
    pub fn named_runs(&self) -> impl Iterator<Item = (&KnownRun, &str)> {
        let name = move |run: &KnownRun| self.files.files().get(run.file).map_or("", |file| file.name.as_str());
        self.found.runs.iter().map(move |run| (run, name(run)))
    }

    /// What was found of each file, in the order in which they were read.
    pub fn all_shares(&self) -> impl Iterator<Item = Share<'_>> {
        let found = move |file: usize| self.found.blocks.get(&file).map_or(0, |blocks| blocks.len() as u64);
        let files = self.files.files().iter().enumerate();
        files.map(move |(index, file)| Share { name: &file.name, found: found(index), blocks: file.blocks })
    }

    /// The files of which something was found, the largest share first.
    pub fn shares(&self) -> Vec<Share<'_>> {
        let mut shares: Vec<_> = self.all_shares().filter(|share| share.found > 0).collect();
        shares.sort_by(|one, other| {
            let of = |share: &Share<'_>, whole: u64| u128::from(share.found) * u128::from(whole);
            of(other, one.blocks).cmp(&of(one, other.blocks)).then_with(|| one.name.cmp(other.name))
        });
        shares
    }

    /// Writes the table of runs.
    pub fn write_runs(&self, to: impl Write) -> std::io::Result<()> {
        self.found.write_runs(&self.files, to)
    }

    /// Writes the table of all known files.
    pub fn write_files(&self, to: impl Write) -> std::io::Result<()> {
        self.found.write_files(&self.files, to)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use cheetah_error::next;

    use super::*;

    /// Blocks that no short pattern makes up.
    fn content() -> Vec<u8> {
        (0..2 * BLOCK_BYTES as u32).flat_map(|word| (word * word).to_le_bytes()).collect()
    }

    #[test]
    fn a_set_is_read_and_files_of_another_kind_are_refused_with_the_kind() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), content()).unwrap();
        let (known, _) = read(&[at("file")]).unwrap();
        known.write_set(File::create(at("set")).unwrap()).unwrap();
        let again = read_set(&at("set")).unwrap();
        assert_eq!((again.files(), again.keys()), (known.files(), known.keys()));
        fs::write(at("cut"), &fs::read(at("set")).unwrap()[..100]).unwrap();
        fs::create_dir_all(at("known.hdb/lmdb_hash_store")).unwrap();
        for (name, expected) in [
            ("cut", Some(NoKnownSet::Damaged)),
            ("file", Some(NoKnownSet::Other)),
            ("known.hdb", Some(NoKnownSet::HashdbDatabase)),
            (".", None),
        ] {
            let Err(error) = read_set(&at(name)) else { panic!("{name} was read") };
            let none = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<NoKnownSet>());
            assert_eq!((error.kind(), none.copied()), (Kind::Misuse, expected), "{name}");
            assert_eq!(
                error.has_next(next::Search::MakeSet),
                expected.is_some_and(|none| none != NoKnownSet::Other),
                "{name}"
            );
        }
        KnownFiles::default().write_set(File::create(at("empty")).unwrap()).unwrap();
        assert_eq!(read_set(&at("empty")).err().map(|error| error.kind()), Some(Kind::Misuse));
    }

    #[test]
    fn a_link_in_a_folder_of_known_files_is_counted_and_a_named_file_without_content_of_its_own_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("known")).unwrap();
        fs::write(at("known/file"), content()).unwrap();
        symlink(at("known/file"), at("known/link")).unwrap();
        let (known, left_out) = read(&[at("known")]).unwrap();
        assert_eq!((known.files().len(), left_out), (1, 1));
        // A link that is named is what it leads to.
        let (known, left_out) = read(&[at("known/link")]).unwrap();
        assert_eq!((known.files().len(), left_out), (1, 0));
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let Err(error) = read(&[at("known"), at("socket")]) else { panic!("it was read") };
        assert_eq!(error.kind(), Kind::Misuse);
    }
}
