//! Mounted devices, used as tools use them. The tests need /dev/fuse, and some of them root; otherwise they print that
//! they are skipped, and pass.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use cheetah_attach::{Error as AttachError, Mount, MountOptions, mount};
use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Extent, Geometry, Io, Zeroing};
use cheetah_testing::{programs, root_and_loop, skip};

const MIB: u64 = 1 << 20;

/// Runs `test` on a multi-threaded runtime with an empty directory, unless this machine has no FUSE.
fn with_fuse<F: Future<Output = ()>>(test: impl FnOnce(tempfile::TempDir) -> F) {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return skip(&format!("/dev/fuse cannot be opened: {error}"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test(tempfile::tempdir().unwrap()));
}

/// Runs code that uses the mount on a thread that may block.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn mounted(device: DynDevice, dir: &Path, writable: bool) -> Mount {
    mount(device, dir, MountOptions { writable, ..MountOptions::new("case42") }).await.unwrap()
}

fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect()
}

/// 8 MiB with two partitions in an MBR: 1 MiB at 1 MiB, and 3 MiB and a sector at 4 MiB.
fn partitioned() -> Vec<u8> {
    let mut bytes = pattern(8 * MIB);
    for (slot, start, len) in [(0, MIB, MIB), (1, 4 * MIB, 3 * MIB + 512)] {
        let entry = &mut bytes[446 + 16 * slot..][..16];
        entry[..8].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0]);
        entry[8..12].copy_from_slice(&((start / 512) as u32).to_le_bytes());
        entry[12..].copy_from_slice(&((len / 512) as u32).to_le_bytes());
    }
    bytes[446 + 32..510].fill(0);
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

fn memory(bytes: Vec<u8>) -> Arc<Memory> {
    Arc::new(Memory::new(bytes))
}

#[test]
fn the_whole_and_its_partitions_read_as_files() {
    with_fuse(async |dir| {
        let bytes = partitioned();
        let mount = mounted(memory(bytes.clone()), dir.path(), false).await;
        assert_eq!(mount.files(), ["case42.raw", "case42.p1.raw", "case42.p2.raw"]);
        let at = dir.path().to_owned();
        on_thread(move || {
            let mut names: Vec<_> = at.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, ["case42.p1.raw", "case42.p2.raw", "case42.raw"]);
            for (name, range) in
                [("case42.raw", 0..8 * MIB), ("case42.p1.raw", MIB..2 * MIB), ("case42.p2.raw", 4 * MIB..7 * MIB + 512)]
            {
                let expected = &bytes[range.start as usize..range.end as usize];
                let metadata = at.join(name).metadata().unwrap();
                assert_eq!((metadata.len(), metadata.mode() & 0o7777), (expected.len() as u64, 0o400), "{name}");
                assert_eq!(metadata.uid(), rustix::process::getuid().as_raw());
                assert!(fs::read(at.join(name)).unwrap() == expected, "{name} differs");
            }
            let mut odd = [0; 777];
            File::open(at.join("case42.raw")).unwrap().read_exact_at(&mut odd, 12_345).unwrap();
            assert!(odd == bytes[12_345..12_345 + 777]);

            assert!(fs::write(at.join("case42.raw"), "x").is_err(), "a read-only mount was written");
            assert!(File::create(at.join("new")).is_err());
            assert!(File::open(at.join("case42.p3.raw")).is_err());
        })
        .await;
        mount.unmount().await.unwrap();
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    });
}

