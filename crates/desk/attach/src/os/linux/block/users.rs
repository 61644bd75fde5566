//! The users of a device: mounts, and programs that have it open.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::node::Node;
use crate::table;

/// The maximum number of users that are named.
const NAMED_MAX: usize = 8;

/// Returns the mounts and programs that use the device or its partitions, a phrase each. Programs of other users and mounts in
/// other namespaces may be missing.
pub(crate) fn of(node: Node) -> Vec<String> {
    let numbers = node.numbers();
    let mounts = table::mounted(&numbers).unwrap_or_default();
    let mut found: Vec<_> = mounts.iter().map(|dir| format!("mounted on {}", dir.display())).collect();
    found.extend(programs(&numbers).into_iter().map(|program| format!("open in {program}")));
    found.truncate(NAMED_MAX);
    found
}

/// The programs that have one of the devices open, with their process ids.
fn programs(numbers: &[u64]) -> BTreeSet<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = std::process::id().to_string();
    let ids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let ids = ids.filter(|id| *id != own && id.bytes().all(|byte| byte.is_ascii_digit()));
    ids.filter(|id| has_open(id, numbers))
        .map(|id| {
            let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            format!("{} (process {id})", name.trim_end().escape_debug())
        })
        .collect()
}

fn has_open(process: &str, numbers: &[u64]) -> bool {
    const S_IFMT: u32 = 0o170_000;
    const S_IFBLK: u32 = 0o060_000;
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| fs::metadata(file.path()).ok())
        .any(|file| file.mode() & S_IFMT == S_IFBLK && numbers.contains(&file.rdev()))
}
