//! Surveys of NTFS: volumes made by other programs, compared with the reads of The Sleuth Kit, and damaged ones.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::need::{programs, skip};
use crate::walk::{Nearness, evidence, output, probed, reads, surveyed};
use cheetah_device::ByteRange;
use cheetah_volume::offline::drive;
use cheetah_volume::recognise::{START_BYTES, recognise};
use cheetah_volume::survey::{SurveyPlan, WINDOW_BYTES};

const SIZE: u64 = 64 << 20;

/// A volume filled by ntfs-3g, and its content.
struct Volume {
    folder: tempfile::TempDir,
    bytes: Vec<u8>,
    /// The records and content of files that are not deleted.
    files: Vec<(u64, Vec<u8>)>,
    /// The records of directories, with their files in the order of their names.
    order: Vec<(u64, Vec<u64>)>,
}

impl Volume {
    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }
}

static VOLUME: LazyLock<Option<Volume>> = LazyLock::new(make);

/// A file system mounted by ntfs-3g; unmounted when this is dropped.
struct Mounted {
    daemon: Child,
    folder: PathBuf,
}

impl Mounted {
    fn new(image: &Path, folder: PathBuf) -> Option<Self> {
        std::fs::create_dir(&folder).unwrap();
        let before = std::fs::metadata(&folder).unwrap().dev();
        let mut command = Command::new("ntfs-3g");
        command.args(["-o", "no_detach"]).arg(image).arg(&folder).stderr(Stdio::null());
        let mounted = Self { daemon: command.spawn().unwrap(), folder };
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if std::fs::metadata(&mounted.folder).is_ok_and(|now| now.dev() != before) {
                return Some(mounted);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.folder).status().is_ok_and(|status| status.success());
        if !unmounted {
            let _ = self.daemon.kill();
        }
        let _ = self.daemon.wait();
    }
}

fn make() -> Option<Volume> {
    if !programs(&["mkntfs", "ntfs-3g", "umount", "fls", "icat", "strace"]) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    File::create(&image).unwrap().set_len(SIZE).unwrap();
    output(Command::new("mkntfs").args(["-q", "-F", "-Q", "-c", "4096"]).arg(&image));
    let Some(mounted) = Mounted::new(&image, folder.path().join("mounted")) else {
        skip("needs a mount by ntfs-3g (root, FUSE)");
        return None;
    };
    let mut volume = Volume { folder, bytes: Vec::new(), files: Vec::new(), order: Vec::new() };
    volume.fill(&mounted.folder);
    drop(mounted);
    volume.bytes = std::fs::read(&image).unwrap();
    Some(volume)
}

fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed * 97) >> 7) as u8).collect()
}

impl Volume {
    fn fill(&mut self, root: &Path) {
        // Nested directories with resident and non-resident files, some of them deleted, whole directories among them.
        for i in 0..24 {
            let folder = root.join(format!("top {}", i % 6)).join(format!("Middle {i:02}")).join("ä deep one");
            std::fs::create_dir_all(&folder).unwrap();
            let mut names: Vec<_> =
                (0..24).map(|file| format!("{}ile {:02}.dat", ["f", "F"][file % 2], file * 7 % 24)).collect();
            for (file, name) in names.iter().enumerate() {
                let content = content(i * 100 + file, [100, 700, 5000, 20_000][(i + file) % 4]);
                std::fs::write(folder.join(name), &content).unwrap();
                if file % 5 == 4 {
                    std::fs::remove_file(folder.join(name)).unwrap();
                } else {
                    let record = std::fs::metadata(folder.join(name)).unwrap().ino();
                    self.files.push((record, content));
                }
            }
            names.retain(|name| folder.join(name).exists());
            names.sort_by_key(|name| name.to_uppercase());
            let record = |name: &String| std::fs::metadata(folder.join(name)).unwrap().ino();
            self.order.push((std::fs::metadata(&folder).unwrap().ino(), names.iter().map(record).collect()));
        }
        let gone = root.join("gone");
        std::fs::create_dir(&gone).unwrap();
        for i in 0..100 {
            std::fs::write(gone.join(format!("a file that will be deleted {i}")), content(i, 3000)).unwrap();
        }
        std::fs::remove_dir_all(&gone).unwrap();
        // A file with enough holes to need several records for its runs.
        let path = root.join("holes");
        let holes = File::create(&path).unwrap();
        let written = content(1, 2000 * 4096);
        for (piece, at) in written.chunks(4096).zip((0..).step_by(8192)) {
            holes.write_all_at(piece, at).unwrap();
        }
        self.files.push((std::fs::metadata(path).unwrap().ino(), written));
    }
}

