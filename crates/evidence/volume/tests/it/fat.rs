//! Surveys of FAT12, FAT16, FAT32 and exFAT: they request the ranges that The Sleuth Kit reads, and few others.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use cheetah_volume::offline::survey;
use proptest::prelude::*;

use crate::need::{programs, skip};
use crate::tools::*;
use crate::walk::{Nearness, evidence, reads, surveyed};

/// The Sleuth Kit's name, ours, options of mkfs.vfat, and the size in MiB.
const KINDS: &[(&str, &str, &str, u64)] =
    &[("fat12", "FAT12", "-F 12 -s 4", 8), ("fat16", "FAT16", "-F 16 -s 4", 32), ("fat32", "FAT32", "-F 32 -s 1", 48)];

struct Image {
    kind: &'static str,
    name: &'static str,
    folder: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
    files: BTreeMap<String, Vec<u8>>,
}

/// One image of each kind, made once; none if the programs are missing.
fn images() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    if !programs(&["mkfs.vfat", "mcopy", "fls"]) {
        return &[];
    }
    IMAGES.get_or_init(|| {
        let fat = KINDS.iter().map(|(kind, name, options, mebibytes)| fat(kind, name, options, *mebibytes));
        fat.chain(ex_fat()).collect()
    })
}

/// Makes a volume with a tree, parts of which are deleted again, a file in the gaps, and one in the rest, so that few
/// clusters are unused.
fn fat(kind: &'static str, name: &'static str, options: &str, mebibytes: u64) -> Image {
    let folder = tempfile::tempdir().unwrap();
    let (tree, path) = (folder.path().join("tree"), folder.path().join("image"));
    let mut files = plant(&tree);
    File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
    let image = path.to_str().unwrap();
    let arguments: Vec<_> = options.split(' ').chain(["-i", "12345678", image]).collect();
    run("mkfs.vfat", &arguments);
    let folders: Vec<_> = std::fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut sorted: Vec<_> = folders.iter().map(|folder| folder.to_str().unwrap()).collect();
    sorted.sort_unstable();
    run("mcopy", &[&["-i", image, "-s"], &sorted[..], &["::/"]].concat());
    run("mdeltree", &["-i", image, "::/d5"]);
    files.retain(|path, _| !path.starts_with("d5/"));
    for gone in ["d3/a name that is somewhat long 0.txt", "many/an even longer name so that the directory grows 7"] {
        run("mdel", &["-i", image, &format!("::/{gone}")]);
        files.remove(gone);
    }
    // The first file takes the space after the others, the second the gaps between them.
    let cluster_bytes = if kind == "fat32" { 512 } else { 2048 };
    for (name, bytes) in [("filler", bytes_free(image) - 40 * cluster_bytes), ("in pieces", usize::MAX)] {
        let content = noise(5, bytes.min(bytes_free(image)));
        let place = folder.path().join(name);
        std::fs::write(&place, &content).unwrap();
        run("mcopy", &["-i", image, place.to_str().unwrap(), "::/"]);
        files.insert(name.into(), content);
    }
    let bytes = std::fs::read(&path).unwrap();
    Image { kind, name, folder, path, bytes, files }
}

fn bytes_free(image: &str) -> usize {
    let listing = String::from_utf8(run("mdir", &["-i", image, "::/"])).unwrap();
    let line = listing.lines().find(|line| line.contains("bytes free")).unwrap();
    line.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// Makes such a volume with exFAT, which has to be mounted to be filled.
fn ex_fat() -> Option<Image> {
    if !programs(&["mkfs.exfat", "mount.exfat-fuse", "losetup", "umount"]) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mounted, path) = (folder.path().join("mounted"), folder.path().join("image"));
    std::fs::create_dir(&mounted).unwrap();
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    run("mkfs.exfat", &["-c", "4096", path.to_str().unwrap()]);
    let Some(mount) = Mount::new(&path, &mounted) else {
        skip("needs root, loop devices and FUSE to mount exFAT");
        return None;
    };
    let mut files = plant(&mounted);
    for gone in ["d3/a name that is somewhat long 0.txt", "many/an even longer name so that the directory grows 7"] {
        std::fs::remove_file(mounted.join(gone)).unwrap();
        files.remove(gone);
    }
    // The rest, gaps included.
    let filler = noise(5, 64 << 20);
    std::fs::write(mounted.join("filler"), &filler).unwrap_err();
    let len = std::fs::metadata(mounted.join("filler")).unwrap().len() as usize;
    files.insert("filler".into(), filler[..len].to_vec());
    drop(mount);
    let bytes = std::fs::read(&path).unwrap();
    Some(Image { kind: "exfat", name: "exFAT", folder, path, bytes, files })
}

/// A mounted volume; unmounted when this is dropped.
struct Mount {
    image: PathBuf,
    device: String,
    mounted: PathBuf,
}

