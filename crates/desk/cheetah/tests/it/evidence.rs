//! Real images, made by others. They are not part of the project; CHEETAH_EVIDENCE says where they are.

use std::fs;

use crate::support::{Desk, Mounted, cheetah, need, text, three, tool};

/// Loads `image`, and compares the output of the tools on it and on the mounted drive.
fn load_and_compare(desk: &Desk, image: &str, read_as: &str, listed: Option<usize>) {
    let nodes = three("24MiB");
    let drive = desk.drive("evidence", &nodes.each_ref(), &format!("{read_as}{image}"), &[]);
    let verified = cheetah(&["verify", &drive]).ok().json();
    let sum = tool("md5sum", &[image]).ok().out()[..32].to_owned();
    assert_eq!(text(&verified["hashes"], "md5"), sum);
    if need::fuse() {
        let mount = Mounted::new(&drive, &desk.dir("mnt"), &[]);
        assert!(mount.read() == fs::read(image).unwrap());
        if let Some(lines) = listed.filter(|_| need::programs(&["fls"])) {
            let listing = tool("fls", &["-r", mount.file.to_str().unwrap()]).ok().out();
            assert_eq!(listing.lines().count(), lines);
        }
        mount.unmount();
    }
}

#[test]
fn a_packed_ntfs_volume_is_loaded_and_listed() {
    let Some(packed) = need::evidence("ntfs.bin.gz") else { return };
    let desk = Desk::new();
    let image = desk.file("ntfs.raw", &tool("gzip", &["-dc", packed.to_str().unwrap()]).ok().stdout);
    assert_eq!(fs::metadata(&image).unwrap().len(), 10_420_736);
    load_and_compare(&desk, &image, "", Some(2299));
}

#[test]
fn a_windows_volume_unpacked_by_qemu_is_loaded_and_listed() {
    let Some(packed) = need::evidence("windows_volume.qcow2") else { return };
    if !need::programs(&["qemu-img"]) {
        return;
    }
    let desk = Desk::new();
    let image = desk.arg("windows.raw");
    tool("qemu-img", &["convert", "-O", "raw", packed.to_str().unwrap(), &image]).ok();
    assert_eq!(fs::metadata(&image).unwrap().len(), 35_913_728);
    load_and_compare(&desk, &image, "", Some(32));
}

#[test]
fn containers_are_loaded_as_raw_images() {
    for name in [
        "windows_volume.qcow2",
        "Base-Linear.aff4",
        "Base-Linear-ReadError.aff4",
        "nps-2010-emails.E01",
        "ntfs_sample.E01",
    ] {
        let Some(path) = need::evidence(name) else { continue };
        load_and_compare(&Desk::new(), path.to_str().unwrap(), "raw:", None);
    }
}
