//! Encrypted volumes that keys open, mounted and exported.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::bytes::partitioned;
use crate::support::node::list;
use crate::support::run::{Ran, program, run};
use crate::support::{Desk, MIB, Mounted, Node, Service, cheetah, need, noise, number, text, tool};

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

fn sha256(path: &Path) -> String {
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

/// A disk of OS X 10.11 with a volume of Core Storage, whose content is what libfvde decrypts.
#[test]
fn an_opened_volume_of_filevault_has_files_that_the_sleuth_kit_lists() {
    let Some(disk) = need::evidence("locked/fvdetest.qcow2") else { return };
    if !need::programs(&["nbdcopy", "fls"]) {
        return;
    }
    let desk = Desk::new();
    let keys = desk.file("keys.txt", b"wrong\nfvde-TEST\n");
    let args = ["export", disk.to_str().unwrap(), "--listen", "127.0.0.1:0", "--unlock", &keys];
    let service = Service::start(&args);
    let uri = text(&service.ready, "uri").to_owned();
    let opened = desk.at("opened");
    tool("nbdcopy", &[&format!("{uri}.p1.unlocked"), opened.to_str().unwrap()]).ok();
    assert_eq!(sha256(&opened), "09434852cc79d0fa8dd5b373a5eb676fd5877440da4cf3020f43f22d1fbeceae");
    let files = tool("fls", &["-r", opened.to_str().unwrap()]).ok().out();
    assert!(files.contains("passwords.txt") && files.contains("another_file"), "{files}");
    let words = service.stderr();
    let user = "4D67658C-217B-481D-AFB5-9036B60B246C";
    for part in [
        "partition 1, Apple Core Storage (FileVault 2) (420AF122-CF73-4A30-8B0A-A593A65FBEF5, \"TestLV\", AES-XTS 128; opened by: ",
        &format!("opened by: password ({user}))"),
        &format!("was opened with password {user}"),
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    service.stop(Signal::INT);
}

/// The keys of a disk, of which one fits; and what no output may have.
const KEYS: &[u8] = b"wrong\npassword\n";

/// The bytes before the content of a volume that cryptsetup makes.
const LUKS_HEADER: u64 = 2 * MIB;

/// A disk with a volume of LUKS in each of its two partitions, and the content of the second; `None` if they cannot be made.
fn quickly_locked_disk(desk: &Desk) -> Option<(String, Vec<u8>)> {
    if !need::programs(&["cryptsetup", "qemu-img"]) {
        return None;
    }
    let content = noise(MIB, 8);
    let volume = fs::read(luks(desk, &content, "password")).unwrap();
    let mut disk = partitioned(4 * MIB);
    for at in [MIB, 5 * MIB] {
        disk[at as usize..][..volume.len()].copy_from_slice(&volume);
    }
    Some((desk.file("disk.raw", &disk), content))
}

/// The reports in an output, in order.
fn reports(ran: &Ran) -> Vec<Value> {
    let lines = ran.out();
    let values = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values.filter(|value| value["event"] == "done").map(|value| value["report"].clone()).collect()
}

/// The details of the records of an event in a custody log.
fn recorded(log: &Path, event: &str) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.filter(|record| record["event"] == event).map(|record| record["details"].clone()).collect()
}

/// No file of a folder has the key.
fn tells_no_key(desk: &Desk) {
    for entry in fs::read_dir(desk.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_file() && !name.starts_with("keys") {
            let content = fs::read(&path).unwrap();
            assert!(memchr::memmem::find(&content, b"password").is_none(), "{name}");
        }
    }
}

#[test]
fn an_opened_volume_is_acquired_besides_what_is_on_the_disk() {
    let desk = Desk::new();
    let Some((disk, expected)) = quickly_locked_disk(&desk) else { return };
    let keys = desk.file("keys.txt", KEYS);
    let (image, plain) = (desk.arg("case.E01"), desk.arg("plain.raw"));
    let args = ["acquire", &disk, &image, "--unlock", &keys, "--decrypted", &plain, "--partition", "2"];
    let ran = cheetah(&args).ok();
    let [whole, decrypted] = &reports(&ran)[..] else { panic!("{}", ran.out()) };

    // What is on the disk, as ever; and the content of the volume.
    assert_eq!(number(whole, "size_bytes"), 9 * MIB);
    assert_eq!(text(&whole["hashes"], "sha256"), sha256(disk.as_ref()));
    // The volume reaches to the end of its partition.
    assert!(fs::read(&plain).unwrap()[..expected.len()] == expected);
    assert_eq!(text(&decrypted["hashes"], "sha256"), sha256(plain.as_ref()));

    // Each says which it is, what opened it, and the second one of what it was made.
    let opened = &whole["unlocked"]["opened"];
    assert_eq!(opened.as_array().unwrap().len(), 2);
    assert_eq!(text(&opened[1], "protector"), "key slot 0");
    assert_eq!(decrypted["decrypted"]["volume"], opened[1]);
    assert_eq!(decrypted["decrypted"]["hashes"], whole["hashes"]);
    assert_eq!(text(&decrypted["source"], "kind"), "volume");
    assert_eq!(recorded(&desk.at("case.E01.custody"), "unlocked"), [whole["unlocked"].clone()]);
    assert_eq!(recorded(&desk.at("plain.raw.custody"), "decrypted"), [decrypted["decrypted"].clone()]);
    let report = |name: &str| fs::read_to_string(desk.at(&format!("{name}.report.txt"))).unwrap();
    assert!(report("case.E01").contains("what is on the disk"), "{}", report("case.E01"));
    for part in ["DECRYPTED", text(&whole["hashes"], "sha256"), text(&decrypted["hashes"], "sha256"), "key slot 0"] {
        assert!(report("plain.raw").contains(part), "{part}: {}", report("plain.raw"));
    }
    cheetah(&["verify", &image]).ok();
    cheetah(&["verify", &plain]).ok();
    tells_no_key(&desk);
    assert!(!ran.out().contains("password") && !ran.stderr.contains("password"), "{}", ran.stderr);

    // An image that was made before.
    let later = desk.arg("later.E01");
    let ran = cheetah(&["acquire", &image, "--unlock", &keys, "--decrypted", &later, "--partition", "2"]).ok();
    let [decrypted] = &reports(&ran)[..] else { panic!("{}", ran.out()) };
    assert_eq!(text(&decrypted["hashes"], "sha256"), sha256(plain.as_ref()));
    assert_eq!(decrypted["decrypted"]["hashes"], whole["hashes"]);
}

#[test]
fn nothing_is_acquired_if_no_key_opens_the_volume_or_it_is_not_clear_which_one() {
    let desk = Desk::new();
    let Some((disk, _)) = quickly_locked_disk(&desk) else { return };
    let (keys, wrong) = (desk.file("keys.txt", KEYS), desk.file("keys-wrong.txt", b"wrong\n"));
    let (image, plain) = (desk.arg("case.raw"), desk.arg("plain.raw"));
    let acquire = |more: &[&str]| cheetah(&[&["acquire", &disk, &image, "--unlock"], more].concat());
    acquire(&[&wrong, "--decrypted", &plain]).says(1, &["partition 1, LUKS", "none of the keys opens it"]);
    acquire(&[&keys, "--decrypted", &plain]).says(2, &["several volumes", "--partition N"]);
    acquire(&[&keys, "--decrypted", &plain, "--partition", "7"]).says(2, &["no key opened partition 7"]);
    acquire(&[&keys]).says(2, &["--decrypted FILE"]);
    acquire(&[&keys, "--decrypted", &image, "--partition", "1"]).says(2, &["name each destination once"]);
    cheetah(&["acquire", &disk, &image, "--decrypted", &plain]).ended_with(2);
    cheetah(&["acquire", &disk, "--unlock", &keys, "--decrypted", &disk, "--partition", "1", "--force"])
        .says(2, &["is the source itself"]);
    for entry in fs::read_dir(desk.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with("case") && !name.starts_with("plain"), "{name}");
    }
}

