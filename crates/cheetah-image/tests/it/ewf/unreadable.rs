//! Ranges that could not be read when the image was made: they are neither zeros nor evidence.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cheetah_device::{ByteRange, Device as _, Error};
use cheetah_image::ewf::Ewf;

use super::sections::{errors, insert};
use super::support::{Desk, read};
use crate::need;

#[test]
fn unreadable_ranges_are_errors_and_the_rest_is_read() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(1 << 20);
    let first = desk.acquire("bad", &[]);
    let mut bytes = std::fs::read(&first).unwrap();
    // Ranges out of order, adjacent, duplicate, and beyond the end.
    let size = desk.raw.len() as u32 / 512;
    insert(&mut bytes, "error2", &errors(&[(100, 4), (10, 2), (12, 1), (100, 4), (size - 1, 8), (size, 1), (3, 0)]));
    std::fs::write(&first, bytes).unwrap();
    let image = Ewf::open(&first).unwrap();
    let sectors = |at: u64, count: u64| ByteRange::new(at * 512, count * 512);
    assert_eq!(image.info().unreadable, [sectors(10, 3), sectors(100, 4), sectors(u64::from(size) - 1, 1)]);
    let failing = [(0, 1 << 20), (10 * 512, 1), (13 * 512 - 1, 1), (9 * 512, 513), ((1 << 20) - 1, 1)];
    for (offset, len) in failing {
        let error = read(&image, offset, len).unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{offset}+{len}: {error}");
    }
    let Error::Unreadable { range, .. } = read(&image, 101 * 512, 2048).unwrap_err() else { panic!() };
    assert_eq!(range, sectors(101, 3));
    for (from, to) in [(0, 10 * 512), (13 * 512, 100 * 512), (104 * 512, (1 << 20) - 512)] {
        assert!(read(&image, from, to - from).unwrap() == desk.raw[from as usize..to as usize]);
    }
    assert!(read(&image, 11 * 512, 0).unwrap().is_empty());
}

/// A disk with a bad spot, for programs that read disks: nbdkit returns errors, nbdfuse presents it as a file, and a
/// loop device as a disk.
struct BadDisk {
    fuse: Child,
    file: PathBuf,
    disk: Option<String>,
}

impl BadDisk {
    fn new(desk: &Desk, bad: ByteRange) -> Self {
        let folder = desk.path("mnt");
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("disk");
        let pread = format!(
            "if [ $4 -lt {} ] && [ $(($4 + $3)) -gt {} ]; then echo EIO bad spot >&2; exit 1; fi; \
             dd if={} skip=$4 count=$3 iflag=skip_bytes,count_bytes status=none",
            bad.end(),
            bad.offset,
            desk.path("source.raw").display()
        );
        let mut command = Command::new(need::find("nbdfuse").unwrap());
        command.arg(&file).args(["[", "nbdkit", "-r", "-f", "--exit-with-parent", "eval"]);
        command.args([format!("get_size=echo {}", desk.raw.len()), format!("pread={pread}")]).arg("]");
        let fuse = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut disk = Self { fuse, file, disk: None };
        let until = Instant::now() + Duration::from_secs(60);
        while !disk.file.exists() {
            assert!(Instant::now() < until, "nbdfuse should be there by now");
            std::thread::sleep(Duration::from_millis(20));
        }
        disk.disk = Some(run("losetup", &["-r", "-f", "--show", path(&disk.file)]).trim().to_owned());
        disk
    }
}

impl Drop for BadDisk {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            run("losetup", &["-d", disk]);
        }
        let folder = self.file.parent().unwrap();
        // The loop device releases the file a little later.
        for _ in 0..3000 {
            let unmount = Command::new("umount").arg(folder).stderr(Stdio::null()).status();
            if unmount.is_ok_and(|status| status.success()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.fuse.kill();
        let _ = self.fuse.wait();
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(need::find(program).unwrap()).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn ranges_that_ewfacquire_recorded_as_unreadable_are_unreadable() {
    let programs = need::programs(&["ewfacquire", "nbdkit", "nbdfuse", "losetup", "umount"]);
    if !programs || !need::fuse() || !need::root_and_loop() {
        return;
    }
    let desk = Desk::new(1 << 20);
    let disk = BadDisk::new(&desk, ByteRange::new(500_000, 5));
    let target = desk.path("bad");
    run("ewfacquire", &["-q", "-u", "-r", "0", "-t", path(&target), disk.disk.as_deref().unwrap()]);
    drop(disk);
    let image = Ewf::open(&target.with_extension("E01")).unwrap();
    let [bad] = image.info().unreadable[..] else { panic!("{:?}", image.info().unreadable) };
    assert!(bad.contains(ByteRange::new(500_000, 5)) && bad.end() < image.geometry().size, "{bad}");
    assert!(matches!(read(&image, 500_000, 1).unwrap_err(), Error::Unreadable { .. }));
    assert!(read(&image, 0, bad.offset).unwrap() == desk.raw[..bad.offset as usize]);
    let rest = image.geometry().size - bad.end();
    assert!(read(&image, bad.end(), rest).unwrap() == desk.raw[bad.end() as usize..]);
}
