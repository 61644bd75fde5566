//! The files that have the hits of a search.
//!
//! They are made of the hits alone, one after the other in the order of the search. So a record of the hits is enough to make them again.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cheetah_kit::folder::Folder;
use cheetah_search::{CsvTable, FeatureFiles, Layout, ParquetTable, Row, Search, cells};

use super::report::{Made, Samples};

/// The table as CSV, and its name if it is not finished.
const CSV: [&str; 2] = ["hits.csv", "hits.unfinished.csv"];
/// The table as a Parquet file, and its name if it is not finished.
const PARQUET: [&str; 2] = ["hits.parquet", "hits.unfinished.parquet"];
/// The folder of feature files, and its name if they are not finished.
const FEATURES: [&str; 2] = ["features", "features.unfinished"];

/// Features of each histogram that the report shows.
const TOP_FEATURES: usize = 10;

/// The files of hits that are being written.
pub struct HitFiles {
    csv: CsvTable<File>,
    parquet: ParquetTable<Arc<File>>,
    parquet_file: Arc<File>,
    features: FeatureFiles,
    samples: Samples,
    layout: Layout,
}

impl HitFiles {
    /// The names of the files, each with that of an unfinished one.
    pub const NAMES: [[&str; 2]; 3] = [CSV, PARQUET, FEATURES];

    /// Begins the files in a folder of this path, for hits in a source of this name. `layout` says what is known of each.
    pub fn open(folder: &Folder, path: &Path, source: &str, layout: Layout) -> io::Result<Self> {
        let [csv, parquet, features] = Self::NAMES.map(|[name, _]| name);
        let csv = CsvTable::new(folder.create(csv)?, layout)?;
        let parquet_file = Arc::new(folder.create(parquet)?);
        let parquet = ParquetTable::new(parquet_file.clone(), layout)?;
        folder.make_folder(features)?;
        let features = FeatureFiles::new(&path.join(features), source);
        Ok(Self { csv, parquet, parquet_file, features, samples: Samples::default(), layout })
    }

    /// Adds a hit.
    pub fn push(&mut self, row: &Row<'_>, search: &Search) -> io::Result<()> {
        let cells = cells(row, search, self.layout);
        self.csv.push(&cells)?;
        self.parquet.push(&cells)?;
        // A feature file has an offset in each line.
        if row.known_offset().is_some() {
            self.features.push(row, search)?;
        }
        self.samples.push(row, search);
        Ok(())
    }

    /// Has all on the disk. The metadata of the Parquet file have the `notes`.
    pub fn finish(mut self, notes: &[(&str, u64)]) -> io::Result<Made> {
        self.csv.finish()?.sync_all()?;
        notes.iter().for_each(|(key, number)| self.parquet.note(key, number.to_string()));
        self.parquet.finish()?;
        self.parquet_file.sync_all()?;
        let histograms = self.features.finish(TOP_FEATURES)?;
        Ok(Made { histograms, samples: self.samples })
    }
}

#[cfg(test)]
mod tests {
    use cheetah_search::{Hit, Order, SearchNode};

    use super::*;

    #[test]
    fn the_same_hits_make_the_same_files_again() {
        let encoding = "utf-8".parse().unwrap();
        let order = Order { words: vec!["word".into()], encodings: vec![encoding], ..Order::default() };
        let search = Search::new(&order).unwrap();
        let node = SearchNode { name: "lab7".into(), instance: "0011".into() };
        let made = || {
            let folder = tempfile::tempdir().unwrap();
            let within = Folder::open(folder.path()).unwrap();
            let mut files = HitFiles::open(&within, folder.path(), "disk.raw", Layout::Hits).unwrap();
            for offset in 0..1000 {
                let hit = Hit {
                    offset,
                    pattern: 0,
                    encoding,
                    bytes: b"word".to_vec(),
                    before: vec![offset as u8],
                    after: Vec::new(),
                };
                files.push(&Row::new(&hit, (offset % 2 == 0).then_some(&node)), &search).unwrap();
            }
            let made = files.finish(&[("cheetah.truncated_bytes", 7)]).unwrap();
            assert_eq!((made.histograms.len(), made.samples.of(0).len()), (1, 10));
            let files = ["hits.csv", "hits.parquet", "features/find.txt", "features/find_histogram.txt"];
            files.map(|file| std::fs::read(folder.path().join(file)).unwrap())
        };
        let files = made();
        assert!(files == made() && files.iter().all(|file| !file.is_empty()));
    }
}
