//! The memory of this machine, and of the control groups that this process is in.

use std::fs;
use std::path::{Path, PathBuf};

use crate::machine_memory::MachineMemory;

/// Parses `/proc/meminfo`.
fn from_meminfo(text: &str) -> Option<MachineMemory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(MachineMemory { total_bytes: field("MemTotal")?, available_bytes: field("MemAvailable")? })
}

/// Parses a control group's limit, usage and `memory.stat`. `None` if it has no limit.
fn from_cgroup(limit: &str, usage: &str, stat: &str) -> Option<MachineMemory> {
    // "max" under version 2, a number near 2^63 under version 1.
    let total_bytes = limit.trim().parse().ok().filter(|limit| *limit < 1 << 62)?;
    let used: u64 = usage.trim().parse().ok()?;
    // The page cache can be reclaimed; counted as used, it would make a busy group look full.
    let cached = stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        matches!(name, "inactive_file" | "total_inactive_file").then(|| value.trim().parse::<u64>().ok())?
    });
    let used = used.saturating_sub(cached.unwrap_or(0));
    Some(MachineMemory { total_bytes, available_bytes: u64::saturating_sub(total_bytes, used) })
}

/// This machine's memory now, by `/proc/meminfo` and the limits of its control groups. `None` if they are not readable.
pub fn machine_memory() -> Option<MachineMemory> {
    let machine = from_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(cgroup_dirs(&own).iter().filter_map(|dir| read_cgroup(dir)).fold(machine, MachineMemory::within))
}

/// The directories of a process's control groups, from `/proc/self/cgroup`, with all ancestors: a limit of any of them
/// applies.
fn cgroup_dirs(own: &str) -> Vec<PathBuf> {
    let groups = own.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            _ if controllers.split(',').any(|name| name == "memory") => "/sys/fs/cgroup/memory",
            _ => return None,
        };
        Some((root, path.trim_start_matches('/')))
    });
    groups
        .flat_map(|(root, path)| {
            let deepest = Path::new(root).join(path);
            deepest.ancestors().take_while(|dir| dir.starts_with(root)).map(Path::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

fn read_cgroup(dir: &Path) -> Option<MachineMemory> {
    let read = |name: &str| fs::read_to_string(dir.join(name));
    let limit = read("memory.max").or_else(|_| read("memory.limit_in_bytes")).ok()?;
    let usage = read("memory.current").or_else(|_| read("memory.usage_in_bytes")).ok()?;
    from_cgroup(&limit, &usage, &read("memory.stat").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn meminfo_is_parsed() {
        let text = "MemTotal:       16777216 kB\nMemFree:         1000000 kB\nMemAvailable:   12582912 kB\n";
        let room = from_meminfo(text).unwrap();
        assert_eq!(room, MachineMemory { total_bytes: 16 * GIB, available_bytes: 12 * GIB });
        assert_eq!(from_meminfo("MemTotal: 5 kB\n"), None);
        assert_eq!(from_meminfo("MemTotal: 99999999999999999999 kB\nMemAvailable: 1 kB"), None);
    }

    #[test]
    fn control_group_limits_are_parsed() {
        let room = from_cgroup("4294967296\n", "2147483648\n", "anon 5\ninactive_file 1073741824\n");
        assert_eq!(room, Some(MachineMemory { total_bytes: 4 * GIB, available_bytes: 3 * GIB }));
        assert_eq!(from_cgroup("max\n", "2147483648\n", ""), None);
        assert_eq!(from_cgroup("9223372036854771712\n", "5\n", ""), None, "version 1 without a limit");
    }

    #[test]
    fn all_ancestors_of_a_control_group_are_found() {
        let dirs = cgroup_dirs("5:cpu,memory:/a\n4:cpuset:/x\n0::/user.slice/me\n");
        let names: Vec<_> = dirs.iter().map(|dir| dir.to_str().unwrap()).collect();
        let expected = [
            "/sys/fs/cgroup/memory/a",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/user.slice/me",
            "/sys/fs/cgroup/user.slice",
            "/sys/fs/cgroup",
        ];
        assert_eq!(names, expected);
    }
}
