//! Requirements of a test; if one is missing, the test says so and is skipped.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Says that this test is not run, past the test runner's capture, and counted by scripts/test-summary.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // In one write, so that the output of other threads cannot split the line.
    let line = format!("\nSKIPPED: {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Whether all of these programs are there; if not, the test is skipped.
pub fn programs(names: &[&str]) -> bool {
    let missing: Vec<_> = names.iter().filter(|name| find(name).is_none()).copied().collect();
    if !missing.is_empty() {
        skip(&format!("needs {} (make test installs it)", missing.join(", ")));
    }
    missing.is_empty()
}

/// Whether mounts can be made here.
pub fn fuse() -> bool {
    let there = Path::new("/dev/fuse").exists() && (is_root() || find("fusermount3").is_some());
    if !there {
        skip("needs FUSE (/dev/fuse, fusermount3)");
    }
    there
}

/// Whether this is root, with loop devices to be had.
pub fn root_and_loop() -> bool {
    let there = is_root() && Path::new("/dev/loop-control").exists();
    if !there {
        skip("needs root and loop devices");
    }
    there
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns a program's path; also looks in directories that a user's PATH lacks.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// The folder of real images made by others, which is not part of the project.
pub fn evidence(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/evidence");
    let folder = std::env::var_os("CHEETAH_EVIDENCE").map_or(beside, PathBuf::from);
    let path = folder.join(name);
    if !path.is_file() {
        skip(&format!("needs {name} in a folder of real images (CHEETAH_EVIDENCE)"));
        return None;
    }
    Some(path)
}