#[test]
fn writes_through_one_file_are_read_through_the_other() {
    with_fuse(async |dir| {
        let mut expected = partitioned();
        let memory = memory(expected.clone());
        let mount = mounted(Arc::clone(&memory) as DynDevice, dir.path(), true).await;
        let at = dir.path().to_owned();
        let expected = on_thread(move || {
            let open = |name| OpenOptions::new().read(true).write(true).open(at.join(name)).unwrap();
            let (whole, first) = (open("case42.raw"), open("case42.p1.raw"));
            let mut writes =
                [(&whole, 0, MIB + 100, 3000usize), (&first, MIB, 50, 200), (&whole, 0, 3 * MIB, 2_500_000)];
            for (seed, (file, base, offset, len)) in writes.iter_mut().enumerate() {
                // Reads first, so that a stale page could be cached.
                fs::read(at.join("case42.raw")).unwrap();
                fs::read(at.join("case42.p1.raw")).unwrap();
                let data = vec![seed as u8 + 1; *len];
                file.write_all_at(&data, *offset).unwrap();
                let start = (*base + *offset) as usize;
                expected[start..start + *len].copy_from_slice(&data);
                assert!(fs::read(at.join("case42.raw")).unwrap() == expected);
                assert!(fs::read(at.join("case42.p1.raw")).unwrap() == expected[MIB as usize..2 * MIB as usize]);
            }
            whole.sync_all().unwrap();

            assert!(whole.set_len(5).is_err(), "a device has one size");
            whole.set_len(8 * MIB).unwrap();
            assert!(File::create(at.join("case42.raw")).is_err(), "a device cannot be emptied");
            whole.set_modified(std::time::SystemTime::now()).unwrap();
            let error = whole.write_at(&[1], 8 * MIB).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            assert_eq!(whole.write_at(&[9; 100], 8 * MIB - 10).unwrap(), 10);
            expected[(8 * MIB - 10) as usize..].fill(9);
            expected
        })
        .await;
        mount.unmount().await.unwrap();
        assert!(memory.snapshot() == expected);
    });
}

/// A device with a lost range and a hole.
struct Patchy {
    bytes: Memory,
    lost: ByteRange,
    hole: ByteRange,
}

impl Device for Patchy {
    fn geometry(&self) -> Geometry {
        self.bytes.geometry()
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            match range.intersection(self.lost) {
                Some(_) => Err(Error::Lost { device: "node-b".into(), range, why: "gone".into() }),
                None => self.bytes.read(range).await,
            }
        })
    }
    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        assert!(!how.keep_allocated, "punching a hole gives space back");
        self.bytes.write(range.offset, Data::zeros(range.len), false)
    }
    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        self.bytes.write(offset, data, fua)
    }
    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        let mut extents = Vec::new();
        let before = range.intersection(ByteRange::new(0, self.hole.offset)).map_or(0, |part| part.len);
        let within = range.intersection(self.hole).map_or(0, |part| part.len);
        Extent::data(before).push(&mut extents);
        Extent::hole(within).push(&mut extents);
        Extent::data(range.len - before - within).push(&mut extents);
        Io::ok(extents)
    }
}

#[test]
fn only_lost_ranges_fail_to_read() {
    with_fuse(async |dir| {
        let bytes = pattern(4 * MIB);
        let lost = ByteRange::new(MIB + 8192, 4096);
        let hole = ByteRange::new(2 * MIB, MIB);
        let device = Patchy { bytes: Memory::new(bytes.clone()), lost, hole };
        let mount = mounted(Arc::new(device), dir.path(), true).await;
        let path = dir.path().join("case42.raw");
        on_thread(move || {
            let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            for page in (0..4 * MIB).step_by(4096) {
                let mut found = [0; 4096];
                let result = file.read_exact_at(&mut found, page);
                if page == lost.offset {
                    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EIO));
                } else {
                    result.unwrap();
                    assert!(found == bytes[page as usize..page as usize + 4096], "page at {page} differs");
                }
            }
            assert!(fs::read(&path).is_err());

            let seek = |file: &File, from| rustix::fs::seek(file, from).map_err(|errno| errno.raw_os_error());
            assert_eq!(seek(&file, rustix::fs::SeekFrom::Hole(5)), Ok(2 * MIB));
            assert_eq!(seek(&file, rustix::fs::SeekFrom::Data(2 * MIB + 5)), Ok(3 * MIB));
            assert_eq!(seek(&file, rustix::fs::SeekFrom::Hole(3 * MIB)), Ok(4 * MIB));
            assert_eq!(seek(&file, rustix::fs::SeekFrom::Data(MIB + 5)), Ok(MIB + 5));

            let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, punch, 100, 5000).unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            let mut start = [1; 6000];
            file.read_exact(&mut start).unwrap();
            assert!(
                start[..100] == bytes[..100] && start[100..5100] == [0; 5000] && start[5100..] == bytes[5100..6000]
            );
        })
        .await;
        mount.unmount().await.unwrap();
    });
}

