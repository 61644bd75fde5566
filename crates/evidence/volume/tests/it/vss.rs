//! Shadow copies beside libvshadow: of volumes that a model wrote, and of one that Windows wrote.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device, DynDevice, Geometry, Io};
use cheetah_testing::vss::random;
use cheetah_volume::vss::{Budget, Opened, catalog, open};
use tempfile::TempDir;

use crate::need;
use crate::tools::run;

/// The most that is read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Sectors that were written to both shadow copies of the volume that Windows wrote.
const WRITTEN: ByteRange = ByteRange::new(0x1470_0000, 0x8_0000);

/// A file as a device.
struct OnDisk(File, u64);

impl OnDisk {
    fn open(path: &Path) -> DynDevice {
        let file = File::open(path).unwrap();
        let size = file.metadata().unwrap().len();
        Arc::new(Self(file, size))
    }
}

impl Device for OnDisk {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.1, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        if let Err(error) = self.check(range) {
            return Io::fail(error);
        }
        let mut bytes = vec![0; range.len as usize];
        self.0.read_exact_at(&mut bytes, range.offset).unwrap();
        Io::ok(bytes.into())
    }
}

/// A volume, mounted by libvshadow.
struct Theirs(TempDir);

impl Theirs {
    fn of(image: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        run("vshadowmount", &[image.to_str().unwrap(), dir.path().to_str().unwrap()]);
        Self(dir)
    }

    fn copy(&self, number: u32) -> File {
        File::open(self.0.path().join(format!("vss{number}"))).unwrap()
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let unmount = ["-u", "-z", self.0.path().to_str().unwrap_or_default()];
        let _ = std::process::Command::new("fusermount3").args(unmount).status();
    }
}

fn are_here() -> bool {
    need::fuse() && need::programs(&["vshadowmount", "fusermount3"])
}

/// Opens all shadow copies of a volume.
async fn ours(device: &DynDevice) -> Opened {
    let whole = ByteRange::new(0, device.geometry().size);
    let catalog = catalog(&**device, whole).await.unwrap().unwrap();
    let numbers: Vec<_> = catalog.copies.iter().map(|copy| copy.number).collect();
    open(&**device, &catalog, &numbers, &mut Budget::default()).await
}

/// Compares ranges of each shadow copy; returns how many there are.
async fn compare(image: &Path, ranges: impl Fn(u64) -> Vec<ByteRange>) -> usize {
    let device = OnDisk::open(image);
    let opened = ours(&device).await;
    assert_eq!(opened.not_opened, []);
    let mounted = Theirs::of(image);
    for snapshot in &opened.snapshots {
        let (theirs, ours) = (mounted.copy(snapshot.copy.number), snapshot.over(&device).unwrap());
        let size = ours.geometry().size;
        assert_eq!(theirs.metadata().unwrap().len(), size);
        for range in ranges(size) {
            let mut expected = vec![0; range.len as usize];
            theirs.read_exact_at(&mut expected, range.offset).unwrap();
            let read = ours.read(range).await.unwrap();
            assert!(read == expected[..], "{range} of number {}", snapshot.copy.number);
        }
    }
    opened.snapshots.len()
}

#[tokio::test]
async fn shadow_copies_read_as_libvshadow_reads_them() {
    if !are_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("volume.raw");
    for seed in 0..8 {
        let made = random(seed);
        std::fs::write(&image, &made.bytes).unwrap();
        let whole = |size: u64| -> Vec<_> { ByteRange::new(0, size).split_at_multiples(PIECE_BYTES).collect() };
        assert_eq!(compare(&image, whole).await, made.copies.len(), "{seed}");
    }
}

#[tokio::test]
async fn shadow_copies_of_windows_read_as_libvshadow_reads_them() {
    let Some(packed) = need::evidence("vsstest.qcow2") else { return };
    if !are_here() || !need::programs(&["qemu-img"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("volume.raw");
    run("qemu-img", &["convert", "-O", "raw", packed.to_str().unwrap(), image.to_str().unwrap()]);
    // A part of each MiB, and all of what was written to the shadow copies themselves.
    let some = |size: u64| -> Vec<_> {
        let parts = ByteRange::new(0, size).split_at_multiples(PIECE_BYTES);
        parts.map(|part| ByteRange::new(part.offset, 64 << 10)).chain([WRITTEN]).collect()
    };
    assert_eq!(compare(&image, some).await, 2);
}

#[tokio::test]
async fn shadow_copies_of_windows_have_the_names_that_windows_shows() {
    let Some(packed) = need::evidence("vsstest.qcow2") else { return };
    if !need::programs(&["qemu-img"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("volume.raw");
    run("qemu-img", &["convert", "-O", "raw", packed.to_str().unwrap(), image.to_str().unwrap()]);
    let opened = ours(&OnDisk::open(&image)).await;
    let named = |at: usize| {
        let copy = &opened.snapshots[at].copy;
        (copy.created_text(), copy.id.clone().unwrap(), copy.machine.clone())
    };
    let machine = "infinity".to_owned();
    let [first, second] = ["4e3c03c2-7bc6-4288-ad96-c1eac1a55f71", "18f1ac6e-959d-436f-bdcc-e797a729e290"];
    assert_eq!(named(0), ("2013-12-03T06:35:09.7363787Z".to_owned(), first.to_owned(), machine.clone()));
    assert_eq!(named(1), ("2013-12-03T06:37:48.9190583Z".to_owned(), second.to_owned(), machine));
}
