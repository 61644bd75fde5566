//! Hits as feature files and histograms of `bulk_extractor` (feature file version 1.1), which other tools read.
//!
//! Each kind of data has a file with a line for each hit: its forensic path, feature and context, with tabs between them. The path is
//! the offset, or leads into compressed data. A histogram has
//! a line for each feature, the most frequent first: `n=COUNT`, a tab, and the feature.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use cheetah_device::visible::OneLine;

use crate::finder::Finder;
use crate::search::{PatternKind, Search};
use crate::table::Row;

/// The maximum number of different features that a histogram counts.
const FEATURES_MAX: usize = 1 << 20;

/// Feature files that are being written.
pub struct FeatureFiles {
    folder: PathBuf,
    source: String,
    files: BTreeMap<&'static str, FeatureFile>,
}

struct FeatureFile {
    lines: BufWriter<File>,
    counts: HashMap<String, u64>,
    /// Hits whose features are not counted: there are too many different ones.
    uncounted: u64,
}

/// How often the features of a kind were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// The name of its file, without its extension.
    pub recorder: &'static str,
    /// The most frequent features, and the number of their hits.
    pub top: Vec<(String, u64)>,
    /// The number of different features that were counted.
    pub different: usize,
    /// Hits with features that were not counted: there are too many different ones.
    pub uncounted: u64,
}

impl FeatureFiles {
    /// Feature files of hits in a source of this name, in an existing folder. A file is made with its first hit.
    pub fn new(folder: &Path, source: &str) -> Self {
        Self { folder: folder.to_owned(), source: OneLine(source).to_string(), files: BTreeMap::new() }
    }

    /// Adds a hit.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn push(&mut self, row: &Row<'_>, search: &Search) -> io::Result<()> {
        let recorder = recorder(search, row.hit.pattern);
        let file = match self.files.get_mut(recorder) {
            Some(file) => file,
            None => self.files.entry(recorder).or_insert(FeatureFile {
                lines: begun(&self.folder.join(format!("{recorder}.txt")), recorder, &self.source)?,
                counts: HashMap::new(),
                uncounted: 0,
            }),
        };
        let (feature, context) = (search.text(row.hit), search.context(row.hit));
        match row.inside {
            None => writeln!(file.lines, "{}\t{feature}\t{context}", row.offset)?,
            Some(inside) => writeln!(file.lines, "{}-{inside}\t{feature}\t{context}", row.offset)?,
        }
        file.count(feature);
        Ok(())
    }

    /// Writes the histograms, has all on the disk, and returns of each histogram up to `top` features, the most frequent first.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn finish(self, top: usize) -> io::Result<Vec<Histogram>> {
        let mut histograms = Vec::with_capacity(self.files.len());
        for (recorder, file) in self.files {
            file.lines.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            let mut counted: Vec<_> = file.counts.into_iter().collect();
            counted.sort_by(|(one, ones), (other, others)| others.cmp(ones).then_with(|| one.cmp(other)));
            let path = self.folder.join(format!("{recorder}_histogram.txt"));
            let mut lines = begun(&path, recorder, &self.source)?;
            if file.uncounted > 0 {
                let hits = file.uncounted;
                writeln!(
                    lines,
                    "# {hits} hits with features after the first {FEATURES_MAX} different ones are not counted"
                )?;
            }
            for (feature, hits) in &counted {
                writeln!(lines, "n={hits}\t{feature}")?;
            }
            lines.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            let (different, uncounted) = (counted.len(), file.uncounted);
            counted.truncate(top);
            histograms.push(Histogram { recorder, top: counted, different, uncounted });
        }
        Ok(histograms)
    }
}

impl FeatureFile {
    fn count(&mut self, feature: String) {
        let has_room = self.counts.len() < FEATURES_MAX;
        match self.counts.entry(feature) {
            Entry::Occupied(mut counted) => *counted.get_mut() += 1,
            Entry::Vacant(new) if has_room => drop(new.insert(1)),
            Entry::Vacant(_) => self.uncounted += 1,
        }
    }
}

/// A file with the comments at its beginning.
fn begun(path: &Path, recorder: &str, source: &str) -> io::Result<BufWriter<File>> {
    let mut lines = BufWriter::new(File::create_new(path)?);
    writeln!(lines, "# Written by cheetah {} in the format of bulk_extractor", env!("CARGO_PKG_VERSION"))?;
    writeln!(lines, "# Feature-Recorder: {recorder}\n# Filename: {source}\n# Feature-File-Version: 1.1")?;
    Ok(lines)
}

/// The name that `bulk_extractor` gives to such features. Its scanner of words and expressions is `find`; matches of YARA rules, for which it
/// has none, are `yara`.
fn recorder(search: &Search, pattern: usize) -> &'static str {
    let is_finder = |kind| matches!(kind, PatternKind::Finder | PatternKind::Header);
    let pattern = search.patterns().get(pattern);
    if pattern.is_some_and(|pattern| pattern.kind == PatternKind::Rule) {
        return "yara";
    }
    match pattern.filter(|pattern| is_finder(pattern.kind)).and_then(|pattern| pattern.name.parse().ok()) {
        Some(Finder::Ipv4 | Finder::Ipv6) => "ip",
        Some(Finder::Card) => "ccn",
        Some(Finder::Header(_)) => "headers",
        Some(finder) => finder.name(),
        None => "find",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Order;

    #[test]
    fn each_kind_of_data_has_a_file_of_features_and_a_histogram_with_the_most_frequent_first() {
        let order = Order {
            words: vec!["secret".into()],
            finders: vec![Finder::Email, Finder::Ipv4, Finder::Card],
            encodings: vec!["utf-8".parse().unwrap()],
            context_bytes: 4,
            ..Order::default()
        };
        let search = Search::new(&order).unwrap();
        let text = b"bob@example.org\tsecret anna@example.org 192.0.2.7 anna@example.org\n4111111111111111 end";
        let folder = tempfile::tempdir().unwrap();
        let mut files = FeatureFiles::new(folder.path(), "disk\n.raw");
        for hit in search.scan_alone(0, &[&[0; 8192][..], text, &[0; 8192]].concat(), usize::MAX).unwrap() {
            files.push(&Row::new(&hit, None), &search).unwrap();
        }
        let histograms = files.finish(1).unwrap();
        let email = histograms.iter().find(|histogram| histogram.recorder == "email").unwrap();
        assert_eq!((&email.top[..], email.different), (&[("anna@example.org".to_owned(), 2)][..], 2));
        let lines = |name: &str| -> Vec<String> {
            let content = std::fs::read_to_string(folder.path().join(name)).unwrap();
            content.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(lines("email_histogram.txt"), ["n=2\tanna@example.org", "n=1\tbob@example.org"]);
        assert_eq!(lines("email.txt")[0], "8192\tbob@example.org\t\\x00\\x00\\x00\\x00bob@example.org\\x09sec");
        assert_eq!(lines("find_histogram.txt"), ["n=1\tsecret"]);
        assert_eq!(lines("ip_histogram.txt"), ["n=1\t192.0.2.7"]);
        assert_eq!(lines("ccn_histogram.txt"), ["n=1\t4111111111111111"]);
        let begin = std::fs::read_to_string(folder.path().join("ip.txt")).unwrap();
        assert!(
            begin.contains("# Feature-Recorder: ip\n# Filename: disk\\n.raw\n# Feature-File-Version: 1.1\n"),
            "{begin}"
        );
        assert!(!folder.path().join("telephone.txt").exists());
    }
}