#[test]
fn unmounting_from_outside_ends_the_wait() {
    with_fuse(async |dir| {
        let mount = mounted(memory(vec![1; 5000]), dir.path(), false).await;
        let at = dir.path().to_owned();
        on_thread(move || {
            let by_root = rustix::process::geteuid().is_root();
            let (program, options): (_, &[&str]) = if by_root { ("umount", &[]) } else { ("fusermount3", &["-u"]) };
            assert!(Command::new(program).args(options).arg(at).status().unwrap().success());
        })
        .await;
        mount.wait().await.unwrap();
        mount.unmount().await.unwrap();
    });
}

#[test]
fn a_dropped_mount_is_unmounted_and_one_in_use_is_detached() {
    with_fuse(async |dir| {
        let mount = mounted(memory(vec![1; 5000]), dir.path(), false).await;
        drop(mount);
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);

        let mount = mounted(memory(vec![1; 5000]), dir.path(), false).await;
        let path = dir.path().join("case42.raw");
        let file = on_thread(move || File::open(path).unwrap()).await;
        mount.unmount().await.unwrap();
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
        let read = on_thread(move || file.read_at(&mut [0; 100], 0).unwrap()).await;
        assert_eq!(read, 100);
    });
}

#[test]
fn an_unsuitable_directory_is_refused() {
    with_fuse(async |dir| {
        let refusal = async |at: &Path, name: &str| {
            mount(memory(vec![1; 5000]), at, MountOptions::new(name)).await.err().unwrap()
        };
        let (absent, file) = (dir.path().join("none"), dir.path().join("file"));
        let refused = refusal(&absent, "case42").await;
        assert!(matches!(&refused, AttachError::NoDirectory(path) if *path == absent), "{refused}");
        fs::write(&file, "x").unwrap();
        let refused = refusal(&file, "case42").await;
        assert!(matches!(&refused, AttachError::NotADirectory(path) if *path == file), "{refused}");
        let refused = refusal(dir.path(), "case42").await;
        assert!(matches!(&refused, AttachError::NotEmpty(path) if path == dir.path()), "{refused}");
        fs::remove_file(&file).unwrap();
        for name in ["", "a/b", "a\0b", &"x".repeat(300)] {
            let refused = refusal(dir.path(), name).await;
            assert!(matches!(&refused, AttachError::BadName(bad) if bad == name), "{refused}");
        }
    });
}

#[test]
fn a_file_system_works_on_a_mounted_drive() {
    if !root_and_loop() || !programs(&["mkfs.ext4"]) {
        return;
    }
    with_fuse(async |dir| {
        let memory = memory(vec![0; 64 << 20]);
        let outside = tempfile::tempdir().unwrap();
        let mount = mounted(Arc::clone(&memory) as DynDevice, dir.path(), true).await;
        let (path, tree) = (dir.path().join("case42.raw"), outside.path().to_owned());
        let ran = on_thread(move || ext4_over_loop(&path, &tree)).await;
        mount.unmount().await.unwrap();
        if let Err(why) = ran {
            return skip(&format!("no loop device: {why}"));
        }
        // The device holds the file system.
        let image = outside.path().join("image");
        fs::write(&image, memory.snapshot()).unwrap();
        must("e2fsck", &["-fn", image.to_str().unwrap()]);
    });
}

