//! The files of a result. They are written beside the journal, and get their names when all of them are there, the answer last.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use cheetah_device::Coverage;
use cheetah_kit::folder::{Entry, Folder};
use cheetah_search::{Layout, Row, Search};
use cheetah_source::search::journal::{Names, writing};
use cheetah_source::search::known::Found;

use super::hit_files::HitFiles;
use super::report::{self, Told};
use crate::answers::search::Search as Answer;
use crate::failure::{Context as _, Failure, Result};

/// The tables of what was found of known files: its runs, and the files.
const KNOWN: [&str; 2] = ["known-runs.csv", "known-files.csv"];
/// The name of the coverage, in the format of GNU ddrescue.
const COVERAGE: &str = "coverage.map";
/// The table of the ranges that were searched only partly, if there are any.
const TRUNCATED: &str = "truncated.csv";
/// The name of the answer.
pub const ANSWER: &str = "search.json";
/// The name of the report.
const REPORT: &str = "report.html";
/// The folder in which all of it is written.
const WRITING: &str = ".result";

/// The names of a result. Those of the hits are `HitFiles::NAMES`.
pub const NAMES: Names = Names {
    files: &[
        "hits.csv",
        "hits.unfinished.csv",
        "hits.parquet",
        "hits.unfinished.parquet",
        KNOWN[0],
        KNOWN[1],
        COVERAGE,
        TRUNCATED,
        ANSWER,
        REPORT,
    ],
    folders: &["features", "features.unfinished", WRITING],
};

/// A result that is being written.
pub struct Writing<'a> {
    folder: &'a Folder,
    /// The path of the folder.
    path: &'a Path,
    /// The folder in which it is written.
    within: Folder,
    files: HitFiles,
}

impl<'a> Writing<'a> {
    /// Begins a result in the folder of this path, for hits in a source of this name. `layout` says what is known of each.
    pub fn begin(folder: &'a Folder, path: &'a Path, source: &str, layout: Layout) -> Result<Self> {
        let failed = |error: std::io::Error| writing(path, &error);
        let within = folder.remove_all(WRITING).and_then(|()| folder.make_folder(WRITING)).map_err(failed)?;
        let files = HitFiles::open(&within, &path.join(WRITING), source, layout).map_err(failed)?;
        Ok(Self { folder, path, within, files })
    }

    /// Adds a hit to the tables, and to the features of its kind.
    pub fn push(&mut self, row: &Row<'_>, search: &Search) -> Result<()> {
        Ok(self.files.push(row, search).map_err(|error| writing(self.path, &error))?)
    }

    /// Completes the result, in place of an earlier one. Returns the names of its files, with those of the folders that they are in.
    pub fn publish(self, told: &Told<'_>, coverage: &Coverage, known: Option<&Found>) -> Result<Vec<String>> {
        let failed = |error: std::io::Error| writing(self.path, &error);
        let hits = self.files.finish(&notes(told.answer)).map_err(failed)?;
        if !told.answer.finished {
            for [finished, unfinished] in HitFiles::NAMES {
                self.within.replace(finished, unfinished).map_err(failed)?;
            }
        }
        if let Some(known) = known {
            let [runs, files] = KNOWN.map(|name| self.within.create(name));
            runs.and_then(|file| known.write_runs(&file).and_then(|()| file.sync_all())).map_err(failed)?;
            files.and_then(|file| known.write_files(&file).and_then(|()| file.sync_all())).map_err(failed)?;
        }
        let answer = serde_json::to_string_pretty(told.answer).context("cannot write the answer")? + "\n";
        let report = report::page(told, &hits).into_string();
        let mut contents = vec![(COVERAGE, coverage.to_string()), (ANSWER, answer), (REPORT, report)];
        if !told.answer.truncated.is_empty() {
            contents.push((TRUNCATED, truncated_table(told.answer)));
        }
        for (name, content) in contents {
            let written = self.within.create(name).and_then(|mut file| {
                file.write_all(content.as_bytes())?;
                file.sync_all()
            });
            written.map_err(failed)?;
        }
        Ok(named(self.folder, self.within).map_err(failed)?)
    }
}

/// What the table of hits says of the search, in its metadata: without all bytes, or with some that were searched only partly, nothing is
/// known of the rest.
fn notes(answer: &Answer<'_>) -> [(&'static str, u64); 6] {
    [
        ("cheetah.finished", u64::from(answer.finished)),
        ("cheetah.size_bytes", answer.size_bytes),
        ("cheetah.searched_bytes", answer.searched_bytes),
        ("cheetah.truncated_bytes", answer.truncated_bytes),
        ("cheetah.unreadable_bytes", answer.unreadable_bytes),
        ("cheetah.unsearched_bytes", answer.unsearched_bytes),
    ]
}

