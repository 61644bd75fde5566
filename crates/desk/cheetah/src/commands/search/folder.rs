//! The folder of a result. It gets its name when everything is in it.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use cheetah_device::Coverage;
use cheetah_kit::rename_new;
use cheetah_search::{AcrossHit, FeatureFiles, Hit, HitTable, InnerHit, Place, Search};
use cheetah_source::search::known::Found;
use tempfile::TempDir;

use crate::answers::search::Search as Answer;
use crate::commands::options::must_not_exist;
use crate::failure::{Context as _, Result};

/// The name of the table, and that of one that is not finished.
const TABLE: [&str; 2] = ["hits.csv", "hits.unfinished.csv"];
/// The folder of feature files, and that of some that are not finished.
const FEATURES: [&str; 2] = ["features", "features.unfinished"];
/// The tables of what was found of known files: its runs, and the files.
const KNOWN: [&str; 2] = ["known-runs.csv", "known-files.csv"];
/// The folder of files that were carved.
const CARVED: &str = "carved";
/// The name of the coverage, in the format of GNU ddrescue.
const COVERAGE: &str = "coverage.map";
/// The name of the answer.
const ANSWER: &str = "search.json";

/// A folder that is being made.
pub struct Folder {
    path: PathBuf,
    made: TempDir,
    table: HitTable<File>,
    features: FeatureFiles,
}

impl Folder {
    /// Begins a folder that will have this path, for hits in a source of this name. `has_places` says whether each will have a place.
    pub fn create(path: &Path, source: &str, has_places: bool) -> Result<Self> {
        must_not_exist(path, "name a new folder for the result")?;
        let writing = format!("cannot write {}", path.display());
        let beside = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = tempfile::Builder::new().prefix(".cheetah-search-").tempdir_in(beside).context(&writing)?;
        let begun = if has_places { HitTable::<File>::with_places } else { HitTable::<File>::new };
        let table = File::create_new(made.path().join(TABLE[0])).and_then(begun).context(&writing)?;
        let features = made.path().join(FEATURES[0]);
        std::fs::create_dir(&features).context(&writing)?;
        Ok(Self { path: path.to_owned(), made, table, features: FeatureFiles::new(&features, source) })
    }

    /// Adds a hit to the table, and to the features of its kind.
    pub fn add(&mut self, hit: &Hit, place: Option<&Place<'_>>, search: &Search) -> Result<()> {
        let added = self.table.add(hit, place, search).and_then(|()| self.features.add(hit, search));
        added.context(format_args!("cannot write {}", self.path.display()))
    }

    /// Adds a hit inside compressed data.
    pub fn add_inner(&mut self, hit: &InnerHit, place: Option<&Place<'_>>, search: &Search) -> Result<()> {
        let added = self.table.add_inner(hit, place, search).and_then(|()| self.features.add_inner(hit, search));
        added.context(format_args!("cannot write {}", self.path.display()))
    }

    /// Adds a hit across fragments of a file.
    pub fn add_across(&mut self, across: &AcrossHit, place: &Place<'_>, search: &Search) -> Result<()> {
        let added = self.table.add_across(across, place, search);
        let added = added.and_then(|()| self.features.add(&across.hit, search));
        added.context(format_args!("cannot write {}", self.path.display()))
    }

    /// Makes the folder of carved files, and returns its path.
    pub fn for_carved(&self) -> Result<PathBuf> {
        let path = self.made.path().join(CARVED);
        std::fs::create_dir(&path).context(format_args!("cannot write {}", self.path.display()))?;
        Ok(path)
    }

    /// Completes the folder, and gives it its name.
    pub fn publish(self, answer: &Answer<'_>, coverage: &Coverage, known: Option<&Found>) -> Result<()> {
        let writing = format!("cannot write {}", self.path.display());
        let place = |name: &str| self.made.path().join(name);
        self.table.finish().and_then(|table| table.sync_all()).context(&writing)?;
        self.features.finish().context(&writing)?;
        if !answer.finished {
            for [finished, unfinished] in [TABLE, FEATURES] {
                rename_new(&place(finished), &place(unfinished)).context(&writing)?;
            }
        }
        if let Some(known) = known {
            let [runs, files] = KNOWN.map(|name| File::create_new(place(name)));
            runs.and_then(|file| known.write_runs(&file).and_then(|()| file.sync_all())).context(&writing)?;
            files.and_then(|file| known.write_files(&file).and_then(|()| file.sync_all())).context(&writing)?;
        }
        let answer = serde_json::to_string_pretty(answer).context(&writing)? + "\n";
        for (name, content) in [(COVERAGE, coverage.to_string()), (ANSWER, answer)] {
            let written = File::create_new(place(name)).and_then(|mut file| {
                file.write_all(content.as_bytes())?;
                file.sync_all()
            });
            written.context(&writing)?;
        }
        File::open(self.made.path()).and_then(|folder| folder.sync_all()).context(&writing)?;
        rename_new(self.made.path(), &self.path).context(&writing)?;
        // It has another name now, so there is nothing to remove.
        let _ = self.made.keep();
        Ok(())
    }
}
