//! E01 images read by libewf's tools and The Sleuth Kit, and resumed after writing was interrupted.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cheetah_device::{ByteRange, Data, Device as _, Error as DeviceError};
use cheetah_error::Kind;
use cheetah_error::next::Acquisition;
use cheetah_image::ewf::write::{Checkpoint, E01Options, E01Writer, Partial};
use cheetah_image::hash::{HashChoice, Hashes, Hashing};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::need;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Runs a tool; `None`, with a message, if it is not installed.
fn tool(program: &str, args: &[&str]) -> Option<Output> {
    match Command::new(program).args(args).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            need::skip(&format!("needs {program}"));
            None
        }
        output => Some(output.unwrap()),
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Content like a disk's: text, noise and zeros in turns that are not aligned to chunks.
fn evidence(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 100 * KIB);
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    while bytes.len() < len {
        let turn = bytes.len() + 1 + (random() % 150_000) as usize;
        match random() % 3 {
            0 => bytes.resize(turn, 0),
            1 => bytes.extend((bytes.len()..turn).map(|_| random() as u8)),
            _ => {
                while bytes.len() < turn {
                    bytes.extend(format!("line {} of a log; ", random() % 1000).bytes());
                }
            }
        }
    }
    bytes.truncate(len);
    bytes
}

fn options() -> E01Options {
    let mut options = E01Options { guid: Some([7; 16]), ..E01Options::default() };
    (options.acquired_s, options.system_s) = (1_795_211_848, 1_795_211_849);
    options
}

async fn hashes(bytes: &[u8]) -> Hashes {
    let hashing = Hashing::start(HashChoice::ALL).unwrap();
    hashing.push(&bytes.to_vec().into()).await.unwrap();
    hashing.finish().await.unwrap()
}

/// Pushes `bytes` from the writer's offset up to `end`, in pieces of all sizes, with zeros as holes.
async fn push(writer: &mut E01Writer, bytes: &[u8], end: usize) {
    let mut piece = 1;
    while (writer.offset() as usize) < end {
        let at = writer.offset() as usize;
        piece = piece * 7 % 300_007;
        let data = &bytes[at..end.min(at + piece)];
        let zeros = data.iter().all(|byte| *byte == 0);
        let data = if zeros { Data::zeros(data.len() as u64) } else { data.to_vec().into() };
        writer.push(data).await.unwrap();
    }
}

async fn write(path: &Path, bytes: &[u8], options: E01Options) -> Vec<PathBuf> {
    let mut writer = E01Writer::create(path, bytes.len() as u64, options).unwrap();
    push(&mut writer, bytes, bytes.len()).await;
    writer.finish(&hashes(bytes).await).await.unwrap()
}

/// Asserts that libewf's tools and The Sleuth Kit read the same bytes from the image.
async fn everyone_reads(first: &Path, bytes: &[u8]) {
    let image = first.to_str().unwrap();
    let folder = TempDir::new().unwrap();
    if let Some(verified) = tool("ewfverify", &["-q", "-d", "sha1", image]) {
        let printed = text(&verified);
        assert!(verified.status.success() && printed.contains("SUCCESS"), "{printed}");
        let hashes = hashes(bytes).await;
        assert_eq!(printed.matches(&hashes.md5.unwrap()).count(), 2, "{printed}");
        assert_eq!(printed.matches(&hashes.sha1.unwrap()).count(), 2, "{printed}");
    }
    let raw = folder.path().join("raw");
    if let Some(exported) = tool("ewfexport", &["-q", "-u", "-f", "raw", "-t", raw.to_str().unwrap(), image]) {
        assert!(exported.status.success(), "{}", text(&exported));
        assert!(fs::read(raw.with_extension("raw")).unwrap() == bytes, "ewfexport's bytes differ");
    }
    if let Some(cat) = tool("img_cat", &[image]) {
        assert!(cat.stdout == bytes, "img_cat's bytes differ");
    }
    if let Some(stat) = tool("img_stat", &[image]) {
        let printed = text(&stat).replace('\t', " ").replace("  ", " ");
        assert!(printed.contains("Image Type: ewf"), "{printed}");
        assert!(printed.contains(&format!("Size of data in bytes: {}", bytes.len())), "{printed}");
    }
}

