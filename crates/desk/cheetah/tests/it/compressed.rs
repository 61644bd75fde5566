//! Compressed raw images, made by the programs that examiners use.

use std::fs;
use std::path::Path;

use crate::sources::exported;
use crate::support::{Desk, MIB, Service, cheetah, need, noise, text, three, tool};

/// Each program, how it compresses a file beside it, and the name that it gives the result.
const PROGRAMS: [(&str, &[&str], &str); 10] = [
    ("gzip", &["-k"], "gz"),
    ("bgzip", &["-k"], "gz"),
    ("pigz", &["-k"], "gz"),
    ("bzip2", &["-k"], "bz2"),
    ("pbzip2", &["-k"], "bz2"),
    ("xz", &["-k"], "xz"),
    ("xz", &["-k", "-T2", "--block-size=1MiB"], "xz"),
    ("zstd", &["-q"], "zst"),
    ("zstd", &["-q", "--no-check", "--long=27"], "zst"),
    ("pzstd", &["-q", "-p2"], "zst"),
];

/// Content that compresses, in part.
fn content() -> Vec<u8> {
    let mut content = noise(3 * MIB + 512, 5);
    content.splice(MIB as usize..2 * MIB as usize, vec![0; 2 * MIB as usize]);
    content
}

#[test]
fn an_image_compressed_by_any_program_reads_as_its_disk() {
    let (desk, whole) = (Desk::new(), content());
    for (program, args, end) in PROGRAMS {
        if !need::programs(&[program, "nbdcopy"]) {
            continue;
        }
        let image = desk.file("disk.raw", &whole);
        tool(program, &[args, &[image.as_str()]].concat()).ok();
        let packed = format!("{image}.{end}");
        assert!(exported(&desk, &packed) == whole, "{program} {args:?}");
        fs::remove_file(packed).unwrap();
    }
}

#[test]
fn a_compressed_image_is_loaded_verified_and_saved() {
    let (desk, whole) = (Desk::new(), content());
    let image = desk.file("disk.dd", &whole);
    tool("gzip", &["-k", &image]).ok();
    let nodes = three("16MiB");
    let drive = desk.drive("packed", &nodes.each_ref(), &format!("{image}.gz"), &[]);
    let verified = cheetah(&["verify", &drive]).ok().json();
    let sum = tool("md5sum", &[&image]).ok().out()[..32].to_owned();
    assert_eq!(text(&verified["hashes"], "md5"), sum);
    let saved = desk.arg("saved.raw");
    cheetah(&["save", &drive, &saved]).ok();
    assert!(fs::read(saved).unwrap() == whole);
}

#[test]
fn a_packed_ntfs_volume_is_acquired_and_its_packed_file_is_named_with_its_hash() {
    let Some(packed) = need::evidence("ntfs.bin.gz") else { return };
    let (desk, packed) = (Desk::new(), packed.to_str().unwrap());
    let copy = desk.arg("ntfs.raw");
    let report = cheetah(&["acquire", packed, &copy]).ok().json()["report"].clone();
    assert!(fs::read(&copy).unwrap() == tool("gzip", &["-dc", packed]).ok().stdout);
    let sha256 = tool("sha256sum", &[packed]).ok().out()[..64].to_owned();
    assert_eq!(text(&report["source"], "compressed_sha256"), sha256);
    assert_eq!((text(&report["source"], "kind"), text(&report["source"], "location")), ("gzip", packed));
    let log = fs::read_to_string(format!("{copy}.custody")).unwrap();
    assert!(log.contains(&sha256) && log.contains(packed), "{log}");
}

/// Compresses 65 MiB, mostly zeros, in one piece, and returns the path of the result.
fn one_piece(desk: &Desk, program: &str, end: &str) -> String {
    let image = desk.file("large.raw", &noise(MIB, 9));
    fs::File::options().write(true).open(&image).unwrap().set_len(65 * MIB).unwrap();
    tool(program, &["-k", &image]).ok();
    format!("{image}.{end}")
}

