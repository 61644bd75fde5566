//! The folder of a result. It gets its name when everything is in it.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use cheetah_device::Coverage;
use cheetah_kit::rename_new;
use cheetah_search::{Row, Search};
use cheetah_source::search::known::Found;
use tempfile::TempDir;

use super::hit_files::HitFiles;
use super::report::{self, Told};
use crate::commands::options::must_not_exist;
use crate::failure::{Context as _, Result};

/// The tables of what was found of known files: its runs, and the files.
const KNOWN: [&str; 2] = ["known-runs.csv", "known-files.csv"];
/// The folder of files that were carved.
const CARVED: &str = "carved";
/// The name of the coverage, in the format of GNU ddrescue.
const COVERAGE: &str = "coverage.map";
/// The name of the answer.
const ANSWER: &str = "search.json";
/// The name of the report.
const REPORT: &str = "report.html";

/// A folder that is being made.
pub struct Folder {
    path: PathBuf,
    made: TempDir,
    files: HitFiles,
}

impl Folder {
    /// Begins a folder that will have this path, for hits in a source of this name.
    pub fn create(path: &Path, source: &str) -> Result<Self> {
        must_not_exist(path, "name a new folder for the result")?;
        let writing = format!("cannot write {}", path.display());
        let beside = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = tempfile::Builder::new().prefix(".cheetah-search-").tempdir_in(beside).context(&writing)?;
        let files = HitFiles::open(made.path(), source).context(&writing)?;
        Ok(Self { path: path.to_owned(), made, files })
    }

    /// Adds a hit to the tables, and to the features of its kind.
    pub fn push(&mut self, row: &Row<'_>, search: &Search) -> Result<()> {
        self.files.push(row, search).context(format_args!("cannot write {}", self.path.display()))
    }

    /// Makes the folder of carved files, and returns its path.
    pub fn for_carved(&self) -> Result<PathBuf> {
        let path = self.made.path().join(CARVED);
        std::fs::create_dir(&path).context(format_args!("cannot write {}", self.path.display()))?;
        Ok(path)
    }

    /// Completes the folder, and gives it its name.
    pub fn publish(self, told: &Told<'_>, coverage: &Coverage, known: Option<&Found>) -> Result<()> {
        let writing = format!("cannot write {}", self.path.display());
        let place = |name: &str| self.made.path().join(name);
        let hits = self.files.finish().context(&writing)?;
        if !told.answer.finished {
            for [finished, unfinished] in HitFiles::NAMES {
                rename_new(&place(finished), &place(unfinished)).context(&writing)?;
            }
        }
        if let Some(known) = known {
            let [runs, files] = KNOWN.map(|name| File::create_new(place(name)));
            runs.and_then(|file| known.write_runs(&file).and_then(|()| file.sync_all())).context(&writing)?;
            files.and_then(|file| known.write_files(&file).and_then(|()| file.sync_all())).context(&writing)?;
        }
        let answer = serde_json::to_string_pretty(told.answer).context(&writing)? + "\n";
        let report = report::page(told, &hits).into_string();
        for (name, content) in [(COVERAGE, coverage.to_string()), (ANSWER, answer), (REPORT, report)] {
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
