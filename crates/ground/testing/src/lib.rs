//! Requirements of tests: programs, rights and real images. A test whose requirement is missing reports that and is
//! skipped. Also what tests of several crates read: images with volumes, and a device that never answers.

#![forbid(unsafe_code)]

pub mod apple;
pub mod raid;
pub mod reference;
mod silent_device;
pub mod vss;

use std::io::Write as _;
use std::path::{Path, PathBuf};

pub use silent_device::SilentDevice;

/// Reports that the current test is skipped, and the reason. Bypasses the test runner's capture, since
/// `scripts/test-summary` counts the lines.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // In one write, so that the output of other threads cannot split the line.
    let line = format!("\nSKIPPED: {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether all of these programs are installed. If not, reports that the test is skipped.
pub fn programs(names: &[&str]) -> bool {
    let missing: Vec<_> = names.iter().filter(|name| find(name).is_none()).copied().collect();
    if !missing.is_empty() {
        skip(&format!("needs {} (make test installs it)", missing.join(", ")));
    }
    missing.is_empty()
}

/// Whether FUSE mounts are possible. If not, reports that the test is skipped.
pub fn fuse() -> bool {
    let there = Path::new("/dev/fuse").exists() && (is_root() || find("fusermount3").is_some());
    if !there {
        skip("needs FUSE (/dev/fuse, fusermount3)");
    }
    there
}

/// Whether this process is root and has loop devices. If not, reports that the test is skipped.
pub fn root_and_loop() -> bool {
    let there = is_root() && Path::new("/dev/loop-control").exists();
    if !there {
        skip("needs root and loop devices");
    }
    there
}

/// Whether this process is root.
pub fn is_root() -> bool {
    cheetah_kit::process::is_privileged()
}

/// Returns a program's path; also looks in directories that a user's PATH lacks.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Returns the path of a real image made by others, which is not part of the project: in the folder that
/// `CHEETAH_EVIDENCE` names, or in `../shared/evidence` beside the checkout. `None` if it is missing, after a report that
/// the test is skipped.
pub fn evidence(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/evidence");
    let folder = std::env::var_os("CHEETAH_EVIDENCE").map_or(beside, PathBuf::from);
    let path = folder.join(name);
    if !path.is_file() {
        skip(&format!("needs {name} in a folder of real images (CHEETAH_EVIDENCE)"));
        return None;
    }
    Some(path)
}
