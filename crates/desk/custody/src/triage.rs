//! The outputs of a triage, in its custody log and in its folder.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cheetah_image::hash::hex;
use cheetah_image::own_file::OwnFile;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const OUTPUT: OwnFile = OwnFile { name: "output of a triage", begins: |_| true };
const PIECE_BYTES: usize = 1 << 20;

/// The outcome of a run of a triage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Triaged {
    /// Whether every stage was completed.
    #[serde(default)]
    pub complete: bool,
    /// The verdict in one word: `whole`, `gaps`, `quick` or `stopped`.
    #[serde(default)]
    pub verdict: String,
    /// The files of the result.
    #[serde(default)]
    pub outputs: Vec<OutputFile>,
}

/// A file of the result of a triage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputFile {
    /// Its name in the folder of the triage.
    pub name: String,
    /// Bytes in it.
    #[serde(rename = "size_bytes", alias = "size")]
    pub size: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

/// How a file of a result is not as its record has it: a sentence without its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputDifference {
    /// The record has no file.
    #[error("the log lists no file of the result")]
    NoOutputs,
    /// The name that the record has is none of a file in the folder.
    #[error("the log lists a file with the impossible name {0:?}")]
    ImpossibleName(String),
    /// The file of this name is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// The file of this name cannot be compared.
    #[error("{name} cannot be compared: {why}")]
    NotCompared {
        /// The name of the file.
        name: String,
        /// Why: it is no file, or cannot be opened.
        why: String,
    },
    /// The file could not be read to its end.
    #[error("{name} cannot be read: {why}")]
    Unread {
        /// The name of the file.
        name: String,
        /// The error of the operating system.
        why: String,
    },
    /// The file has another size.
    #[error("{name} has {size} bytes; it had {recorded} when the triage ended")]
    Size {
        /// The name of the file.
        name: String,
        /// Its size now, in bytes.
        size: u64,
        /// Its size in the record, in bytes.
        recorded: u64,
    },
    /// The file of this name has another content.
    #[error("{0} was changed since the triage ended: its SHA-256 is not the one in the log")]
    Changed(String),
}

impl Triaged {
    /// Returns the path of the log of the triage in `folder`.
    pub fn log_path(folder: &Path) -> PathBuf {
        folder.join("triage.custody")
    }

    /// Compares the files in `folder` with this record; returns the differences.
    pub fn differences(&self, folder: &Path) -> Vec<OutputDifference> {
        if self.outputs.is_empty() {
            return vec![OutputDifference::NoOutputs];
        }
        self.outputs.iter().filter_map(|output| output.difference(folder)).collect()
    }
}

impl OutputFile {
    fn difference(&self, folder: &Path) -> Option<OutputDifference> {
        let name = self.name.clone();
        if name.is_empty() || name.contains(['/', '\0']) || name == ".." {
            return Some(OutputDifference::ImpossibleName(name));
        }
        let file = match OUTPUT.open_with(&folder.join(&name), OpenOptions::new().read(true)) {
            Ok(Some(file)) => file,
            Ok(None) => return Some(OutputDifference::Missing(name)),
            Err(error) => return Some(OutputDifference::NotCompared { name, why: error.to_string() }),
        };
        let (mut digest, mut size, mut piece) = (Sha256::new(), 0, vec![0; PIECE_BYTES]);
        let mut file = file;
        loop {
            match file.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => {
                    digest.update(&piece[..read]);
                    size += read as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Some(OutputDifference::Unread { name, why: error.to_string() }),
            }
        }
        if size != self.size {
            return Some(OutputDifference::Size { name, size, recorded: self.size });
        }
        (hex(&digest.finalize()) != self.sha256.to_ascii_lowercase()).then_some(OutputDifference::Changed(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_is_changed_cut_short_missing_or_a_link_is_a_difference() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        std::fs::write(&path, "report").unwrap();
        let sha256 = hex(&Sha256::digest("report"));
        let output = OutputFile { name: "report.html".into(), size: 6, sha256 };
        let triaged = Triaged { outputs: vec![output.clone()], ..Triaged::default() };
        let differences = || triaged.differences(folder.path());
        let name = || output.name.clone();
        assert_eq!(differences(), []);
        std::fs::write(&path, "Report").unwrap();
        assert_eq!(differences(), [OutputDifference::Changed(name())]);
        std::fs::write(&path, "rep").unwrap();
        assert_eq!(differences(), [OutputDifference::Size { name: name(), size: 3, recorded: 6 }]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(differences(), [OutputDifference::Missing(name())]);
        let other = folder.path().join("other");
        std::fs::write(&other, "report").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(matches!(differences()[..], [OutputDifference::NotCompared { .. }]), "{:?}", differences());
        assert_eq!(Triaged::default().differences(folder.path()), [OutputDifference::NoOutputs]);
        let outside = OutputFile { name: "../x".into(), ..output.clone() };
        let triaged = Triaged { outputs: vec![outside], ..Triaged::default() };
        assert_eq!(triaged.differences(folder.path()), [OutputDifference::ImpossibleName("../x".into())]);
    }
}
