//! Support for tests.

pub mod bytes;
pub mod lab;
pub mod node;
pub mod peer;
pub mod port;
pub mod python;
pub mod run;
pub mod service;
pub mod stderr;
pub mod tap;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub use bytes::noise;
pub use cheetah_testing as need;
pub use node::Node;
pub use peer::Peer;
pub use port::Port;
pub use run::{cheetah, tool};
pub use service::{Mounted, Service};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// A directory of a test's own, with helpers for the files in it.
pub struct Desk(TempDir);

impl Desk {
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("cheetah-test-").tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path as an argument.
    pub fn arg(&self, name: &str) -> String {
        self.at(name).to_str().unwrap().to_owned()
    }

    pub fn dir(&self, name: &str) -> String {
        std::fs::create_dir(self.at(name)).unwrap();
        self.arg(name)
    }

    pub fn file(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.at(name), content).unwrap();
        self.arg(name)
    }

    /// An image of `len` noisy bytes with holes in it, and those bytes.
    pub fn image(&self, name: &str, len: u64) -> (String, Vec<u8>) {
        let content = noise(len, len ^ 0x5eed);
        (self.file(name, &content), content)
    }

    /// `NAME.drive` over the nodes, with the image in it; a stripe unless `more` says otherwise.
    pub fn drive(&self, name: &str, nodes: &[&Node], image: &str, more: &[&str]) -> String {
        let path = self.arg(&format!("{name}.drive"));
        let nodes = node::list(nodes);
        let mut args = vec!["create", &path, "--nodes", &nodes, "--from", image];
        args.extend(more);
        if !more.contains(&"--layout") {
            args.extend(["--layout", "stripe"]);
        }
        cheetah(&args).ok();
        path
    }
}

/// Waits until something holds, which may take long because the machine may be busy.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < 2 * service::PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Three nodes of `memory` each.
pub fn three(memory: &str) -> [Node; 3] {
    [Node::start(memory), Node::start(memory), Node::start(memory)]
}

/// The runs of a GNU ddrescue map file in a state (`+`, `-`, `?`), as offset and length.
pub fn mapped(path: &Path, state: &str) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let runs = words.filter(|words| words.len() == 3 && words[1].starts_with("0x") && words[2] == state);
    runs.map(|words| (number(words[0]), number(words[1]))).collect()
}

/// The table of hits in a folder, without the columns that say where each was found: everything else is the same wherever that was.
pub fn hits_of(folder: &Path) -> String {
    let table = std::fs::read_to_string(folder.join("hits.csv")).unwrap();
    // The names of nodes here have no commas.
    let rows = table.lines().map(|row| row.rsplitn(3, ',').nth(2).unwrap().to_owned() + "\n");
    assert!(table.lines().next().unwrap().ends_with(",node,instance"), "{table}");
    rows.collect()
}

/// The string at a path of keys.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text '{key}' in {value}"))
}

/// The number at a key.
pub fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no number '{key}' in {value}"))
}
