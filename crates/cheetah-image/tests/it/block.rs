//! A disk with a bad sector: the sectors beside it can be read.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cheetah_device::{ByteRange, Device as _, Error};
use cheetah_image::{Kind, OpenOptions, open};

/// A size whose blocks in the page cache have 4 KiB.
const SIZE: u64 = 64 << 10;
/// The first sector of such a block.
const BAD: ByteRange = ByteRange::new(40 << 10, 512);

/// nbdkit returns errors, nbdfuse presents it as a file, and a loop device, which reads no more than requested, as a
/// disk.
struct BadDisk {
    dir: tempfile::TempDir,
    fuse: Child,
    disk: Option<String>,
}

impl BadDisk {
    fn new(content: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (source, folder) = (dir.path().join("source.raw"), dir.path().join("mnt"));
        std::fs::write(&source, content).unwrap();
        std::fs::create_dir(&folder).unwrap();
        let pread = format!(
            "pread=if [ $4 -lt {} ] && [ $(($4 + $3)) -gt {} ]; then echo EIO bad sector >&2; exit 1; fi; \
             dd if={} skip=$4 count=$3 iflag=skip_bytes,count_bytes status=none",
            BAD.end(),
            BAD.offset,
            source.display()
        );
        let mut command = Command::new(crate::need::find("nbdfuse").unwrap());
        command.arg(folder.join("disk")).args(["[", "nbdkit", "-r", "-f", "--exit-with-parent", "eval"]);
        command.args([format!("get_size=echo {}", content.len()), pread]).arg("]");
        let fuse = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut disk = Self { dir, fuse, disk: None };
        let until = Instant::now() + Duration::from_secs(60);
        while !disk.file().exists() {
            assert!(Instant::now() < until, "nbdfuse should be there by now");
            std::thread::sleep(Duration::from_millis(20));
        }
        let file = disk.file();
        let mut losetup = Command::new(crate::need::find("losetup").unwrap());
        let output = losetup.args(["-r", "-f", "--show", "--direct-io=on"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        disk.disk = Some(String::from_utf8(output.stdout).unwrap().trim().to_owned());
        disk
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("mnt/disk")
    }

    fn path(&self) -> &str {
        self.disk.as_deref().unwrap()
    }

    /// Whether the loop device reads its file past the page cache, rather than whole pages of it.
    fn is_direct(&self) -> bool {
        let name = Path::new(self.path()).file_name().unwrap();
        let direct = std::fs::read_to_string(Path::new("/sys/block").join(name).join("loop/dio")).unwrap();
        direct.trim() == "1"
    }
}

impl Drop for BadDisk {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            let _ = Command::new(crate::need::find("losetup").unwrap()).args(["-d", disk]).status();
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

#[tokio::test]
async fn sectors_beside_a_bad_one_are_read() {
    let programs = crate::need::programs(&["nbdkit", "nbdfuse", "losetup", "umount"]);
    if !programs || !crate::need::fuse() || !crate::need::root_and_loop() {
        return;
    }
    let content: Vec<u8> = (0..SIZE).map(|at| (at / 512 * 7 + at % 251) as u8).collect();
    let disk = BadDisk::new(&content);
    if !disk.is_direct() {
        crate::need::skip("needs loop devices that read a file in FUSE past the page cache");
        return;
    }
    let source = open(disk.path(), &OpenOptions::default()).await.unwrap();
    assert_eq!((source.identity.kind, source.identity.size), (Kind::Block, SIZE));
    // The sectors of the block and those next to it, one by one, as an acquisition finally reads them; then unaligned
    // ranges, ranges that end at the bad sector, and ranges that begin after it.
    let sectors = (BAD.offset / 512 - 2..BAD.offset / 512 + 10).map(|sector| ByteRange::new(sector * 512, 512));
    let odd = [(BAD.end() + 100, 5), (BAD.end(), 5000), (0, BAD.offset), (BAD.offset - 1000, 1000)];
    let good = sectors.filter(|sector| *sector != BAD).chain(odd.map(|(offset, len)| ByteRange::new(offset, len)));
    for range in good {
        let data = source.device.read(range).await.unwrap_or_else(|error| panic!("{range}: {error}"));
        assert!(data == content[range.offset as usize..range.end() as usize], "{range}");
    }
    for asked in [BAD, ByteRange::new(BAD.offset + 77, 5), ByteRange::new(BAD.end() - 1, 2), ByteRange::new(0, SIZE)] {
        let error = source.device.read(asked).await.unwrap_err();
        assert!(matches!(&error, Error::Unreadable { range, .. } if *range == asked), "{asked}: {error}");
    }
}
