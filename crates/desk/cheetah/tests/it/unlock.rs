//! Encrypted volumes that keys open, mounted and exported.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::support::bytes::partitioned;
use crate::support::{Desk, MIB, Mounted, Service, need, text, tool};

/// The content of both volumes of LUKS, as libluksde and dissect.fve decrypt it.
const CONTENT: &str = "9a62d6c7b90b4ff89818c67f5b5fb93f6b11d80a26b64cb04d4c33309c63025d";

fn unpacked(packed: PathBuf) -> Vec<u8> {
    tool("gzip", &["-dc", packed.to_str().unwrap()]).ok().stdout
}

/// A disk with a volume of LUKS in each of its two partitions; `None` if one is missing.
fn locked_disk(desk: &Desk) -> Option<String> {
    let mut disk = partitioned(2 * MIB);
    for (name, at) in [("luks1-sha1", MIB), ("luks2-aes-cbc-essiv", 3 * MIB)] {
        let volume = unpacked(need::evidence(&format!("locked/{name}.bin.gz"))?);
        disk[at as usize..][..volume.len()].copy_from_slice(&volume);
    }
    Some(desk.file("disk.raw", &disk))
}

fn sha256(path: &std::path::Path) -> String {
    tool("sha256sum", &[path.to_str().unwrap()]).ok().out()[..64].to_owned()
}

#[test]
fn opened_partitions_are_mounted_beside_what_is_on_the_disk() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let Some(disk) = locked_disk(&desk) else { return };
    let keys = desk.file("keys.txt", b"wrong\npassword\n");
    let mount = Mounted::new(&disk, &desk.dir("mnt"), &["--unlock", &keys]);
    let mut names: Vec<_> =
        fs::read_dir(&mount.dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["disk.p1.raw", "disk.p1.unlocked.raw", "disk.p2.raw", "disk.p2.unlocked.raw", "disk.raw"]);
    assert!(mount.read() == fs::read(&disk).unwrap());
    let second = fs::read(mount.dir.join("disk.p2.unlocked.raw")).unwrap();
    let start = desk.file("start.raw", &second[..2048]);
    assert_eq!(sha256(start.as_ref()), CONTENT);
    let words = mount.service().stderr();
    for part in ["partition 1, LUKS, encrypted", "partition 2, LUKS, encrypted", "was opened with key slot 0"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(!words.contains("password"), "{words}");
    mount.unmount();
}

#[test]
fn a_wrong_key_leaves_volumes_locked_and_named() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let Some(disk) = locked_disk(&desk) else { return };
    let keys = desk.file("keys.txt", b"wrong\n");
    let mount = Mounted::new(&disk, &desk.dir("mnt"), &["--unlock", &keys]);
    assert!(!mount.dir.join("disk.p1.unlocked.raw").exists());
    let words = mount.service().stderr();
    assert_eq!(words.matches("stays locked: none of the keys opens it").count(), 2, "{words}");
    mount.unmount();
}

#[test]
fn an_opened_volume_of_bitlocker_is_a_further_export() {
    let Some(packed) = need::evidence("locked/recovery_password.bin.gz") else { return };
    if !need::programs(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    let desk = Desk::new();
    let volume = desk.file("laptop.raw", &unpacked(packed));
    let keys = desk.file("keys.txt", b"284867-596541-514998-422114-660297-261613-215424-199408\n");
    let args = ["export", &volume, "--listen", "127.0.0.1:0", "--unlock", &keys];
    let service = Service::start(&args);
    let uri = text(&service.ready, "uri").to_owned();
    let list = tool("nbdinfo", &["--list", "--json", &uri]).ok().out();
    assert!(list.contains("\"laptop\"") && list.contains("\"laptop.unlocked\""), "{list}");
    let (raw, opened) = (desk.at("raw"), desk.at("opened"));
    tool("nbdcopy", &[&uri, raw.to_str().unwrap()]).ok();
    assert!(fs::read(&raw).unwrap() == fs::read(&volume).unwrap());
    tool("nbdcopy", &[&format!("{uri}.unlocked"), opened.to_str().unwrap()]).ok();
    // By libbde and dissect.fve.
    assert_eq!(sha256(&opened), "f97cc63acafc01b818a72240219fe8212ed249995c017c3d97334dde0fc59c65");
    assert_eq!(fs::read(&opened).unwrap()[3..11], *b"NTFS    ");
    service.stop(Signal::INT);
}
