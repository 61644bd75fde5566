//! Surveys of ext2, ext3 and ext4: they request the ranges that The Sleuth Kit reads, and few others.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use cheetah_volume::offline::survey;
use proptest::prelude::*;

use crate::need::programs;
use crate::tools::*;
use crate::walk::{Nearness, reads, surveyed};

/// The kinds of file systems, by options of mkfs.
const KINDS: &[(&str, &str)] = &[
    ("ext4", "-t ext4 -b 4096"),
    ("ext4", "-t ext4 -b 1024 -I 128"),
    ("ext4", "-t ext4 -b 4096 -O ^metadata_csum,^uninit_bg,^64bit,^flex_bg"),
    ("ext4", "-t ext4 -b 1024 -O meta_bg,^resize_inode"),
    ("ext4", "-t ext4 -b 4096 -O inline_data,sparse_super2"),
    ("ext3", "-t ext3 -b 1024"),
    ("ext2", "-t ext2 -b 2048 -O ^sparse_super,^filetype,^resize_inode"),
];

struct Image {
    name: &'static str,
    options: &'static str,
    folder: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
    files: BTreeMap<String, Vec<u8>>,
}

/// One image of each kind, made once; none if the programs are missing.
fn images() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    if !programs(&["mkfs.ext4", "debugfs", "fls"]) {
        return &[];
    }
    IMAGES.get_or_init(|| KINDS.iter().map(|(name, options)| image(name, options, 48)).collect())
}

/// Makes a file system with a tree, parts of which are deleted again.
fn image(name: &'static str, options: &'static str, mebibytes: u64) -> Image {
    let folder = tempfile::tempdir().unwrap();
    let (tree, path) = (folder.path().join("tree"), folder.path().join("image"));
    let mut files = plant(&tree);
    let pieces = File::create(tree.join("in pieces")).unwrap();
    let mut content = vec![0; 64 * 8192];
    for piece in (0..64).step_by(2) {
        let written = noise(piece, 8192);
        pieces.write_all_at(&written, piece * 8192).unwrap();
        content[piece as usize * 8192..][..8192].copy_from_slice(&written);
    }
    files.insert("in pieces".into(), content);
    std::os::unix::fs::symlink("x".repeat(200), tree.join("long link")).unwrap();
    std::os::unix::fs::symlink("d1", tree.join("short link")).unwrap();
    File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
    let (tree, file) = (tree.to_str().unwrap(), path.to_str().unwrap());
    let mut arguments: Vec<_> = options.split(' ').collect();
    arguments.extend(["-q", "-F", "-E", "hash_seed=00000000-0000-0000-0000-000000000001", "-d", tree, file]);
    run("mkfs.ext4", &arguments);
    for gone in ["d3/a name that is somewhat long 0.txt", "many/an even longer name so that the directory grows 7"] {
        run("debugfs", &["-w", "-R", &format!("rm \"/{gone}\""), file]);
        files.remove(gone);
    }
    let bytes = std::fs::read(&path).unwrap();
    Image { name, options, folder, path, bytes, files }
}

/// Paths by inode, as The Sleuth Kit lists them.
fn inodes(listing: &str) -> HashMap<u64, String> {
    let lines = listing.lines().filter(|line| !line.contains("(deleted)"));
    let fields = lines.map(|line| line.split('|').collect::<Vec<_>>());
    fields.map(|fields| (fields[2].parse().unwrap(), fields[1].trim_start_matches('/').to_owned())).collect()
}

#[test]
fn a_listing_reads_only_surveyed_ranges() {
    for image in images() {
        let Image { name, options, .. } = image;
        let found = surveyed(&image.bytes);
        assert_eq!(found.name, *name, "{options}");
        let listing = fls(name, &image.path);
        assert!(listing.lines().count() > 300, "{options}");
        let kept = image.folder.path().join("kept");
        std::fs::write(&kept, only(&image.bytes, found.asked())).unwrap();
        assert_eq!(fls(name, &kept), listing, "{options}");
    }
}

#[test]
fn a_survey_requests_little_more_than_a_listing_reads() {
    if !programs(&["strace"]) {
        return;
    }
    for image in images() {
        let Image { name, options, .. } = image;
        let found = surveyed(&image.bytes);
        let reads = reads("fls", &[LISTING, &["-f", name]].concat(), &image.path, &[]);
        let nearness = Nearness::of(&reads, &found, image.bytes.len() as u64);
        eprintln!("{options}: {} rounds, {nearness:?}", found.rounds);
        nearness.assert_good();
        assert!(found.rounds <= 8, "{options}: {} rounds", found.rounds);
    }
}

#[test]
fn located_files_have_their_content() {
    for image in images() {
        let Image { name, options, .. } = image;
        let found = surveyed(&image.bytes);
        let paths = inodes(&fls(name, &image.path));
        let mut seen = 0;
        let found: Vec<_> = found.files.iter().filter(|file| !file.runs.is_empty()).collect();
        for file in &found {
            // The Sleuth Kit does not list all entries of large directories with blocks of 1 KiB.
            let Some(path) = paths.get(&file.id) else { continue };
            let mut expected = image.files[path].clone();
            if path == "in pieces" {
                expected = expected.chunks(8192).step_by(2).flatten().copied().collect();
            }
            assert!(content(&image.bytes, file) == expected, "{options}: {path}: {file:?}");
            seen += 1;
        }
        // Content in inodes has no extents.
        let inline = if options.contains("inline_data") { 60 } else { 0 };
        let expected = image.files.values().filter(|content| content.len() > inline).count();
        assert!(found.len() >= expected, "{options}: {} of {expected}", found.len());
        assert!(seen > 50, "{options}: {seen}");
    }
}

fn small() -> &'static [u8] {
    static SMALL: OnceLock<Vec<u8>> = OnceLock::new();
    SMALL.get_or_init(|| image("ext4", "-t ext4 -b 1024 -O ^flex_bg -g 1024", 16).bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// With any bits of the metadata flipped, the survey ends without a panic, and requests no byte twice.
    #[test]
    fn a_survey_of_damaged_metadata_ends(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u32..8), 1..60)) {
        if !programs(&["mkfs.ext4", "debugfs"]) {
            return Ok(());
        }
        let mut bytes = small().to_vec();
        let metadata: Vec<_> = surveyed(&bytes).reads;
        for (range, at, bit) in flips {
            // One in eight hits the superblock or a descriptor.
            let range = metadata.get(range.index(metadata.len() * 8 / 7)).copied();
            let at = range.map_or_else(|| 1024 + at.index(2048), |range| range.offset as usize + at.index(range.len as usize));
            bytes[at] ^= 1 << bit;
        }
        let blocks = u64::from(u32::from_le_bytes(bytes[1028..1032].try_into().unwrap()))
            | u64::from(u32::from_le_bytes(bytes[1024 + 0x150..1024 + 0x154].try_into().unwrap())) << 32;
        if let Some(found) = survey(&bytes, 1 << 20) {
            prop_assert!(found.ended);
            // The superblock may claim more than there is, but nothing beyond its claim is requested, and nothing
            // repeatedly.
            let claimed = u128::from(blocks) << (10 + bytes[1048]);
            prop_assert!(found.asked().all(|range| u128::from(range.end()) <= claimed));
            let asked: u128 = found.asked().map(|range| u128::from(range.len)).sum();
            prop_assert!(asked <= 2 * claimed);
        }
    }
}
