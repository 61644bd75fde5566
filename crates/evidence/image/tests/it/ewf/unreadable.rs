//! Ranges that could not be read when the image was made: they are neither zeros nor evidence.

use std::path::Path;
use std::process::{Command, Stdio};

use cheetah_device::{ByteRange, Device as _, Error};
use cheetah_image::ewf::Ewf;

use super::sections::{errors, insert};
use super::support::{Desk, read};
use crate::bad_disk::{BadDisk, PROGRAMS};
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
    if !need::programs(&PROGRAMS) || !need::programs(&["ewfacquire"]) || !need::fuse() || !need::root_and_loop() {
        return;
    }
    let desk = Desk::new(1 << 20);
    let disk = BadDisk::new(&desk.raw, ByteRange::new(500_000, 5));
    let target = desk.path("bad");
    run("ewfacquire", &["-q", "-u", "-r", "0", "-t", path(&target), disk.path()]);
    drop(disk);
    let image = Ewf::open(&target.with_extension("E01")).unwrap();
    let [bad] = image.info().unreadable[..] else { panic!("{:?}", image.info().unreadable) };
    assert!(bad.contains(ByteRange::new(500_000, 5)) && bad.end() < image.geometry().size, "{bad}");
    assert!(matches!(read(&image, 500_000, 1).unwrap_err(), Error::Unreadable { .. }));
    assert!(read(&image, 0, bad.offset).unwrap() == desk.raw[..bad.offset as usize]);
    let rest = image.geometry().size - bad.end();
    assert!(read(&image, bad.end(), rest).unwrap() == desk.raw[bad.end() as usize..]);
}
