//! A block device with a bad range: nbdkit returns errors, nbdfuse presents it as a file, and a loop device as a disk.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cheetah_device::ByteRange;

use crate::need;

/// The programs that it needs, apart from FUSE and loop devices.
pub const PROGRAMS: [&str; 4] = ["nbdkit", "nbdfuse", "losetup", "umount"];

pub struct BadDisk {
    dir: tempfile::TempDir,
    fuse: Child,
    disk: Option<String>,
}

impl BadDisk {
    /// A disk with this content. Reads of any byte of `bad` fail with EIO.
    pub fn new(content: &[u8], bad: ByteRange) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (source, folder) = (dir.path().join("source.raw"), dir.path().join("mnt"));
        std::fs::write(&source, content).unwrap();
        std::fs::create_dir(&folder).unwrap();
        let pread = format!(
            "pread=if [ $4 -lt {} ] && [ $(($4 + $3)) -gt {} ]; then echo EIO bad sector >&2; exit 1; fi; \
             dd if={} skip=$4 count=$3 iflag=skip_bytes,count_bytes status=none",
            bad.end(),
            bad.offset,
            source.display()
        );
        let mut command = Command::new(need::find("nbdfuse").unwrap());
        command.arg(folder.join("disk")).args(["[", "nbdkit", "-r", "-f", "--exit-with-parent", "eval"]);
        command.args([format!("get_size=echo {}", content.len()), pread]).arg("]");
        let fuse = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut disk = Self { dir, fuse, disk: None };
        let until = Instant::now() + Duration::from_secs(60);
        while !disk.file().exists() {
            assert!(Instant::now() < until, "nbdfuse should be there by now");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut losetup = Command::new(need::find("losetup").unwrap());
        // With direct I/O, where the kernel permits it, the device reads no more than requested.
        let output = losetup.args(["-r", "-f", "--show", "--direct-io=on"]).arg(disk.file()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        disk.disk = Some(String::from_utf8(output.stdout).unwrap().trim().to_owned());
        disk
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("mnt/disk")
    }

    /// The path of the block device.
    pub fn path(&self) -> &str {
        self.disk.as_deref().unwrap()
    }

    /// Whether the loop device reads its file past the page cache, rather than whole pages of it.
    pub fn is_direct(&self) -> bool {
        let name = Path::new(self.path()).file_name().unwrap();
        let direct = std::fs::read_to_string(Path::new("/sys/block").join(name).join("loop/dio")).unwrap();
        direct.trim() == "1"
    }
}

impl Drop for BadDisk {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            let _ = Command::new(need::find("losetup").unwrap()).args(["-d", disk]).status();
        }
        // The loop device releases the file a little later.
        for _ in 0..3000 {
            let unmount = Command::new("umount").arg(self.dir.path().join("mnt")).stderr(Stdio::null()).status();
            if unmount.is_ok_and(|status| status.success()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.fuse.kill();
        let _ = self.fuse.wait();
    }
}