/// The ranges that were searched only partly, as CSV.
fn truncated_table(answer: &Answer<'_>) -> String {
    let mut table = "offset,length,limit\n".to_owned();
    for range in &answer.truncated {
        // The limit is one of few names.
        table += &format!("{},{},{}\n", range.offset, range.len, range.limit);
    }
    table
}

/// Gives what was written its names, in place of an earlier result: the answer, which says how it ended, last.
fn named(folder: &Folder, written: Folder) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for (name, is) in written.entries()? {
        if is == Entry::Folder {
            let within = written.folder(&name)?;
            within.sync()?;
            names.extend(within.entries()?.into_iter().map(|(file, _)| format!("{name}/{file}")));
        } else {
            names.push(name);
        }
    }
    written.sync()?;
    folder.remove(ANSWER)?;
    folder.sync()?;
    for name in NAMES.files.iter().chain(NAMES.folders).filter(|name| **name != WRITING) {
        folder.remove_all(name)?;
    }
    for (name, _) in written.entries()?.iter().filter(|(name, _)| name != ANSWER) {
        folder.take(&written, name)?;
    }
    folder.sync()?;
    folder.take(&written, ANSWER)?;
    drop(written);
    folder.remove_all(WRITING)?;
    folder.sync()?;
    Ok(names)
}

/// The answer of an earlier search whose result is in the folder.
pub fn earlier_answer(folder: &Folder, path: &Path) -> Result<serde_json::Value> {
    let reading = format!("cannot read {}", path.join(ANSWER).display());
    let file = folder.read(ANSWER).context(&reading)?;
    serde_json::from_reader(std::io::BufReader::new(file)).context(&reading)
}

/// Fails if a folder for a result lies in one that is searched for or in, or has it in it: what is written would be taken for evidence.
pub fn check_place(out: &Path, source: &str, known: &[PathBuf]) -> Result<()> {
    let out_at = resolved(out);
    let source = cheetah_image::spec::path_of(source).map(|(path, _)| path);
    for path in known.iter().chain(&source) {
        let at = resolved(path);
        if out_at.starts_with(&at) || at.starts_with(&out_at) {
            return Err(Failure::misused(format!(
                "{} and {} lie in each other: name another folder for the result",
                out.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

/// A path without links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest = Vec::new();
    for existing in path.ancestors() {
        if let Ok(resolved) = existing.canonicalize() {
            return rest.iter().rev().fold(resolved, |path, name| path.join(name));
        }
        rest.extend(existing.file_name());
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_each_file_of_hits_is_one_of_a_result() {
        for name in HitFiles::NAMES.as_flattened() {
            assert!(NAMES.files.contains(name) || NAMES.folders.contains(name), "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_result_is_written_to_the_folder_that_was_opened_also_if_another_one_takes_its_place() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let folder = Folder::make(&at("hits")).unwrap();
        std::fs::create_dir_all(at("evidence/.result/features")).unwrap();
        let within = folder.make_folder(WRITING).unwrap();
        std::fs::rename(at("hits"), at("away")).unwrap();
        std::os::unix::fs::symlink(at("evidence"), at("hits")).unwrap();
        HitFiles::open(&within, &at("hits/.result"), "disk.raw", Layout::Hits).unwrap();
        within.create(ANSWER).unwrap();
        let names = named(&folder, within).unwrap();
        assert_eq!(names, ["hits.csv", "hits.parquet", ANSWER]);
        assert!(at("away/hits.csv").exists() && !at("away/.result").exists());
        assert!(!at("evidence/.result/hits.csv").exists());
    }

    #[test]
    fn a_result_in_a_folder_of_known_files_or_around_the_source_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("known/deep")).unwrap();
        std::fs::create_dir(at("case")).unwrap();
        std::fs::write(at("case/disk.raw"), "x").unwrap();
        let source = at("case/disk.raw").display().to_string();
        let known = [at("known")];
        check_place(&at("hits"), &source, &known).unwrap();
        check_place(&at("case/hits"), &source, &known).unwrap();
        check_place(&at("hits"), "nbd://lab/sda", &[]).unwrap();
        for out in ["known", "known/hits", "known/deep/none/hits", "case", "case/disk.raw"] {
            assert!(check_place(&at(out), &source, &known).is_err(), "{out}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(at("known"), at("link")).unwrap();
            assert!(check_place(&at("link/hits"), &source, &known).is_err());
        }
    }
}