impl Mount {
    fn new(image: &Path, mounted: &Path) -> Option<Self> {
        let device = Command::new("losetup").args(["-f", "--show"]).arg(image).output().ok()?;
        let device = String::from_utf8(device.stdout).unwrap().trim().to_owned();
        let mount = Self { image: image.to_owned(), device, mounted: mounted.to_owned() };
        let output = Command::new("mount.exfat-fuse").arg(&mount.device).arg(mounted).output().ok()?;
        output.status.success().then_some(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mounted).output();
        let _ = Command::new("losetup").args(["-d", &self.device]).output();
        // umount does not wait for the process that serves the mount, which may still write; the device is detached
        // when it is closed.
        let held = Path::new("/sys/block").join(self.device.trim_start_matches("/dev/")).join("loop/backing_file");
        let is_attached = || std::fs::read_to_string(&held).is_ok_and(|file| Path::new(file.trim_end()) == self.image);
        for _ in 0..6000 {
            if !is_attached() {
                return;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_listing_reads_only_surveyed_ranges() {
    for image in images() {
        let found = surveyed(&image.bytes);
        assert_eq!(found.name, image.name);
        let listing = fls(image.kind, &image.path);
        assert!(listing.lines().count() > 600, "{}", image.kind);
        let kept = image.folder.path().join("kept");
        std::fs::write(&kept, only(&image.bytes, found.asked())).unwrap();
        assert_eq!(fls(image.kind, &kept), listing, "{}", image.kind);
    }
}

#[test]
fn a_survey_requests_little_more_than_a_listing_reads() {
    if !programs(&["strace"]) {
        return;
    }
    for image in images() {
        let found = surveyed(&image.bytes);
        let mut reads = reads("fls", &[LISTING, &["-f", image.kind]].concat(), &image.path, &[]);
        // exFAT cannot be filled to its last cluster; unused clusters are left to read-ahead.
        let filled = image.bytes.len() as u64 - (128 << 10);
        reads.retain(|read| image.kind != "exfat" || read.offset < filled);
        let nearness = Nearness::of(&reads, &found, image.bytes.len() as u64);
        eprintln!("{}: {} rounds, {nearness:?}", image.kind, found.rounds);
        nearness.assert_good();
        assert!(found.rounds <= 8, "{}: {} rounds", image.kind, found.rounds);
    }
}

#[test]
fn located_files_have_their_content() {
    for image in images() {
        let found = surveyed(&image.bytes);
        let mut contents: Vec<_> = found.files.iter().map(|file| content(&image.bytes, file)).collect();
        let mut expected: Vec<_> = image.files.values().filter(|content| !content.is_empty()).cloned().collect();
        contents.retain(|content| !content.is_empty());
        contents.sort_unstable();
        expected.sort_unstable();
        // exFAT still records the clusters of deleted files.
        assert!(contents.len() <= expected.len() + 2, "{}", image.kind);
        assert!(expected.iter().all(|expected| contents.binary_search(expected).is_ok()), "{}", image.kind);
        let pieces = found.files.iter().map(|file| file.runs.len()).max();
        assert!(pieces > Some(1), "{}: no file is in pieces", image.kind);
    }
}

#[test]
fn deleted_files_are_located_where_they_would_be_recovered() {
    if !programs(&["mkfs.vfat", "mcopy", "icat", "fls"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, first, second) =
        (folder.path().join("image"), folder.path().join("first"), folder.path().join("second"));
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let image = path.to_str().unwrap();
    run("mkfs.vfat", &["-F", "16", "-s", "4", image]);
    std::fs::write(&first, noise(1, 50_000)).unwrap();
    std::fs::write(&second, noise(2, 50_000)).unwrap();
    for file in [&first, &second] {
        run("mcopy", &["-i", image, file.to_str().unwrap(), "::/"]);
    }
    run("mdel", &["-i", image, "::/first"]);
    let bytes = std::fs::read(&path).unwrap();
    let contents: Vec<_> = surveyed(&bytes).files.iter().map(|file| content(&bytes, file)).collect();
    assert!(contents == [noise(1, 50_000), noise(2, 50_000)]);
}

#[test]
fn a_survey_of_a_real_volume_requests_what_tools_read() {
    let Some(disk) = evidence("nps-2010-emails.E01") else { return };
    if !programs(&["fls"]) {
        return;
    }
    let volume = disk[512..].to_vec();
    let found = surveyed(&volume);
    let folder = tempfile::tempdir().unwrap();
    let (whole, kept) = (folder.path().join("whole"), folder.path().join("kept"));
    std::fs::write(&whole, &volume).unwrap();
    let kind = found.name.to_lowercase();
    let listing = fls(&kind, &whole);
    assert!(listing.lines().count() > 5);
    // Deleted content is in unused clusters, which are left to read-ahead.
    let named = |listing: &str| {
        let lines = listing.lines().filter(|line| !line.contains("$OrphanFiles"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    std::fs::write(&kept, only(&volume, found.asked())).unwrap();
    assert_eq!(named(&fls(&kind, &kept)), named(&listing));
}

/// A volume to be damaged.
fn small(kind: &str) -> Option<&'static [u8]> {
    images().iter().find(|image| image.kind == kind).map(|image| &image.bytes[..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// With any bits of the metadata flipped, the survey ends without a panic, and requests nothing repeatedly.
    #[test]
    fn a_survey_of_damaged_metadata_ends(
        kind in prop::sample::select(vec!["fat12", "fat16", "fat32", "exfat"]),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u32..8), 1..60),
    ) {
        let Some(intact) = small(kind) else { return Ok(()) };
        let mut bytes = intact.to_vec();
        let metadata = surveyed(intact).reads;
        for (range, at, bit) in flips {
            // One in eight hits the boot sector.
            let range = metadata.get(range.index(metadata.len() * 8 / 7)).copied();
            let at = range.map_or_else(|| at.index(128), |range| range.offset as usize + at.index(range.len as usize));
            bytes[at] ^= 1 << bit;
        }
        if let Some(found) = survey(&bytes, 1 << 20) {
            prop_assert!(found.ended);
            let last = found.asked().map(|range| range.end()).max().unwrap_or(0);
            let asked: u64 = found.asked().map(|range| range.len).sum();
            prop_assert!(asked <= 3 * last.max(1 << 20), "{} up to {}", asked, last);
        }
    }
}
