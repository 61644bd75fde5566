//! What this machine has mounted from a disk.
//!
//! Pools of ZFS, containers of APFS and labels hide the disk that they are on, so a disk of which nothing is found may be in use.

use std::path::Path;

use cheetah_kit::storage::Mount;

/// The name of a device below `/dev`, such as `ada0` or `disk2`; `None` for any other path. On macOS, `rdisk2` is `disk2`, past the
/// cache.
pub(super) fn device_name(device: &Path) -> Option<String> {
    let path = device.canonicalize().unwrap_or_else(|_| device.to_owned());
    let name = path.strip_prefix("/dev").ok()?.to_str()?;
    Some(name.strip_prefix('r').filter(|name| name.starts_with("disk")).unwrap_or(name).to_owned())
}

/// What is mounted from the device of this name or a part of it, a clause each.
pub(super) fn users(name: &str, mounts: &[Mount]) -> Vec<String> {
    let mounted = mounts.iter().filter_map(|mount| {
        let part = mount.from.strip_prefix("/dev/")?;
        let rest = part.strip_prefix(name)?;
        // `ada0p2` and `ada0s1a` are parts of `ada0`; `ada01` is another disk.
        (rest.is_empty() || rest.starts_with(['p', 's'])).then(|| format!("{part} is mounted on {}", mount.on))
    });
    mounted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_the_users_of_its_partitions_and_not_those_of_another() {
        let mount = |from: &str, on: &str| Mount { from: from.into(), on: on.into() };
        let mounts = [
            mount("/dev/ada0p2", "/"),
            mount("/dev/ada0s1a", "/old"),
            mount("/dev/ada01", "/x"),
            mount("devfs", "/dev"),
        ];
        assert_eq!(users("ada0", &mounts), ["ada0p2 is mounted on /", "ada0s1a is mounted on /old"]);
        assert_eq!(users("ada0p2", &mounts), ["ada0p2 is mounted on /"]);
        assert!(users("da0", &mounts).is_empty());
    }

    #[test]
    fn a_disk_past_the_cache_has_the_name_of_the_disk() {
        assert_eq!(device_name(Path::new("/dev/rdisk97")).as_deref(), Some("disk97"));
        assert_eq!(device_name(Path::new("/dev/raid97")).as_deref(), Some("raid97"));
        assert_eq!(device_name(Path::new("/nowhere/disk97")), None);
    }
}
