//! Archives that Linux unpacks into its root file system before the first process starts: cpio of the "newc" format
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use zeroize::Zeroizing;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_600;
/// Each part of an entry is padded to a multiple of this length, in bytes.
const ALIGN: usize = 4;

/// An archive being made. All entries belong to root, and root alone can read the files.
#[derive(Default)]
pub struct Archive {
    content: Zeroizing<Vec<u8>>,
    entries: u32,
}

impl Archive {
    /// Adds a directory. Its parent must be there already.
    pub fn directory(&mut self, name: &str) {
        self.entries += 1;
        self.entry(self.entries, name, DIRECTORY, &[]);
    }

    /// Adds a file. Its directory must be there already.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.entries += 1;
        self.entry(self.entries, name, FILE, content);
    }

    /// The archive, padded with zeros to `len` bytes; `None` if it is longer.
    pub fn finish(mut self, len: usize) -> Option<Zeroizing<Vec<u8>>> {
        self.entry(0, "TRAILER!!!", 0, &[]);
        if self.content.len() > len {
            return None;
        }
        self.content.resize(len, 0);
        Some(self.content)
    }

    fn entry(&mut self, inode: u32, name: &str, mode: u32, content: &[u8]) {
        let (len, name_len) = (content.len() as u32, name.len() as u32 + 1);
        // Inode, mode, owner, group, links, time, length, four device numbers, the name's length, a checksum.
        let fields = [inode, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
        self.content.extend(b"070701");
        for field in fields {
            self.content.extend(format!("{field:08X}").bytes());
        }
        self.content.extend(name.bytes());
        self.content.push(0);
        self.pad();
        self.content.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        let len = self.content.len().next_multiple_of(ALIGN);
        self.content.resize(len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_its_entries_a_trailer_and_the_length_asked_for() {
        let mut made = Archive::default();
        made.directory("etc");
        made.file("etc/name", b"12345");
        let content = made.finish(1024).unwrap();
        let text = String::from_utf8(content.to_vec()).unwrap();
        assert_eq!((content.len(), text.matches("070701").count()), (1024, 3));
        assert!(text.contains("etc/name\0") && text.contains("12345") && text.contains("TRAILER!!!"), "{text}");
    }

    #[test]
    fn an_archive_that_is_too_long_is_refused() {
        let mut made = Archive::default();
        made.file("name", &[1; 1024]);
        assert!(made.finish(1024).is_none());
    }
}