#[tokio::test]
async fn other_tools_read_the_case_and_the_hashes() {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("case.E01");
    let bytes = evidence(3 * MIB);
    let mut options = options();
    options.case.case_number = Some("2026-17".into());
    options.case.evidence_number = Some("A/3".into());
    options.case.examiner = Some("Renée Müller".into());
    options.case.description = Some("a laptop's disk".into());
    options.case.notes = Some("found\ton the desk".into());
    options.model = Some("WDC WD10".into());
    options.serial = Some("WX-123".into());
    options.software = "Cheetah 0.1".into();
    let paths = write(&image, &bytes, options).await;
    assert_eq!(paths, std::slice::from_ref(&image));
    everyone_reads(&image, &bytes).await;
    let Some(info) = tool("ewfinfo", &["-d", "iso8601", image.to_str().unwrap()]) else { return };
    let printed = text(&info);
    assert!(info.status.success(), "{printed}");
    let md5 = hashes(&bytes).await.md5.unwrap();
    for expected in [
        "Case number:\t\t2026-17",
        "Evidence number:\tA/3",
        "Examiner name:\t\tRenée Müller",
        "Description:\t\ta laptop's disk",
        "Notes:\t\t\tfound on the desk",
        "Model:\t\t\tWDC WD10",
        "Serial number:\t\tWX-123",
        "Software version used:\tCheetah 0.1",
        "Operating system used:\tLinux",
        "2026-11-20T",
        "File format:\t\tEnCase 6",
        "Sectors per chunk:\t64",
        "Media type:\t\tfixed disk",
        "Is physical:\t\tyes",
        "Set identifier:\t\t07070707-0707-0707-0707-070707070707",
        &md5,
    ] {
        assert!(printed.contains(expected), "{expected:?} is not in\n{printed}");
    }
}

#[tokio::test]
async fn images_of_every_size_chunk_segment_and_level_read_as_written() {
    // A size in the middle of a chunk; a size that is not a whole number of sectors; less than a sector.
    for (size, sector_size) in [(2 * MIB + 5 * 512, 512), (MIB + 300_004, 512), (101, 512), (MIB + 4096, 4096)] {
        for (level, chunk_sectors) in [("none", 64), ("fast", 16), ("6", 1024), ("best", 64)] {
            let folder = TempDir::new().unwrap();
            let image = folder.path().join("x.E01");
            let bytes = evidence(size);
            let compression = level.parse().unwrap();
            let options = E01Options { compression, chunk_sectors, sector_size, ..options() };
            write(&image, &bytes, options).await;
            everyone_reads(&image, &bytes).await;
        }
    }
}

#[tokio::test]
async fn large_images_get_several_segments_and_tables() {
    let folder = TempDir::new().unwrap();
    // More chunks than a table holds, in one segment; and many segments.
    let bytes = evidence(140 * MIB);
    let one = folder.path().join("one.E01");
    let paths = write(&one, &bytes, E01Options { chunk_sectors: 16, ..options() }).await;
    assert_eq!(paths.len(), 1);
    everyone_reads(&one, &bytes).await;
    let many = folder.path().join("many.E01");
    let paths = write(&many, &bytes, E01Options { segment_size: Some(MIB as u64), ..options() }).await;
    assert!(paths.len() > 40, "{} segments", paths.len());
    assert!(paths.iter().all(|path| fs::metadata(path).unwrap().len() <= MIB as u64));
    everyone_reads(&many, &bytes).await;
    assert!(fs::read_dir(folder.path()).unwrap().count() == 1 + paths.len(), "nothing partial is left");
}