#[test]
fn an_image_in_one_large_piece_is_acquired_and_refused_where_reads_are_at_random() {
    for (program, end, instead) in [("gzip", "gz", "bgzip"), ("xz", "xz", "--block-size"), ("zstd", "zst", "pzstd")] {
        if !need::programs(&[program]) {
            continue;
        }
        let desk = Desk::new();
        let packed = one_piece(&desk, program, end);
        let refused = cheetah(&["export", &packed, "--unix", &desk.arg("sock")]);
        refused.says(2, &[&packed, program, "cheetah acquire", instead]);
        let copy = desk.arg("copy.raw");
        cheetah(&["acquire", &packed, &copy]).ok();
        assert!(fs::read(&copy).unwrap() == fs::read(desk.at("large.raw")).unwrap(), "{program}");
        cheetah(&["verify", &copy]).ok();
    }
}

#[test]
fn an_export_with_the_name_of_a_compressed_file_is_acquired_as_the_image_in_it() {
    for (program, end, kind) in
        [("gzip", "gz", "gzip"), ("bzip2", "bz2", "bzip2"), ("xz", "xz", "xz"), ("zstd", "zst", "zstd")]
    {
        if !need::programs(&[program]) {
            continue;
        }
        let desk = Desk::new();
        let (packed, name) = (one_piece(&desk, program, end), format!("large.raw.{end}"));
        let file = format!("raw:{packed}");
        let agent = Service::start(&["serve", &file, "--name", &name, "--listen", "127.0.0.1:0"]);
        let (uri, copy) = (text(&agent.ready, "uri"), desk.arg("copy.raw"));
        assert!(uri.ends_with(&name), "{uri}");
        let report = cheetah(&["acquire", uri, &copy]).ok().json()["report"].clone();
        assert!(fs::read(&copy).unwrap() == fs::read(desk.at("large.raw")).unwrap(), "{program}");
        // Of the others, an index or the headers are read, and not all of the file.
        if ["gzip", "bzip2"].contains(&kind) {
            let sha256 = tool("sha256sum", &[&packed]).ok().out()[..64].to_owned();
            assert_eq!(text(&report["source"], "compressed_sha256"), sha256);
        }
        assert_eq!(text(&report["source"], "kind"), kind);
    }
    // A disk under such a name is not taken for a file.
    let desk = Desk::new();
    let disk = desk.file("disk.raw", &noise(MIB, 2));
    let agent = Service::start(&["serve", &disk, "--name", "disk.gz", "--listen", "127.0.0.1:0"]);
    cheetah(&["acquire", text(&agent.ready, "uri"), &desk.arg("copy.raw")]).says(1, &["named like a gzip file"]);
}

#[test]
fn a_compressed_image_that_is_cut_off_or_damaged_is_refused_before_anything_is_written() {
    let (desk, whole) = (Desk::new(), content());
    for (program, args, end) in PROGRAMS {
        if !need::programs(&[program]) || args.contains(&"--no-check") {
            continue;
        }
        let image = desk.file("disk.raw", &whole);
        tool(program, &[args, &[image.as_str()]].concat()).ok();
        let packed = format!("{image}.{end}");
        let good = fs::read(&packed).unwrap();
        fs::write(&packed, &good[..good.len() - 30]).unwrap();
        let copy = desk.arg("copy.raw");
        cheetah(&["acquire", &packed, &copy]).says(3, &[&packed]);
        assert!(!Path::new(&copy).exists(), "{program}");
        fs::remove_file(packed).unwrap();
    }
}

#[test]
fn an_image_of_another_format_is_refused_by_name_when_it_is_compressed() {
    let Some(image) = need::evidence("ntfs_sample.E01") else { return };
    let desk = Desk::new();
    let copy = desk.file("ntfs.E01", &fs::read(image).unwrap());
    tool("gzip", &["-k", &copy]).ok();
    cheetah(&["acquire", &format!("{copy}.gz"), &desk.arg("copy.raw")]).says(1, &["an E01 image", "gzip -d"]);
}