#[test]
fn a_listing_reads_only_surveyed_ranges() {
    let Some(volume) = &*VOLUME else { return };
    let mut surveyed = surveyed(&volume.bytes);
    assert_eq!(surveyed.name, "NTFS");
    assert!(surveyed.rounds <= 3, "{} round trips", surveyed.rounds);
    assert!(surveyed.outside.is_empty(), "{:?}", surveyed.outside);
    for kind in [&["-f", "ntfs"][..], &[]] {
        if kind.is_empty() {
            probed(&volume.bytes, &mut surveyed);
        }
        let reads = reads("fls", &[kind, &["-r", "-m", "/"]].concat(), &volume.image(), &[]);
        let near = Nearness::of(&reads, &surveyed, SIZE);
        println!("fls {kind:?}: {near:?} in {} reads", reads.len());
        near.assert_good();
        assert!(near.waits <= 3, "{near:?}");
    }
}

#[test]
fn extracting_a_file_reads_only_surveyed_ranges_and_its_content() {
    let Some(volume) = &*VOLUME else { return };
    let mut surveyed = surveyed(&volume.bytes);
    probed(&volume.bytes, &mut surveyed);
    for nth in [2, volume.files.len() - 1] {
        let record = volume.files[nth].0;
        let file = surveyed.files.iter().find(|file| file.id == record).unwrap();
        // It reads 64 KiB for each run, and bytes past the end.
        let wide = |run: &ByteRange| ByteRange::new(run.offset, run.len.next_multiple_of(WINDOW_BYTES));
        let content: Vec<_> = file.runs.iter().map(wide).collect();
        surveyed.fetches.extend(content);
        let reads = reads("icat", &[], &volume.image(), &[&record.to_string()]);
        let near = Nearness::of(&reads, &surveyed, SIZE);
        assert_eq!((near.waits, near.near_bytes), (0, near.read_bytes), "{near:?}");
    }
}

#[test]
fn located_files_have_their_content() {
    let Some(volume) = &*VOLUME else { return };
    let surveyed = surveyed(&volume.bytes);
    let mut several = 0;
    for (record, content) in &volume.files {
        let Some(file) = surveyed.files.iter().find(|file| file.id == *record) else {
            assert!(content.len() < 1000, "{} bytes in record {record}, and not found", content.len());
            continue;
        };
        several += usize::from(file.runs.len() > 500);
        let found: Vec<u8> = (file.runs.iter())
            .flat_map(|run| &volume.bytes[run.offset as usize..run.end() as usize])
            .copied()
            .collect();
        assert!(found == *content, "record {record}: {} bytes of {}", found.len(), content.len());
    }
    assert!(several > 0, "no file has its runs in several records");
    for (directory, records) in &volume.order {
        let mut listed: Vec<_> = surveyed.files.iter().filter(|file| file.directory == *directory).collect();
        listed.sort_by_key(|file| file.place);
        let listed: Vec<_> = listed.iter().map(|file| file.id).filter(|id| records.contains(id)).collect();
        let expected: Vec<_> = records.iter().copied().filter(|id| listed.contains(id)).collect();
        assert_eq!(listed, expected, "in directory {directory}");
        assert!(listed.len() > 5);
    }
}