#[tokio::test]
async fn unreadable_sectors_are_listed() {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("bad.E01");
    let mut bytes = evidence(MIB);
    bytes[10 * 512..13 * 512].fill(0);
    bytes[2000 * 512..2001 * 512].fill(0);
    let mut writer = E01Writer::create(&image, bytes.len() as u64, options()).unwrap();
    writer.unreadable(ByteRange::new(2000 * 512 + 3, 5));
    push(&mut writer, &bytes, bytes.len()).await;
    writer.unreadable(ByteRange::new(10 * 512, 512));
    writer.unreadable(ByteRange::new(11 * 512, 1024));
    writer.finish(&hashes(&bytes).await).await.unwrap();
    everyone_reads(&image, &bytes).await;
    let Some(info) = tool("ewfinfo", &[image.to_str().unwrap()]) else { return };
    let printed = text(&info);
    for expected in ["total number: 2", "at sector(s): 10 - 12 number: 3", "at sector(s): 2000 - 2000 number: 1"] {
        assert!(printed.contains(expected), "{expected:?} is not in\n{printed}");
    }
}

/// Writes with an interruption after each of `stops`, and compares with an uninterrupted image.
async fn interrupted(bytes: &[u8], options: E01Options, stops: &[(usize, usize)]) {
    let folder = TempDir::new().unwrap();
    let (plain, broken) = (folder.path().join("plain.E01"), folder.path().join("broken.E01"));
    let size = bytes.len() as u64;
    let bad = ByteRange::new(size / 3, 700);
    let hashes = hashes(bytes).await;
    let mut writer = E01Writer::create(&plain, size, options.clone()).unwrap();
    writer.unreadable(bad);
    push(&mut writer, bytes, bytes.len()).await;
    let plain = writer.finish(&hashes).await.unwrap();

    let mut writer = E01Writer::create(&broken, size, options.clone()).unwrap();
    for (stop, beyond) in stops {
        let stop = bytes.len().min(*stop).max(writer.offset() as usize);
        push(&mut writer, bytes, stop).await;
        let recorded = bad.offset < writer.offset();
        if recorded {
            writer.unreadable(bad);
        }
        let checkpoint = writer.checkpoint().await.unwrap();
        assert!(checkpoint.offset <= stop as u64 && stop as u64 - checkpoint.offset < 1 << 20);
        // Through text, since checkpoints are stored in a file.
        let checkpoint: Checkpoint = serde_json::from_str(&serde_json::to_string(&checkpoint).unwrap()).unwrap();
        push(&mut writer, bytes, bytes.len().min(stop + beyond)).await;
        drop(writer);
        leave_garbage(folder.path());
        let partial = Partial::open(&broken, &checkpoint).unwrap();
        let held = partial.read(ByteRange::new(0, checkpoint.offset)).await.unwrap();
        assert!(held == bytes[..checkpoint.offset as usize]);
        writer = E01Writer::resume(&broken, size, options.clone(), &checkpoint).unwrap();
        assert_eq!(writer.offset(), checkpoint.offset);
    }
    writer.unreadable(bad);
    push(&mut writer, bytes, bytes.len()).await;
    let broken = writer.finish(&hashes).await.unwrap();
    assert_eq!(plain.len(), broken.len());
    for (plain, broken) in plain.iter().zip(&broken) {
        assert!(fs::read(plain).unwrap() == fs::read(broken).unwrap(), "{} differs", broken.display());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2 * plain.len(), "nothing partial is left");
}

/// The remains of a crash: bytes after the end of the last segment.
fn leave_garbage(folder: &Path) {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let last = names.filter(|path| path.extension().unwrap() == "partial").max().unwrap();
    fs::OpenOptions::new().append(true).open(last).unwrap().write_all(&[0x5a; 70_000]).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn an_interrupted_write_resumes_to_an_identical_image(
        size in 1usize..6 * MIB,
        stops in prop::collection::vec((0usize..6 * MIB, 0usize..3 * MIB), 1..4),
        segments in any::<bool>(),
    ) {
        let segment_size = segments.then_some(MIB as u64);
        let bytes = evidence(size);
        let mut stops = stops;
        stops.sort_unstable();
        let options = E01Options { segment_size, ..options() };
        tokio::runtime::Runtime::new().unwrap().block_on(interrupted(&bytes, options, &stops));
    }
}

