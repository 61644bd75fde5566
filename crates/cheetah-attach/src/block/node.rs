//! An nbd device of the kernel: its number, its path, and its attributes in sysfs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The highest number that is tried in the search for a free device.
const INDEX_MAX: u32 = 1023;

/// `/dev/nbdN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node(u32);

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/dev/nbd{}", self.0)
    }
}

impl Node {
    /// Parses `/dev/nbdN`, `nbdN`, or the path of a link to it.
    pub(super) fn named(path: &Path) -> Result<Self> {
        let wrong = || Error::NotAnNbd(path.to_owned());
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = target.file_name().and_then(|name| name.to_str()).ok_or_else(wrong)?;
        let digits = name.strip_prefix("nbd").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(index) if index <= INDEX_MAX => Ok(Self(index)),
            _ => Err(wrong()),
        }
    }

    /// All devices that may exist, or that the kernel makes when they are used.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..=INDEX_MAX).map(Self)
    }

    /// Its number.
    pub(super) fn index(self) -> u32 {
        self.0
    }

    /// The path of its device file.
    pub(super) fn path(self) -> PathBuf {
        PathBuf::from(self.to_string())
    }

    /// Its name, `nbdN`.
    pub(super) fn name(self) -> String {
        format!("nbd{}", self.0)
    }

    /// Whether the kernel has it connected.
    pub(super) fn is_connected(self) -> bool {
        self.attribute("pid").is_some()
    }

    /// The text by which the kernel recognises the content of the device.
    pub(super) fn identifier(self) -> Option<String> {
        self.attribute("backend")
    }

    /// Whether the kernel refuses writes to it. The ioctl `BLKROGET` answers the same.
    pub(super) fn is_read_only(self) -> bool {
        self.attribute("ro").is_some_and(|text| text == "1")
    }

    /// Its size in bytes.
    pub(super) fn size(self) -> u64 {
        self.attribute("size").and_then(|sectors| sectors.parse::<u64>().ok()).map_or(0, |sectors| sectors * 512)
    }

    /// Changes a setting of its queue. Errors are only logged, because such settings affect nothing but speed.
    pub(super) fn tune(self, setting: &str, value: &str) {
        let path = self.sysfs().join("queue").join(setting);
        if let Err(error) = fs::write(&path, value) {
            tracing::debug!("{} stays as it is: {error}", path.display());
        }
    }

    /// The paths of its partitions, in order.
    pub(super) fn partitions(self) -> Vec<PathBuf> {
        let mut found: Vec<(u32, PathBuf)> =
            self.parts().into_iter().filter_map(|name| Some((number(&name)?, Path::new("/dev").join(name)))).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// The device numbers of it and of its partitions.
    pub(super) fn numbers(self) -> Vec<u64> {
        let parts = self.parts().into_iter().map(|name| format!("{name}/dev"));
        let texts = std::iter::once("dev".to_owned()).chain(parts).filter_map(|name| self.attribute(&name));
        texts.filter_map(|text| device_number(&text)).collect()
    }

    /// The names of its partitions.
    fn parts(self) -> Vec<String> {
        let entries = fs::read_dir(self.sysfs()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let prefix = format!("nbd{}p", self.0);
        names.filter(|name| name.starts_with(&prefix)).collect()
    }

    fn attribute(self, name: &str) -> Option<String> {
        fs::read_to_string(self.sysfs().join(name)).ok().map(|text| text.trim_end().to_owned())
    }

    fn sysfs(self) -> PathBuf {
        Path::new("/sys/block").join(self.name())
    }
}

/// The number of the partition `nbdNpM`.
fn number(name: &str) -> Option<u32> {
    name.rsplit_once('p')?.1.parse().ok()
}

/// Parses `major:minor`.
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_nbd_devices_are_taken() {
        assert_eq!(Node::named(Path::new("/dev/nbd12")).unwrap().path(), Path::new("/dev/nbd12"));
        assert_eq!(Node::named(Path::new("nbd0")).unwrap(), Node(0));
        for wrong in ["/dev/sda", "/dev/nbd", "/dev/nbd0p1", "/dev/nbd-1", "/dev/nbd4096", "/", ""] {
            let error = Node::named(Path::new(wrong)).unwrap_err();
            assert!(error.to_string().contains("/dev/nbd0"), "{wrong}: {error}");
        }
    }
}