#[test]
fn the_same_command_resumes_the_image_of_the_volume() {
    if !need::programs(&["prlimit", "cryptsetup"]) {
        return;
    }
    let desk = Desk::new();
    // A volume over zeros, of which an E01 makes little; its content is noise.
    let (disk, keys) = (desk.file("disk.raw", &vec![0; 12 << 20]), desk.file("keys.txt", b"password"));
    let format = ["luksFormat", "--batch-mode", "--type", "luks1", "--pbkdf-force-iterations", "1000", "--key-file"];
    tool("cryptsetup", &[&format[..], &[&keys, &disk]].concat()).ok();
    let (image, plain) = (desk.arg("case.E01"), desk.arg("plain.raw"));
    let args = ["acquire", &disk, &image, "--unlock", &keys, "--decrypted", &plain];
    // There is room for the image of the disk, and not for that of the volume.
    let mut command = std::process::Command::new(need::find("prlimit").unwrap());
    let cheetah_as_usual = program();
    command.envs(cheetah_as_usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.arg("--fsize=4194304").arg(cheetah_as_usual.get_program()).args(args);
    assert_ne!(run(command).code, Some(0));
    assert!(desk.at("case.E01").exists() && desk.at("plain.raw.acquire").exists());
    let made = fs::metadata(desk.at("case.E01")).unwrap().modified().unwrap();
    let ran = cheetah(&args).ok();
    let [decrypted] = &reports(&ran)[..] else { panic!("{}", ran.out()) };
    assert_eq!(text(&decrypted["decrypted"]["hashes"], "sha256"), sha256(disk.as_ref()));
    assert_eq!(text(&decrypted["hashes"], "sha256"), sha256(plain.as_ref()));
    assert_eq!(fs::metadata(desk.at("case.E01")).unwrap().modified().unwrap(), made);
}

#[test]
fn a_drive_is_made_of_an_opened_volume() {
    let desk = Desk::new();
    let Some((disk, content)) = quickly_locked_disk(&desk) else { return };
    let (keys, wrong) = (desk.file("keys.txt", KEYS), desk.file("keys-wrong.txt", b"wrong\n"));
    let node = Node::start("16MiB");
    let drive = desk.arg("plain.drive");
    let nodes = list(&[&node]);
    let create =
        |more: &[&str]| cheetah(&[&["create", &drive, "--nodes", &nodes, "--from", &disk, "--unlock"], more].concat());
    create(&[&wrong]).says(1, &["none of the keys opens it"]);
    create(&[&keys, "--partition", "2", "--lazy"]).says(2, &["--lazy"]);
    assert!(!desk.at("plain.drive").exists());
    create(&[&keys, "--partition", "2"]).ok();
    assert!(fs::read_to_string(&drive).unwrap().contains("partition 2, decrypted"));
    let [decrypted] = &recorded(&desk.at("plain.drive.custody"), "decrypted")[..] else { panic!() };
    assert_eq!(text(&decrypted["volume"], "protector"), "key slot 0");
    let saved = desk.arg("saved.raw");
    cheetah(&["save", &drive, &saved]).ok();
    assert!(fs::read(&saved).unwrap()[..content.len()] == content);
    cheetah(&["verify", &drive]).ok();
    tells_no_key(&desk);
    cheetah(&["destroy", &drive]).ok();
}

/// A volume of LUKS with this content. cryptsetup makes the header, because qemu-img first measures how fast it derives a
/// key, and gives up where the kernel has not yet counted any time of a process that has just begun.
pub fn luks(desk: &Desk, content: &[u8], key: &str) -> String {
    let (plain, key_file) = (desk.file("content.raw", content), desk.file("keys.luks", key.as_bytes()));
    let locked = desk.file("disk.raw", &vec![0; LUKS_HEADER as usize + content.len()]);
    let format = ["luksFormat", "--batch-mode", "--type", "luks1", "--pbkdf-force-iterations", "1000", "--key-file"];
    tool("cryptsetup", &[&format[..], &[&key_file, &locked]].concat()).ok();
    let secret = format!("secret,id=one,file={key_file}");
    let target = format!("driver=luks,key-secret=one,file.filename={locked}");
    let options = ["convert", "-n", "-f", "raw", "--object", &secret, "--target-image-opts", &plain, &target];
    tool("qemu-img", &options).ok();
    locked
}

/// The starts of the sectors that are not of one byte only.
fn sectors(content: &[u8]) -> HashSet<&[u8]> {
    content.chunks(512).map(|sector| &sector[..32]).filter(|start| start.iter().any(|byte| *byte != start[0])).collect()
}

#[test]
fn a_cache_on_disk_holds_only_what_is_encrypted() {
    if !need::fuse() || !need::programs(&["cryptsetup", "qemu-img"]) {
        return;
    }
    let desk = Desk::new();
    let content = noise(4 * MIB, 7);
    let disk = luks(&desk, &content, "password");
    let keys = desk.file("keys.txt", KEYS);
    let far = Service::start(&["export", &disk, "--unix", &desk.arg("socket")]);
    let cache = desk.dir("cache");
    let mount = Mounted::new(text(&far.ready, "uri"), &desk.dir("mnt"), &["--unlock", &keys, "--cache", &cache]);
    let opened = fs::read_dir(&mount.dir).unwrap().map(|entry| entry.unwrap().path());
    let opened: Vec<_> = opened.filter(|path| path.to_str().unwrap().ends_with(".unlocked.raw")).collect();
    assert!(fs::read(&opened[0]).unwrap() == content);
    // The cache is a file without a name.
    let descriptors = fs::read_dir(format!("/proc/{}/fd", mount.service().pid())).unwrap();
    let paths = descriptors.map(|entry| entry.unwrap().path());
    let is_cache = |path: &PathBuf| fs::read_link(path).is_ok_and(|target| target.starts_with(&cache));
    let cached: Vec<_> = paths.filter(is_cache).map(|path| fs::read(path).unwrap()).collect();
    let [cached] = &cached[..] else { panic!("{} files in the cache", cached.len()) };
    let (held, sealed) = (sectors(cached), fs::read(&disk).unwrap());
    let sealed = sectors(&sealed);
    assert!(sealed.iter().filter(|start| held.contains(*start)).count() > sealed.len() / 2);
    assert!(sectors(&content).iter().all(|start| !held.contains(start)));
    mount.unmount();
    far.stop(Signal::INT);
}