#[tokio::test]
async fn a_write_interrupted_after_full_tables_resumes() {
    let bytes = evidence(150 * MIB);
    let stops = [(129 * MIB, 5 * MIB), (135 * MIB, 15 * MIB)];
    interrupted(&bytes, E01Options { chunk_sectors: 16, ..options() }, &stops).await;
}

#[tokio::test]
async fn an_interrupted_rename_is_completed() {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("x.E01");
    let bytes = evidence(12 * MIB);
    let options = E01Options { segment_size: Some(MIB as u64), ..options() };
    let mut writer = E01Writer::create(&image, bytes.len() as u64, options.clone()).unwrap();
    push(&mut writer, &bytes, bytes.len()).await;
    let checkpoint = writer.checkpoint().await.unwrap();
    let paths = writer.finish(&hashes(&bytes).await).await.unwrap();
    let finished: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(paths.len() > 2);
    // Killed after some files were renamed; after all were; and before the last checkpoint was known to be the last.
    for renamed_back in [2, 1, 0] {
        for path in &paths[..renamed_back] {
            fs::rename(path, format!("{}.partial", path.display())).unwrap();
        }
        let mut writer = E01Writer::resume(&image, bytes.len() as u64, options.clone(), &checkpoint).unwrap();
        push(&mut writer, &bytes, bytes.len()).await;
        let again = writer.finish(&hashes(&bytes).await).await.unwrap();
        assert_eq!(again, paths);
        assert!(paths.iter().zip(&finished).all(|(path, bytes)| fs::read(path).unwrap() == *bytes));
    }
}

#[tokio::test]
async fn existing_files_are_overwritten_only_when_forced() {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("x.E01");
    let bytes = evidence(5 * MIB);
    let small = E01Options { segment_size: Some(MIB as u64), ..options() };
    let paths = write(&image, &bytes, small.clone()).await;
    let refused = |options: E01Options| {
        let error = E01Writer::create(&image, 4096, options).err().unwrap();
        assert!(error.is_misuse(), "{error}");
    };
    refused(options());
    // A later segment also prevents writing.
    fs::remove_file(&paths[0]).unwrap();
    assert!(E01Writer::create(&image, bytes.len() as u64, small.clone()).is_err());
    // So does a partial set.
    fs::write(folder.path().join("x.E01.partial"), b"half").unwrap();
    refused(options());
    // With force, the existing set is replaced, including its further segments.
    let shorter = &bytes[..2 * MIB];
    let force = E01Options { force: true, ..small };
    let paths = write(&image, shorter, force).await;
    everyone_reads(&image, shorter).await;
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), paths.len());
}