#[test]
fn a_survey_of_real_volumes_requests_what_tools_read() {
    for name in ["ntfs.bin.gz", "ntfs_sample.E01", "windows_volume.qcow2"] {
        let Some(bytes) = evidence(name) else { continue };
        if !programs(&["fls", "strace"]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, &bytes).unwrap();
        let surveyed = surveyed(&bytes);
        let reads = reads("fls", &["-f", "ntfs", "-r", "-m", "/"], &image, &[]);
        let near = Nearness::of(&reads, &surveyed, bytes.len() as u64);
        println!("{name}: {near:?} in {} reads", reads.len());
        assert!(near.near_bytes * 100 >= near.read_bytes * 99, "too little was surveyed: {near:?}");
        // On a volume with hardly any files, tools read little more than the start, so the survey requests more than
        // they read.
        assert!(near.asked_bytes <= near.read_bytes * 3 / 2 + (1 << 20), "too much was asked for: {near:?}");
        assert!(near.waits <= 3, "{near:?}");
    }
}

/// Asserts that a survey ends, stays within the size in the boot sector, and requests no byte a third time.
fn assert_bounded(bytes: &[u8], fails: impl Fn(ByteRange) -> bool) {
    let start = &bytes[..bytes.len().min(START_BYTES as usize)];
    let Some(mut surveyor) = recognise(start) else { return };
    let surveyed = drive(&mut *surveyor, 100_000, |range| {
        bytes.get(range.offset as usize..range.end() as usize).filter(|_| !fails(range))
    });
    assert!(surveyed.ended);
    let sector_bytes = u64::from(u16::from_le_bytes([bytes[11], bytes[12]]));
    let says = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) * sector_bytes;
    assert!(surveyed.asked().all(|range| range.fits(says)));
    assert!(surveyed.files.iter().flat_map(|file| &file.runs).all(|run| run.fits(says)));
    assert!(surveyed.asked().map(|range| range.len).sum::<u64>() <= 2 * says);
}

/// The real volumes that are present, and the generated one.
fn volumes() -> Vec<Vec<u8>> {
    let real = ["ntfs.bin.gz", "ntfs_sample.E01"].into_iter().filter_map(evidence);
    real.chain(VOLUME.as_ref().map(|volume| volume.bytes.clone())).collect()
}

/// A deterministic generator of random numbers.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 24) % below
    }
}

#[test]
fn a_survey_of_damaged_metadata_ends() {
    for mut bytes in volumes() {
        let intact = surveyed(&bytes);
        let mut number = numbers(bytes.len() as u64);
        for round in 0..60 {
            // Half of the edits hit any read range, the other half the records that locate everything else.
            let mut undo = Vec::new();
            for _ in 0..1 << (round % 12) {
                let range = match number(4) {
                    0 => ByteRange::new(0, 512),
                    1 => ByteRange::new(intact.reads[0].offset, 1024),
                    _ => intact.reads[number(intact.reads.len() as u64) as usize],
                };
                let at = (range.offset + number(range.len)) as usize;
                undo.push((at, bytes[at]));
                bytes[at] ^= 1 << number(8);
            }
            assert_bounded(&bytes, |_| false);
            for (at, byte) in undo.into_iter().rev() {
                bytes[at] = byte;
            }
        }
        assert_eq!(surveyed(&bytes).files, intact.files);
    }
}

#[test]
fn a_survey_with_failed_reads_ends_without_their_content() {
    for bytes in volumes() {
        let intact = surveyed(&bytes);
        for nth in 0..3 {
            let failing = intact.reads[nth.min(intact.reads.len() - 1)];
            assert_bounded(&bytes, |range| range == failing);
        }
        assert_bounded(&bytes, |_| true);
        // The image ends in the middle of the volume.
        assert_bounded(&bytes[..bytes.len() / 2], |_| false);
    }
}

/// The order of arrival changes only the order of requests.
#[test]
fn any_order_of_arrival_gives_the_same_result() {
    for bytes in volumes() {
        let intact = surveyed(&bytes);
        let mut surveyor = recognise(&bytes[..START_BYTES as usize]).unwrap();
        let (mut plan, mut number) = (SurveyPlan::default(), numbers(7));
        let mut files = Vec::new();
        surveyor.start(&mut plan);
        for _ in 0..2 {
            while !plan.reads.is_empty() {
                let range = plan.reads.remove(number(plan.reads.len() as u64) as usize).unwrap();
                surveyor.arrived(range, &bytes[range.offset as usize..range.end() as usize], &mut plan);
            }
            surveyor.idle(&mut plan);
            files.append(&mut plan.files);
        }
        assert_eq!(files, intact.files);
    }
}
