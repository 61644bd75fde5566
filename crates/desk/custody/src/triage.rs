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

impl Triaged {
    /// Returns the path of the log of the triage in `folder`.
    pub fn log_path(folder: &Path) -> PathBuf {
        folder.join("triage.custody")
    }

    /// Compares the files in `folder` with this record; returns the differences, a sentence each.
    pub fn differences(&self, folder: &Path) -> Vec<String> {
        if self.outputs.is_empty() {
            return vec!["the log lists no file of the result".to_owned()];
        }
        self.outputs.iter().filter_map(|output| output.difference(folder)).collect()
    }
}

impl OutputFile {
    fn difference(&self, folder: &Path) -> Option<String> {
        let Self { name, .. } = self;
        if name.is_empty() || name.contains(['/', '\0']) || name == ".." {
            return Some(format!("the log lists a file with the impossible name {name:?}"));
        }
        let file = match OUTPUT.open_with(&folder.join(name), OpenOptions::new().read(true)) {
            Ok(Some(file)) => file,
            Ok(None) => return Some(format!("{name} is missing")),
            Err(error) => return Some(format!("{name} cannot be compared: {error}")),
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
                Err(error) => return Some(format!("{name} cannot be read: {error}")),
            }
        }
        if size != self.size {
            return Some(format!("{name} has {size} bytes; it had {} when the triage ended", self.size));
        }
        (hex(&digest.finalize()) != self.sha256.to_ascii_lowercase())
            .then(|| format!("{name} was changed since the triage ended: its SHA-256 is not the one in the log"))
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
        assert_eq!(differences(), Vec::<String>::new());
        std::fs::write(&path, "Report").unwrap();
        assert!(differences()[0].contains("was changed"), "{:?}", differences());
        std::fs::write(&path, "rep").unwrap();
        assert!(differences()[0].contains("has 3 bytes"), "{:?}", differences());
        std::fs::remove_file(&path).unwrap();
        assert!(differences()[0].contains("missing"), "{:?}", differences());
        let other = folder.path().join("other");
        std::fs::write(&other, "report").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(differences()[0].contains("cannot be compared"), "{:?}", differences());
        assert!(!Triaged::default().differences(folder.path()).is_empty());
        let outside = OutputFile { name: "../x".into(), ..output };
        assert!(
            Triaged { outputs: vec![outside], ..Triaged::default() }.differences(folder.path())[0]
                .contains("impossible")
        );
    }
}