#[tokio::test]
async fn one_writer_at_a_time_and_only_with_its_own_checkpoint() {
    let folder = TempDir::new().unwrap();
    let (image, other) = (folder.path().join("x.E01"), folder.path().join("y.E01"));
    let bytes = evidence(MIB);
    let size = bytes.len() as u64;
    let mut writer = E01Writer::create(&image, size, options()).unwrap();
    push(&mut writer, &bytes, MIB / 2).await;
    let checkpoint = writer.checkpoint().await.unwrap();
    let error = E01Writer::resume(&image, size, options(), &checkpoint).err().unwrap();
    assert_eq!(error.kind(), Kind::Failed, "{error}");
    assert!(writer.finish(&Hashes::default()).await.is_err());
    assert!(!image.exists());
    for options in [E01Options { chunk_sectors: 128, ..options() }, E01Options { guid: Some([8; 16]), ..options() }] {
        assert_eq!(E01Writer::resume(&image, size, options, &checkpoint).err().unwrap().exit_code(), 2);
    }
    // A segment of another set, whole or partial, stays unchanged.
    write(&other, &bytes, E01Options { guid: Some([8; 16]), ..options() }).await;
    let before = fs::read(&other).unwrap();
    assert!(E01Writer::resume(&other, size, options(), &checkpoint).is_err());
    assert!(Partial::open(&other, &checkpoint).is_err());
    assert!(fs::read(&other).unwrap() == before);
    // Truncated or changed by another process.
    let partial = folder.path().join("x.E01.partial");
    let mut changed = fs::read(&partial).unwrap();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    fs::write(&partial, &changed).unwrap();
    let held = Partial::open(&image, &checkpoint).unwrap().read(ByteRange::new(0, checkpoint.offset)).await;
    assert!(matches!(held, Err(DeviceError::Corrupt { .. })));
    fs::write(&partial, &changed[..middle]).unwrap();
    assert_eq!(E01Writer::resume(&image, size, options(), &checkpoint).err().unwrap().exit_code(), 3);
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_leaves_no_complete_image() {
    let folder = TempDir::new().unwrap();
    let mount = folder.path().to_str().unwrap();
    let mounted = tool("mount", &["-t", "tmpfs", "-o", "size=2m", "cheetah-test", mount]);
    if !mounted.is_some_and(|mounted| mounted.status.success()) {
        need::skip("needs root, for a small file system in memory");
        return;
    }
    let image = folder.path().join("x.E01");
    let bytes = evidence(12 * MIB);
    let mut writer = E01Writer::create(&image, bytes.len() as u64, options()).unwrap();
    push(&mut writer, &bytes, MIB / 2).await;
    let checkpoint = writer.checkpoint().await.unwrap();
    let mut result = Ok(());
    for piece in bytes[MIB / 2..].chunks(MIB) {
        result = result.and(writer.push(piece.to_vec().into()).await);
    }
    let finished = writer.finish(&hashes(&bytes).await).await;
    let error = result.and(finished.map(|_| ())).unwrap_err();
    let whole = image.exists();
    let unmount = |_| tool("umount", &[mount]).unwrap();
    // Once there is space again, the write resumes.
    tool("mount", &["-o", "remount,size=40m", mount]).unwrap();
    let resumed = E01Writer::resume(&image, bytes.len() as u64, options(), &checkpoint);
    let again = match resumed {
        Ok(mut writer) => {
            push(&mut writer, &bytes, bytes.len()).await;
            writer.finish(&hashes(&bytes).await).await
        }
        Err(error) => Err(error),
    };
    if again.is_ok() {
        everyone_reads(&image, &bytes).await;
    }
    unmount(());
    assert!(error.has_next(Acquisition::Resume), "{error}");
    assert!(!whole);
    again.unwrap();
}

#[test]
fn options_beyond_the_limits_of_the_format_are_refused() {
    let folder = TempDir::new().unwrap();
    let create = |name: &str, size, options| E01Writer::create(&folder.path().join(name), size, options).err().unwrap();
    let good = options();
    let mut noted = good.clone();
    noted.case.notes = Some("x".repeat(3000));
    let petabytes = 1 << 58;
    for error in [
        create("x.raw", 512, good.clone()),
        create("x.E01", 0, good.clone()),
        create("x.E01", petabytes, good.clone()),
        create("x.E01", 512, E01Options { chunk_sectors: 48, ..good.clone() }),
        create("x.E01", 512, E01Options { sector_size: 520, ..good.clone() }),
        create("x.E01", 512, E01Options { segment_size: Some(1000), ..good.clone() }),
        create("x.E01", 512, E01Options { segment_size: Some(1 << 31), ..good.clone() }),
        create("x.E01", 512, E01Options { segment_size: Some(1 << 20), chunk_sectors: 4096, ..good.clone() }),
        create("x.E01", 512, noted),
    ] {
        assert_eq!(error.exit_code(), 2, "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
