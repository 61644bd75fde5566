//! The table of mounts: which of our mounts is on a directory, and where a device is mounted.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

/// The extended attribute of a mount's directory with the id of the process that serves it.
pub(crate) const PID_ATTRIBUTE: &str = "user.cheetah.pid";
/// The file system type of our mounts in the table.
const TYPE: &[u8] = b"fuse.cheetah";

/// One of our mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// The device number of the file system.
    pub(crate) number: u64,
    /// The mounted drive or image, by name.
    pub(crate) source: String,
}

/// The mount that is visible on `dir`, an absolute path without symbolic links, if it is one of ours.
pub(crate) fn ours_on(dir: &Path) -> io::Result<Option<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    // Later mounts hide earlier ones.
    let on_dir = table.split(|byte| *byte == b'\n').filter_map(parse).rfind(|mount| mount.dir == dir.as_os_str());
    Ok(on_dir.filter(|mount| mount.kind == TYPE).map(|mount| mount.entry))
}

/// The directories on which a device with one of these numbers is mounted.
pub(crate) fn mounted(numbers: &[u64]) -> io::Result<Vec<OsString>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(of_devices(&table, numbers))
}

fn of_devices(table: &[u8], numbers: &[u64]) -> Vec<OsString> {
    let mounts = table.split(|byte| *byte == b'\n').filter_map(parse);
    mounts.filter(|mount| numbers.contains(&mount.entry.number)).map(|mount| mount.dir).collect()
}

struct TableLine<'a> {
    dir: OsString,
    kind: &'a [u8],
    entry: MountEntry,
}

/// Parses a line of proc_pid_mountinfo(5).
fn parse(line: &[u8]) -> Option<TableLine<'_>> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let dir = OsString::from_vec(unescape(fields.nth(1)?));
    // Optional fields end with a dash.
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (fields.next()?, unescape(fields.next()?));
    Some(TableLine { dir, kind, entry: MountEntry { number, source: String::from_utf8_lossy(&source).into_owned() } })
}

/// Replaces octal escapes (`\040`) by the bytes that they stand for.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_line_of_the_table_is_parsed() {
        let line = br"131 29 0:57 / /mnt/case\04042 ro,nosuid shared:7 - fuse.cheetah case42 ro,user_id=0";
        let parsed = parse(line).unwrap();
        assert_eq!((parsed.dir.as_bytes(), parsed.kind), (&b"/mnt/case 42"[..], TYPE));
        let entry = MountEntry { number: rustix::fs::makedev(0, 57), source: "case42".into() };
        assert_eq!(parsed.entry, entry);
    }

    #[test]
    fn mounts_of_the_device_and_of_its_partitions_are_found() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 43:0 / /mnt/a ro - ext4 /dev/nbd0 ro\n\
                      31 22 43:1 / /mnt/b rw shared:1 - xfs /dev/nbd0p1 rw\nx\n";
        let numbers = [rustix::fs::makedev(43, 0), rustix::fs::makedev(43, 1)];
        assert_eq!(of_devices(table, &numbers), ["/mnt/a", "/mnt/b"]);
    }

    #[test]
    fn damaged_lines_are_skipped() {
        for line in [&b""[..], b"1 2", b"1 2 x:y / /mnt - fuse.cheetah x ro", b"1 2 0:1 / /mnt ro"] {
            assert!(parse(line).is_none(), "{}", String::from_utf8_lossy(line));
        }
        assert_eq!(unescape(br"a\04"), br"a\04");
        assert_eq!(unescape(br"\777\134"), br"\777\");
    }
}
