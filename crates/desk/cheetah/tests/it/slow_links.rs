//! Disks behind a slow link, examined with unmodified tools.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::run::tool_in;
use crate::support::service::PATIENCE;
use crate::support::{Desk, KIB, MIB, Mounted, Peer, Service, need, noise, tool};

const DIRECTORIES: usize = 10;
const FILES_EACH: usize = 20;
/// The number of files extracted, in the order of the listing.
const EXTRACTED: usize = 100;

/// Makes directories with files of some KiB each.
fn tree(desk: &Desk, top: &str) {
    let content = noise(MIB, 3);
    for directory in 0..DIRECTORIES {
        let path = desk.at(top).join(format!("directory{directory:02}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..FILES_EACH {
            let len = (3 * KIB) as usize + (directory * 31 + file * 17) % 40 * 1000;
            fs::write(path.join(format!("file{file:02}")), &content[file * 5000..][..len]).unwrap();
        }
    }
}

/// Makes a disk with ext4 in its first partition.
fn ext4(desk: &Desk) -> Option<String> {
    if !need::programs(&["mkfs.ext4"]) {
        return None;
    }
    tree(desk, "tree");
    let image = desk.file("disk.raw", &crate::support::bytes::partitioned(MIB));
    File::options().write(true).open(&image).unwrap().set_len(33 * MIB).unwrap();
    let sectors = u32::try_from(32 * MIB / 512).unwrap().to_le_bytes();
    File::options().write(true).open(&image).unwrap().write_all_at(&sectors, 446 + 12).unwrap();
    tool_in(desk.path(), "mkfs.ext4", &["-q", "-F", "-d", "tree", "-E", "offset=1048576", "disk.raw", "32m"]).ok();
    Some(image)
}

/// Makes an NTFS volume and fills it through ntfs-3g.
fn ntfs(desk: &Desk) -> Option<String> {
    if !need::fuse() || !need::programs(&["mkntfs", "ntfs-3g", "umount"]) {
        return None;
    }
    let image = desk.file("disk.raw", &[]);
    File::options().write(true).open(&image).unwrap().set_len(32 * MIB).unwrap();
    tool("mkntfs", &["-q", "-Q", "-F", "-s", "512", "-p", "0", "-H", "255", "-S", "63", &image]).ok();
    let top = desk.dir("filled");
    tool("ntfs-3g", &[&image, &top]).ok();
    tree(desk, "filled");
    tool("umount", &[&top]).ok();
    Some(image)
}

/// Starts nbdkit with a delay of 20 ms, and a log of its requests.
fn far(desk: &Desk, image: &str) -> (Peer, String) {
    let log = desk.arg("asked.log");
    let filters = ["--filter=log", "--filter=delay", "-t", "64", "-r", "file", image];
    let logged = format!("logfile={log}");
    (Peer::nbdkit_unix(desk, &[&filters[..], &["rdelay=20ms", &logged]].concat()), log)
}

/// Returns the bytes that crossed the link.
fn crossed(log: &str) -> u64 {
    let text = fs::read_to_string(log).unwrap();
    let counts = text.lines().filter(|line| line.contains(" Read id=")).filter_map(|line| {
        let count = line.split(" count=0x").nth(1)?.split(' ').next()?;
        u64::from_str_radix(count, 16).ok()
    });
    counts.sum()
}

/// Returns the number of reads that had to wait for the link.
fn waits(service: &Service) -> usize {
    service.stderr().lines().filter(|line| line.contains("a read waits for the link")).count()
}

fn until_surveyed(service: &Service) {
    let started = Instant::now();
    while !service.stderr().contains("files of all volumes are known") {
        assert!(started.elapsed() < PATIENCE, "{}", service.stderr());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the output of `fls -r -m /`, and the metadata addresses of the files in it.
fn list(path: &Path, start: &str) -> (String, Vec<String>) {
    let listing = tool("fls", &["-r", "-m", "/", "-o", start, path.to_str().unwrap()]).ok().out();
    let files =
        listing.lines().filter(|line| line.contains("/file")).map(|line| line.split('|').nth(2).unwrap().to_owned());
    let files: Vec<_> = files.collect();
    assert!(files.len() >= DIRECTORIES * FILES_EACH, "{listing}");
    (listing, files)
}

/// Runs `examines` on a mount over the link, after all surveys; returns its result, and the bytes that crossed.
fn over_the_link<T>(desk: &Desk, image: &str, more: &[&str], examines: impl FnOnce(&Mounted) -> T) -> (T, u64) {
    let (peer, log) = far(desk, image);
    let mount = Mounted::new(&peer.uri, &desk.dir("mnt"), &[&["-vv"], more].concat());
    if more.is_empty() {
        until_surveyed(mount.service());
    }
    let found = examines(&mount);
    mount.unmount();
    fs::remove_dir(desk.at("mnt")).unwrap();
    drop(peer);
    fs::remove_file(desk.at("nbdkit.sock")).unwrap();
    (found, crossed(&log))
}

/// Lists and extracts over the link; returns the reads that waited in each, and the bytes that crossed.
fn examine(desk: &Desk, image: &str, start: &str, more: &[&str]) -> (usize, usize, u64) {
    let ((listed, extracted), crossed) = over_the_link(desk, image, more, |mount| {
        let before = waits(mount.service());
        let (listing, files) = list(&mount.file, start);
        let listed = waits(mount.service());
        assert_eq!(listing, list(Path::new(image), start).0);
        for address in files.iter().take(EXTRACTED) {
            let extract = |path: &str| tool("icat", &["-o", start, path, address]).ok().stdout;
            assert!(extract(mount.file.to_str().unwrap()) == extract(image), "{address}");
        }
        (listed - before, waits(mount.service()) - listed)
    });
    (listed, extracted, crossed)
}

fn tools_wait_seldom_and_little_crosses(desk: &Desk, image: &str, start: &str) {
    let (listing, extraction, crossed) = examine(desk, image, start, &[]);
    let (listing_alone, _, crossed_alone) = examine(desk, image, start, &["--foresight", "off"]);
    assert!(listing <= listing_alone / 4, "{listing} of {listing_alone} reads of a listing wait");
    assert!(extraction <= EXTRACTED / 4, "{extraction} reads wait for {EXTRACTED} files");
    little_crosses(crossed, crossed_alone);
}

/// Without foresight, the kernel's read-ahead depends on the timing of answers, so the bytes that cross vary by a
/// quarter from run to run. With foresight they hardly vary.
fn little_crosses(crossed: u64, crossed_alone: u64) {
    assert!(crossed <= crossed_alone * 3 / 2, "{crossed} bytes, and {crossed_alone} without foresight");
}

#[test]
fn listing_and_extracting_ext4_wait_for_few_reads() {
    let desk = Desk::new();
    if !need::fuse() || !need::programs(&["nbdkit", "fls", "icat"]) {
        return;
    }
    let Some(image) = ext4(&desk) else { return };
    tools_wait_seldom_and_little_crosses(&desk, &image, "2048");
}

#[test]
fn listing_and_extracting_ntfs_wait_for_few_reads() {
    let desk = Desk::new();
    if !need::programs(&["nbdkit", "fls", "icat"]) {
        return;
    }
    let Some(image) = ntfs(&desk) else { return };
    tools_wait_seldom_and_little_crosses(&desk, &image, "0");
}

/// Everything that `tsk_recover` finds, deleted files too, by path.
fn recover(desk: &Desk, path: &str, start: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let top = desk.dir("recovered");
    tool("tsk_recover", &["-e", "-o", start, path, &top]).ok();
    let (mut found, mut left) = (BTreeMap::new(), vec![PathBuf::from(&top)]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => left.push(entry),
                false => drop(found.insert(entry.strip_prefix(&top).unwrap().to_owned(), fs::read(&entry).unwrap())),
            }
        }
    }
    fs::remove_dir_all(&top).unwrap();
    assert!(found.len() >= DIRECTORIES * FILES_EACH);
    found
}

/// Recovers everything over the link; the reads that waited for it, and what crossed.
fn recover_far(desk: &Desk, image: &str, start: &str, more: &[&str]) -> (usize, u64) {
    let expected = recover(desk, image, start);
    over_the_link(desk, image, more, |mount| {
        let before = waits(mount.service());
        assert!(recover(desk, mount.file.to_str().unwrap(), start) == expected);
        waits(mount.service()) - before
    })
}

fn recovering_waits_seldom_and_little_crosses(desk: &Desk, image: &str, start: &str) {
    let (waited, crossed) = recover_far(desk, image, start, &[]);
    let (waited_alone, crossed_alone) = recover_far(desk, image, start, &["--foresight", "off"]);
    // Several of them often wait for the same round trip, as the kernel reads on. The tool itself reads nearly once a
    // file. The kernel alone stays within this bound, too; the bytes over the link show what foresight adds.
    assert!(waited <= DIRECTORIES * FILES_EACH / 3, "{waited} reads wait, and {waited_alone} without foresight");
    little_crosses(crossed, crossed_alone);
}

#[test]
fn recovering_all_files_of_ext4_waits_for_few_reads() {
    let desk = Desk::new();
    if !need::fuse() || !need::programs(&["nbdkit", "tsk_recover"]) {
        return;
    }
    let Some(image) = ext4(&desk) else { return };
    recovering_waits_seldom_and_little_crosses(&desk, &image, "2048");
}

#[test]
fn recovering_all_files_of_ntfs_waits_for_few_reads() {
    let desk = Desk::new();
    if !need::programs(&["nbdkit", "tsk_recover"]) {
        return;
    }
    let Some(image) = ntfs(&desk) else { return };
    recovering_waits_seldom_and_little_crosses(&desk, &image, "0");
}

/// Reads the nodes of several trees that no survey knows, each in its own region; returns the reads that waited.
fn climb(desk: &Desk, image: &str, more: &[&str]) -> usize {
    const NODES: u64 = 64;
    let content = fs::read(image).unwrap();
    let climbs = |mount: &Mounted| {
        let (before, file) = (waits(mount.service()), File::open(&mount.file).unwrap());
        for (tree, nth) in (1..5).flat_map(|tree| (0..NODES).map(move |nth| (tree, nth))) {
            let (at, mut node) = (tree * 8 * MIB + nth * 29 % NODES * 20 * KIB, [0; 4096]);
            file.read_exact_at(&mut node, at).unwrap();
            assert!(node == content[at as usize..][..node.len()], "node at {at}");
        }
        waits(mount.service()) - before
    };
    over_the_link(desk, image, more, climbs).0
}

#[test]
fn scattered_reads_in_an_unknown_region_wait_half_as_often_with_foresight() {
    let desk = Desk::new();
    if !need::fuse() || !need::programs(&["nbdkit"]) {
        return;
    }
    let image = desk.file("disk.raw", &noise(40 * MIB, 11));
    let waited = climb(&desk, &image, &[]);
    let waited_alone = climb(&desk, &image, &["--foresight", "off"]);
    assert!(waited_alone >= 200, "{waited_alone} reads wait without foresight");
    assert!(waited <= waited_alone / 2, "{waited} reads wait, and {waited_alone} without foresight");
}

/// A third of all requests fail, those of hints and surveys included: each read returns the right data, or an error
/// that a retry overcomes. After the source has recovered, the failures have no further effect.
#[test]
fn reads_of_a_failing_source_return_the_right_data_or_an_error() {
    let desk = Desk::new();
    if !need::fuse() || !need::programs(&["nbdkit", "fls"]) {
        return;
    }
    let Some(image) = ext4(&desk) else { return };
    let trouble = desk.file("trouble", &[]);
    let filter = ["--filter=error", "-r", "file", &image, "error=EIO", "error-pread-rate=33%"];
    let peer = Peer::nbdkit_unix(&desk, &[&filter[..], &[&format!("error-pread-file={trouble}")]].concat());
    fs::remove_file(&trouble).unwrap();
    let cache = format!("{}:1GiB", desk.dir("cache"));
    let mount = Mounted::new(&peer.uri, &desk.dir("mnt"), &["--cache", &cache]);
    fs::write(&trouble, []).unwrap();
    let content = fs::read(&image).unwrap();
    let file = File::open(&mount.file).unwrap();
    let (mut failed, mut buffer) = (0, vec![0; (64 * KIB) as usize]);
    for (nth, expected) in content.chunks(buffer.len()).enumerate() {
        // There are few large requests, so possibly none of the first has failed.
        if nth >= 128 && failed > 0 {
            break;
        }
        let started = Instant::now();
        while let Err(error) = file.read_exact_at(&mut buffer, nth as u64 * 64 * KIB) {
            assert_eq!(error.raw_os_error(), Some(5), "{error}");
            assert!(started.elapsed() < PATIENCE, "it fails for ever");
            failed += 1;
        }
        assert!(buffer == expected, "block {nth}");
    }
    assert!(failed > 0);
    fs::remove_file(&trouble).unwrap();
    let (listing, _) = list(&mount.file, "2048");
    assert_eq!(listing, list(Path::new(&image), "2048").0);
    assert!(mount.read() == content);
    drop(file);
    mount.unmount();
}
