//! A block device of the kernel that we serve: its driver, its number, its path, and its attributes in sysfs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The highest number of a device, and the highest that is tried in the search for a free nbd device.
const INDEX_MAX: u32 = 1023;

/// The kernel's driver that makes a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// The NBD client.
    Nbd,
    /// ublk.
    #[cfg(feature = "ublk")]
    Ublk,
}

impl Driver {
    #[cfg(not(feature = "ublk"))]
    const ALL: [Self; 1] = [Self::Nbd];
    #[cfg(feature = "ublk")]
    const ALL: [Self; 2] = [Self::Nbd, Self::Ublk];

    /// The name of its devices, before the number.
    fn prefix(self) -> &'static str {
        match self {
            Self::Nbd => "nbd",
            #[cfg(feature = "ublk")]
            Self::Ublk => "ublkb",
        }
    }

    /// The attribute that only a connected device has.
    fn sign(self) -> &'static str {
        match self {
            Self::Nbd => "pid",
            #[cfg(feature = "ublk")]
            Self::Ublk => "dev",
        }
    }
}

/// `/dev/nbdN` or `/dev/ublkbN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    driver: Driver,
    index: u32,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/dev/{}", self.name())
    }
}

impl Node {
    /// The device of a driver with this number.
    #[cfg(feature = "ublk")]
    pub(crate) fn new(driver: Driver, index: u32) -> Self {
        Self { driver, index }
    }

    /// Parses `/dev/nbdN`, `nbdN`, or the path of a link to it.
    pub(crate) fn named(path: &Path) -> Result<Self> {
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = target.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let node = Driver::ALL.into_iter().find_map(|driver| {
            let digits = name.strip_prefix(driver.prefix())?;
            let index = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
            (index <= INDEX_MAX).then_some(Self { driver, index })
        });
        node.ok_or_else(|| Error::NotADevice(path.to_owned()))
    }

    /// All nbd devices that may exist, or that the kernel makes when they are used.
    pub(crate) fn all_nbd() -> impl Iterator<Item = Self> {
        (0..=INDEX_MAX).map(|index| Self { driver: Driver::Nbd, index })
    }

    /// The driver that makes it.
    pub(crate) fn driver(self) -> Driver {
        self.driver
    }

    /// Its number.
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// The path of its device file.
    pub(crate) fn path(self) -> PathBuf {
        PathBuf::from(self.to_string())
    }

    /// Its name, `nbdN` or `ublkbN`.
    pub(crate) fn name(self) -> String {
        format!("{}{}", self.driver.prefix(), self.index)
    }

    /// Whether the kernel has it connected.
    pub(crate) fn is_connected(self) -> bool {
        self.attribute(self.driver.sign()).is_some()
    }

    /// The text by which the kernel recognises the content of an nbd device.
    pub(crate) fn identifier(self) -> Option<String> {
        self.attribute("backend")
    }

    /// Whether the kernel refuses writes to it. The ioctl `BLKROGET` answers the same.
    pub(crate) fn is_read_only(self) -> bool {
        self.attribute("ro").is_some_and(|text| text == "1")
    }

    /// Its size in bytes.
    pub(crate) fn size(self) -> u64 {
        self.attribute("size").and_then(|sectors| sectors.parse::<u64>().ok()).map_or(0, |sectors| sectors * 512)
    }

    /// Changes a setting of its queue. Errors are only logged, because such settings affect nothing but speed.
    pub(crate) fn tune(self, setting: &str, value: &str) {
        let path = self.sysfs().join("queue").join(setting);
        if let Err(error) = fs::write(&path, value) {
            tracing::debug!("{} stays as it is: {error}", path.display());
        }
    }

    /// The paths of its partitions, in order.
    pub(crate) fn partitions(self) -> Vec<PathBuf> {
        let mut found: Vec<(u32, PathBuf)> =
            self.parts().into_iter().filter_map(|name| Some((number(&name)?, Path::new("/dev").join(name)))).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// Makes its device file and those of its partitions root's alone: they show evidence.
    pub(crate) fn keep_from_others(self) {
        use std::os::unix::fs::PermissionsExt as _;
        for path in std::iter::once(self.path()).chain(self.partitions()) {
            let Ok(mode) = fs::metadata(&path).map(|found| found.permissions().mode()) else { continue };
            if mode & 0o077 != 0
                && let Err(error) = fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o700))
            {
                tracing::warn!("{}: other users may use it, and that cannot be changed: {error}", path.display());
            }
        }
    }

    /// The device numbers of it and of its partitions.
    pub(crate) fn numbers(self) -> Vec<u64> {
        let parts = self.parts().into_iter().map(|name| format!("{name}/dev"));
        let texts = std::iter::once("dev".to_owned()).chain(parts).filter_map(|name| self.attribute(&name));
        texts.filter_map(|text| device_number(&text)).collect()
    }

    /// The names of its partitions.
    fn parts(self) -> Vec<String> {
        let entries = fs::read_dir(self.sysfs()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let prefix = format!("{}p", self.name());
        names.filter(|name| name.starts_with(&prefix)).collect()
    }

    fn attribute(self, name: &str) -> Option<String> {
        fs::read_to_string(self.sysfs().join(name)).ok().map(|text| text.trim_end().to_owned())
    }

    fn sysfs(self) -> PathBuf {
        Path::new("/sys/block").join(self.name())
    }
}

/// The number of the partition `nbdNpM` or `ublkbNpM`.
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
    fn only_whole_devices_are_taken() {
        assert_eq!(Node::named(Path::new("/dev/nbd12")).unwrap().path(), Path::new("/dev/nbd12"));
        assert_eq!(Node::named(Path::new("nbd0")).unwrap().index(), 0);
        #[cfg(feature = "ublk")]
        assert_eq!(Node::named(Path::new("/dev/ublkb3")).unwrap(), Node::new(Driver::Ublk, 3));
        for wrong in ["/dev/sda", "/dev/nbd", "/dev/nbd0p1", "/dev/nbd-1", "/dev/nbd4096", "/dev/ublkc0", "/", ""] {
            let error = Node::named(Path::new(wrong)).unwrap_err();
            assert!(error.to_string().contains("/dev/nbd0"), "{wrong}: {error}");
        }
    }
}