/// Creates a file system on a loop device over `path`, fills, remounts and checks it.
fn ext4_over_loop(path: &Path, tree: &Path) -> Result<(), String> {
    let made = Command::new("losetup").args(["--find", "--show"]).arg(path).output().unwrap();
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into_owned());
    }
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let at = tree.join("mounted");
    fs::create_dir(&at).unwrap();
    let at = at.to_str().unwrap();
    must("mkfs.ext4", &["-q", &device]);
    for turn in 0..2 {
        must("mount", &[&device, at]);
        for file in 0..20 {
            let (name, content) = (format!("{at}/file{file}"), pattern(file * 50_000));
            if turn == 0 {
                File::create(name).unwrap().write_all(&content).unwrap();
            } else {
                assert!(fs::read(name).unwrap() == content, "file{file} differs");
            }
        }
        must("umount", &[at]);
    }
    must("e2fsck", &["-fn", &device]);
    must("losetup", &["--detach", &device]);
    Ok(())
}

fn must(program: &str, options: &[&str]) {
    let output = Command::new(program).args(options).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {options:?}: {text}");
}

/// A slow device that counts the reads from the mount, and prefetches for a backward reader.
struct Counted {
    prefetch: Arc<cheetah_device::prefetch::Prefetch>,
    reads: std::sync::atomic::AtomicUsize,
}

impl Layer for Counted {
    type Below = Arc<cheetah_device::prefetch::Prefetch>;
    const READS: Reads = Reads::Handled;
    const WRITES: Writes = Writes::Refused;

    fn below(&self) -> &Self::Below {
        &self.prefetch
    }

    fn on_read(&self, range: ByteRange) -> Io<'_, Data> {
        self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.prefetch.read(range)
    }
}

struct Far(Memory);

impl Device for Far {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            self.0.read(range).await
        })
    }
}

#[test]
fn a_reader_going_backward_finds_most_records_in_the_kernels_cache() {
    with_fuse(async |dir| {
        let content = pattern(8 * MIB);
        let far = Arc::new(Far(Memory::new(content.clone())));
        let prefetch = cheetah_device::prefetch::Prefetch::new(far, Default::default());
        let counted = Arc::new(Counted { prefetch, reads: 0.into() });
        // A single thread stores nothing, since it must answer requests.
        let options = MountOptions { threads: 2, ..MountOptions::new("case42") };
        let mount = mount(counted.clone(), dir.path(), options).await.unwrap();
        let path = dir.path().join("case42.raw");
        let read = on_thread(move || {
            let file = File::open(path).unwrap();
            let mut read = vec![0; 8 * MIB as usize];
            for record in read.chunks_mut(4096).enumerate().rev().map(|(nth, record)| (nth as u64 * 4096, record)) {
                file.read_exact_at(record.1, record.0).unwrap();
            }
            read
        });
        assert!(read.await == content);
        let reads = counted.reads.load(std::sync::atomic::Ordering::Relaxed);
        assert!(reads < 1000, "2048 records took {reads} requests");
        mount.unmount().await.unwrap();
    });
}

/// Panics at every read once it is armed.
struct Faulty(Memory, std::sync::atomic::AtomicBool);

impl Device for Faulty {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        assert!(!self.1.load(std::sync::atomic::Ordering::Relaxed), "a fault in the device");
        self.0.read(range)
    }
}

#[test]
fn a_panic_in_a_request_fails_that_request_alone() {
    with_fuse(async |dir| {
        let faulty = Arc::new(Faulty(Memory::new(pattern(MIB)), false.into()));
        let mount = mounted(Arc::clone(&faulty) as DynDevice, dir.path(), false).await;
        let file = dir.path().join("case42.raw");
        let again = file.clone();
        faulty.1.store(true, std::sync::atomic::Ordering::Relaxed);
        let read = on_thread(move || fs::read(file)).await;
        assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EIO));
        // The error is sent while the panic unwinds, which is counted afterwards.
        let is_counted = || cheetah_device::supervise::contained_total() > 0;
        for _ in 0..6000 {
            if is_counted() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(is_counted());
        faulty.1.store(false, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(on_thread(move || fs::read(again)).await.unwrap(), pattern(MIB));
        mount.unmount().await.unwrap();
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "it is still mounted");
    });
}
