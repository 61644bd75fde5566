//! Disks with too little room: nothing is begun there, and nothing half-made is left.

use std::fs;
use std::path::Path;

use crate::support::run::{cheetah_signing, program, run};
use crate::support::{Desk, MIB, Node, cheetah, noise, tool};

/// A file system of a few bytes in a desk's folder `small`, until it is dropped.
struct Small<'a> {
    desk: &'a Desk,
}

impl<'a> Small<'a> {
    /// `None` where it cannot be mounted: the test is skipped.
    fn mount(desk: &'a Desk, size: &str) -> Option<Self> {
        let folder = desk.dir("small");
        let is_root = rustix::process::geteuid().is_root();
        let options = format!("size={size}");
        if !is_root || tool("mount", &["-t", "tmpfs", "-o", &options, "none", &folder]).code != Some(0) {
            cheetah_testing::skip("needs root and tmpfs");
            return None;
        }
        Some(Self { desk })
    }

    fn at(&self, name: &str) -> String {
        self.desk.arg(&format!("small/{name}"))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.desk.at("small")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        tool("umount", &[&self.desk.arg("small")]);
    }
}

#[test]
fn an_acquisition_looks_at_free_space_before_anything_is_written() {
    let desk = Desk::new();
    let Some(small) = Small::mount(&desk, "1m") else { return };
    let disk = desk.file("disk.raw", &noise(4 * MIB, 8));
    let key = desk.at("key");
    for name in ["out.raw", "out.E01"] {
        let ran = cheetah_signing(&key, &["acquire", &disk, &small.at(name), "--level", "none"]);
        ran.says(1, &["free some space", "--skip-space-check"]);
    }
    assert!(small.names().is_empty());
    // A file with that much less content on its disk is acquired.
    let sparse = desk.arg("sparse.raw");
    fs::File::create(&sparse).unwrap().set_len(64 * MIB).unwrap();
    cheetah_signing(&key, &["acquire", &sparse, &small.at("sparse.raw")]).ok();
}

#[test]
fn a_save_looks_at_free_space_before_anything_is_written() {
    let desk = Desk::new();
    let Some(small) = Small::mount(&desk, "1m") else { return };
    let node = Node::start("16MiB");
    let disk = desk.file("disk.raw", &noise(4 * MIB, 8));
    let drive = desk.drive("case", &[&node], &disk, &[]);
    for more in [&[][..], &["--partial"]] {
        let to = small.at("out.raw");
        let args = [&["save", &drive, &to][..], more].concat();
        cheetah(&args).says(1, &["4", "MiB", "free; nothing was written", "--skip-space-check"]);
        // What becomes full all the same leaves nothing, and says what to do next.
        cheetah(&[&args[..], &["--skip-space-check"]].concat()).says(1, &["the disk is full", "free some space"]);
        assert!(small.names().is_empty(), "{:?}", small.names());
    }
    // Zeros take no space.
    let sparse = desk.arg("sparse.raw");
    fs::File::create(&sparse).unwrap().set_len(4 * MIB).unwrap();
    let drive = desk.drive("sparse", &[&node], &sparse, &[]);
    cheetah(&["save", &drive, &small.at("sparse.raw"), "--skip-space-check"]).ok();
}

#[test]
fn a_drive_is_made_and_loaded_only_where_its_files_have_room() {
    let desk = Desk::new();
    let Some(small) = Small::mount(&desk, "12k") else { return };
    let node = Node::start("64MiB");
    let disk = desk.file("disk.raw", &noise(4 * MIB, 8));
    let passphrase = desk.file("passphrase", b"a passphrase\n");
    let from = ["--from", &disk];
    let cases: [&[&str]; 4] = [
        &["--size", "1MiB"],
        &from,
        &["--from", &disk, "--lazy"],
        &["--size", "8MiB", "--seal", "--passphrase-file", &passphrase],
    ];
    for more in cases {
        let drive = small.at("case.drive");
        let args = [&["create", &drive, "--nodes", node.address()][..], more].concat();
        cheetah(&args).says(1, &["nothing was written: free some space"]);
        assert!(small.names().is_empty(), "{more:?}: {:?}", small.names());
    }
    let drive = desk.drive("empty", &[&node], &disk, &[]);
    fs::copy(&drive, small.at("empty.drive")).unwrap();
    cheetah(&["load", &small.at("empty.drive"), &disk, "--force"]).says(1, &["nothing was written: free some space"]);
    assert_eq!(small.names(), ["empty.drive"]);
    cheetah(&["destroy", &drive]).ok();
    assert_eq!(node.stop()["verified_zero"], true);
}

#[test]
fn an_upload_begins_only_where_its_record_has_room() {
    let desk = Desk::new();
    let Some(small) = Small::mount(&desk, "32k") else { return };
    let node = Node::start("16MiB");
    let disk = desk.file("disk.raw", &noise(MIB, 8));
    let drive = desk.drive("case", &[&node], &disk, &[]);
    let mut command = program();
    for (name, value) in [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hidden"), ("AWS_REGION", "none")] {
        command.env(name, value);
    }
    // No store is asked: nothing listens there.
    command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").current_dir(Path::new(&small.at("")));
    command.args(["--json", "save", &drive, "s3://lab/copy.raw"]);
    run(command).says(1, &["nothing was written: free some space"]);
    assert!(small.names().is_empty(), "{:?}", small.names());
}

#[test]
fn a_set_of_known_files_that_does_not_fit_is_not_there_and_nothing_is_searched() {
    let desk = Desk::new();
    let Some(small) = Small::mount(&desk, "4k") else { return };
    // The keys of its blocks take twice the space.
    let known = desk.file("known.bin", &noise(MIB, 61));
    let args = ["search", &known, "--known", &known, "--save-known", &small.at("a.blocks"), "--out", &desk.arg("out")];
    cheetah(&args).ended_with(1);
    assert!(small.names().is_empty() && !desk.at("out").exists());
}
