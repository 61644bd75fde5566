//! Programs that make and read file systems, and helpers to compare with them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use cheetah_device::ByteRange;
use cheetah_volume::survey::FileRuns;

/// Returns `PATH` with the directories of system programs.
fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// Runs a program, which must succeed; returns its output.
pub fn run(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).env("PATH", path()).args(arguments).env("LC_ALL", "C.UTF-8").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    output.stdout
}

/// Options of `fls`: a body file, without recognising the file system.
pub const LISTING: &[&str] = &["-i", "raw", "-r", "-m", "/"];

/// Returns the recursive listing of an image.
pub fn fls(kind: &str, image: &Path) -> String {
    let arguments = [LISTING, &["-f", kind, image.to_str().unwrap()]].concat();
    String::from_utf8_lossy(&run("fls", &arguments)).into_owned()
}

/// Returns deterministic random bytes.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let next = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        word.copy_from_slice(&next.to_le_bytes()[..word.len()]);
    }
    bytes
}

/// Makes a nested tree of a few hundred files, some of them empty; returns their content.
pub fn plant(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut add = |path: String, content: Vec<u8>| {
        let place = root.join(&path);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, &content).unwrap();
        files.insert(path, content);
    };
    for directory in 0..24u64 {
        for file in 0..(directory * 7) % 20 {
            let seed = directory * 100 + file;
            let len = [0, 1, 700, 5_000, 30_000, 70_000][(seed % 6) as usize];
            add(format!("d{directory}/a name that is somewhat long {file}.txt"), noise(seed, len));
            if file % 5 == 0 {
                add(format!("d{directory}/sub{file}/deep/er/leaf"), noise(seed + 1, 3000));
            }
        }
    }
    for file in 0..400 {
        add(format!("many/an even longer name so that the directory grows {file}"), vec![b'x'; file % 3]);
    }
    files
}

/// Returns an image with random bytes outside `ranges`, so that a tool that reads them fails.
pub fn only(bytes: &[u8], ranges: impl Iterator<Item = ByteRange>) -> Vec<u8> {
    let mut kept = noise(77, bytes.len());
    for range in ranges {
        let range = range.offset as usize..range.end() as usize;
        kept[range.clone()].copy_from_slice(&bytes[range]);
    }
    kept
}

/// Returns a file's content by its extents in an image.
pub fn content(bytes: &[u8], file: &FileRuns) -> Vec<u8> {
    file.runs.iter().flat_map(|run| bytes[run.offset as usize..run.end() as usize].iter().copied()).collect()
}
