//! The names of disks and volumes, as Windows' programs take them.

use std::fmt;

/// The most disks of a machine that are looked for.
pub const DISKS_MAX: u32 = 128;

/// A device that holds sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A whole disk, by its number: `\\.\PhysicalDrive0`.
    Disk(u32),
    /// A volume, by its drive letter: `\\.\C:`.
    Letter(char),
    /// A volume, by its identifier or its number: `\\?\Volume{…}`, `\\.\HarddiskVolume3`.
    Volume,
    /// A shadow copy of a volume, which nothing changes: `\\?\GLOBALROOT\Device\HarddiskVolumeShadowCopy1`.
    ShadowCopy(String),
    /// Another device, by the name behind the name space: `\\.\CdRom0`.
    Other(String),
}

impl Name {
    /// Returns what a path names; `None` if it is not in the name space of devices, as a path of a file.
    ///
    /// Case does not matter, and a slash is a backslash. A path that goes on behind a drive or a volume names a file on it:
    /// `\\.\C:\case.raw`.
    pub fn of(path: &str) -> Option<Self> {
        let path = path.replace('/', r"\");
        let is_plain = path.starts_with(r"\\.\");
        let name = path.strip_prefix(r"\\.\").or_else(|| path.strip_prefix(r"\\?\"))?;
        let lower = name.to_ascii_lowercase();
        if let Some(number) = lower.strip_prefix("physicaldrive") {
            let is_number = !number.is_empty() && number.len() <= 3 && number.bytes().all(|byte| byte.is_ascii_digit());
            return number.parse().ok().filter(|_| is_number).map(Self::Disk);
        }
        if let [letter, b':'] = lower.as_bytes() {
            return letter.is_ascii_alphabetic().then(|| Self::Letter(char::from(*letter).to_ascii_uppercase()));
        }
        if lower.starts_with("volume{") {
            return lower.ends_with('}').then_some(Self::Volume);
        }
        if is_numbered(lower.strip_prefix(r"globalroot\device\").unwrap_or(&lower)) {
            return Some(Self::Volume);
        }
        if let Some(device) = lower.strip_prefix(r"globalroot\device\") {
            let last = name.rsplit('\\').next().unwrap_or_default().to_owned();
            return match device.contains('\\') || device.is_empty() {
                true => None,
                false if device.starts_with("harddiskvolumeshadowcopy") => Some(Self::ShadowCopy(last)),
                false => Some(Self::Other(last)),
            };
        }
        (is_plain && !lower.is_empty() && !lower.contains('\\')).then(|| Self::Other(name.to_owned()))
    }
}

/// Whether a name, in small letters, is that of a volume with its number.
fn is_numbered(name: &str) -> bool {
    let number = name.strip_prefix("harddiskvolume").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a path names a pipe: `\\.\pipe\x`. Case does not matter, and a slash is a backslash.
pub fn is_pipe(path: &str) -> bool {
    let path = path.replace('/', r"\").to_ascii_lowercase();
    path.strip_prefix(r"\\.\").or_else(|| path.strip_prefix(r"\\?\")).is_some_and(|name| name.starts_with(r"pipe\"))
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(number) => write!(f, r"\\.\PhysicalDrive{number}"),
            Self::Letter(letter) => write!(f, r"\\.\{letter}:"),
            Self::Volume => f.write_str("a volume"),
            Self::ShadowCopy(name) | Self::Other(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_and_volumes_are_recognised_in_any_case_and_files_are_not() {
        for (path, name) in [
            (r"\\.\PhysicalDrive0", Name::Disk(0)),
            (r"\\.\PHYSICALDRIVE12", Name::Disk(12)),
            (r"\\?\physicaldrive3", Name::Disk(3)),
            (r"\\.\c:", Name::Letter('C')),
            ("//./C:", Name::Letter('C')),
            (r"\\?\Volume{4c1b02c1-d990-11dc-99ae-806e6f6e6963}", Name::Volume),
            (r"\\?\GLOBALROOT\Device\HarddiskVolumeShadowCopy7", Name::ShadowCopy("HarddiskVolumeShadowCopy7".into())),
            (r"\\?\GLOBALROOT\Device\HarddiskVolume3", Name::Volume),
            (r"\\.\HarddiskVolume12", Name::Volume),
            (r"\\.\Harddisk0Partition3", Name::Other("Harddisk0Partition3".into())),
            (r"\\.\CdRom0", Name::Other("CdRom0".into())),
        ] {
            assert_eq!(Name::of(path), Some(name), "{path}");
        }
        for path in [
            "C:",
            r"C:\case.raw",
            r"\\.\C:\case.raw",
            r"\\.\PhysicalDrive",
            r"\\.\PhysicalDrive1a",
            r"\\.\PhysicalDrive9999",
            r"\\server\share\x.raw",
            r"\\?\C:\case.raw",
            r"\\?\UNC\server\share\x.raw",
            r"\\?\Volume{4c1b02c1-d990-11dc-99ae-806e6f6e6963}\case.raw",
            r"\\?\GLOBALROOT\Device\HarddiskVolumeShadowCopy7\Windows",
            r"\\?\GLOBALROOT\Device\HarddiskVolume3\case.raw",
            r"\\.\HarddiskVolume",
            r"\\.\pipe\x",
            r"\\.\",
            "",
            "/dev/sda",
            r"\\.\1:",
        ] {
            assert_eq!(Name::of(path).filter(|name| !matches!(name, Name::Other(_))), None, "{path}");
        }
        assert_eq!(Name::of(r"\\.\pipe\x"), None);
        assert!(is_pipe(r"\\.\pipe\x") && is_pipe("//./PIPE/x"));
        assert!(!is_pipe(r"\\.\pipe") && !is_pipe(r"C:\pipe\x") && !is_pipe(r"\\.\C:"));
        assert_eq!(Name::Disk(7).to_string(), r"\\.\PhysicalDrive7");
    }
}
