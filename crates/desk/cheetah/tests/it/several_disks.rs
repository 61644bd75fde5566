//! Volumes that lie on several disks, acquired, loaded and compared.

use std::fs;

use cheetah_testing::raid::raid5;
use serde_json::Value;

use crate::support::node::list;
use crate::support::run::{Ran, program, run};
use crate::support::{Desk, MIB, Node, cheetah, need, noise, number, text};
use crate::unlock::luks;

/// A locked volume on an array of three disks.
struct Disks {
    desk: Desk,
    paths: [String; 3],
    keys: String,
    /// The beginning of the content of the volume: it reaches to the end of the array.
    content: Vec<u8>,
}

impl Disks {
    /// `None` if they cannot be made here.
    fn new() -> Option<Self> {
        if !need::programs(&["cryptsetup", "qemu-img", "prlimit"]) {
            return None;
        }
        let desk = Desk::new();
        let content = noise(12 * MIB, 51);
        let members = raid5("home", &fs::read(luks(&desk, &content, "password")).unwrap());
        let path = |name: &str, index: usize| desk.file(name, &members[index]);
        let paths = [path("one.raw", 0), path("two.raw", 1), path("three.raw", 2)];
        let keys = desk.file("keys.txt", b"wrong\npassword\n");
        Some(Self { desk, paths, keys, content })
    }

    /// The options that name the volume: the first disk, the others, and the keys.
    fn options(&self) -> [&str; 7] {
        let [first, second, third] = &self.paths;
        [first, "--with", second, "--with", third, "--unlock", &self.keys]
    }

    fn run(&self, verb: &str, more: &[&str]) -> Ran {
        cheetah(&[&[verb][..], &self.options(), more].concat())
    }

    /// Runs `work` while another disk of the same size has the name of one of them.
    fn with_another(&self, index: usize, work: impl FnOnce()) {
        let (path, aside) = (&self.paths[index], self.desk.at("aside.raw"));
        let bytes = fs::metadata(path).unwrap().len();
        fs::rename(path, &aside).unwrap();
        fs::write(path, noise(bytes, 60 + index as u64)).unwrap();
        work();
        fs::rename(&aside, path).unwrap();
    }
}

fn reports(ran: &Ran) -> Vec<Value> {
    let out = ran.out();
    let values = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values.filter(|value| value["event"] == "done").map(|value| value["report"].clone()).collect()
}

#[test]
fn the_content_of_a_volume_on_several_disks_is_acquired_and_each_disk_is_named() {
    let Some(disks) = Disks::new() else { return };
    let desk = &disks.desk;
    let (image, plain) = (desk.arg("one.E01"), desk.arg("plain.raw"));
    let ran = disks.run("acquire", &[&image, "--decrypted", &plain]).ok();
    let [whole, decrypted] = &reports(&ran)[..] else { panic!("{}", ran.out()) };
    assert!(fs::read(&plain).unwrap().starts_with(&disks.content));
    assert_eq!(number(whole, "size_bytes"), fs::metadata(&disks.paths[0]).unwrap().len());
    let named = decrypted["decrypted"]["disks"].as_array().unwrap();
    let locations: Vec<_> = named.iter().map(|disk| text(disk, "location")).collect();
    // The first one is read from the image that was just made of it.
    assert_eq!(locations, [image.as_str(), &disks.paths[1], &disks.paths[2]]);
    for disk in named {
        assert_eq!(number(disk, "size_bytes"), fs::metadata(&disks.paths[0]).unwrap().len());
    }
    assert_eq!(named[0]["hashes"], whole["hashes"]);
    let (printed, log) = ("plain.raw.report.txt", "plain.raw.custody");
    for file in [printed, log] {
        let written = fs::read_to_string(desk.at(file)).unwrap();
        assert!(locations.iter().all(|location| written.contains(location)), "{file}: {written}");
    }
    cheetah(&["verify", &plain]).ok();

    // The notes of an E01 name them, too.
    let packed = desk.arg("plain.E01");
    let ran = disks.run("acquire", &["--decrypted", &packed]).ok();
    let [report] = &reports(&ran)[..] else { panic!("{}", ran.out()) };
    let notes = text(&report["case"], "notes");
    assert!(disks.paths.iter().all(|path| notes.contains(path.as_str())), "{notes}");
    assert_eq!(report["hashes"], decrypted["hashes"]);
}

#[test]
fn without_one_of_the_disks_the_volume_is_acquired_of_a_degraded_array_and_without_two_it_is_not() {
    let Some(disks) = Disks::new() else { return };
    let [first, second, _] = &disks.paths;
    let plain = disks.desk.arg("plain.raw");
    let args = ["acquire", first, "--with", second, "--unlock", &disks.keys, "--decrypted", &plain];
    cheetah(&args).ok();
    assert!(fs::read(&plain).unwrap().starts_with(&disks.content));
    let other = disks.desk.arg("other.raw");
    cheetah(&["acquire", first, "--unlock", &disks.keys, "--decrypted", &other]).ended_with(1);
    assert!(!disks.desk.at("other.raw").exists());
}

#[test]
fn a_disk_that_was_swapped_between_two_runs_is_refused_whichever_it_is() {
    let Some(disks) = Disks::new() else { return };
    let plain = disks.desk.arg("plain.raw");
    let more = ["--decrypted", &plain, "--checkpoint", "1MiB"];
    let mut command = std::process::Command::new(need::find("prlimit").unwrap());
    let usual = program();
    command.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.arg("--fsize=4194304").arg(usual.get_program()).arg("acquire").args(disks.options()).args(more);
    assert_ne!(run(command).code, Some(0));
    assert!(disks.desk.at("plain.raw.acquire").exists() && !disks.desk.at("plain.raw").exists());

    for (index, path) in disks.paths.iter().enumerate() {
        disks.with_another(index, || {
            disks.run("acquire", &more).says(3, &[path]);
            // Nobody can vouch for another content.
            disks.run("acquire", &[&more[..], &["--same-source"]].concat()).says(3, &[path]);
        });
    }
    let log = fs::read_to_string(disks.desk.at("plain.raw.custody")).unwrap();
    assert!(log.contains("\"source_changed\""), "{log}");
    // One disk fewer is another request.
    let [first, second, _] = &disks.paths;
    let fewer = ["acquire", first, "--with", second, "--unlock", &disks.keys];
    cheetah(&[&fewer[..], &more].concat()).ended_with(2);

    let ran = disks.run("acquire", &more).ok();
    let [report] = &reports(&ran)[..] else { panic!("{}", ran.out()) };
    assert!(number(report, "interruptions") > 0);
    assert!(fs::read(&plain).unwrap().starts_with(&disks.content));
    cheetah(&["verify", &plain]).ok();
}

#[test]
fn a_disk_is_never_written_nor_taken_twice_and_others_without_a_volume_are_a_misuse() {
    let Some(disks) = Disks::new() else { return };
    let [first, second, third] = &disks.paths;
    for disk in [first, second, third] {
        disks.run("acquire", &["--decrypted", disk, "--force"]).says(2, &["is the source itself"]);
    }
    let plain = disks.desk.arg("plain.raw");
    disks.run("acquire", &["--with", first, "--decrypted", &plain]).says(2, &["one.raw", "twice"]);
    disks.run("acquire", &["--with", second, "--decrypted", &plain]).says(2, &["two.raw", "twice"]);
    cheetah(&["acquire", first, &plain, "--with", second]).says(2, &["--with", "--volume"]);
    assert!(!disks.desk.at("plain.raw").exists() && !disks.desk.at("plain.raw.custody").exists());
}

#[test]
fn a_drive_is_made_of_a_volume_on_several_disks() {
    let Some(disks) = Disks::new() else { return };
    let node = Node::start("64MiB");
    let (drive, nodes) = (disks.desk.arg("home.drive"), list(&[&node]));
    let [first, second, third] = &disks.paths;
    let create = |more: &[&str]| {
        let base = ["create", &drive, "--nodes", &nodes, "--from", first];
        cheetah(&[&base[..], more].concat())
    };
    create(&["--with", second]).says(2, &["--with"]);
    create(&["--with", second, "--with", third, "--unlock", &disks.keys]).ok();
    let log = fs::read_to_string(disks.desk.at("home.drive.custody")).unwrap();
    assert!(disks.paths.iter().all(|path| log.contains(path.as_str())), "{log}");
    let saved = disks.desk.arg("saved.raw");
    cheetah(&["save", &drive, &saved]).ok();
    assert!(fs::read(&saved).unwrap().starts_with(&disks.content));
    cheetah(&["destroy", &drive]).ok();
}

/// What `verify` says of an image with this content.
fn verified(disks: &Disks, image: &str) -> (Option<i32>, Value) {
    let ran = disks.run("verify", &["--decrypted", image]);
    let out = ran.out();
    let first = out.lines().next().unwrap_or_else(|| panic!("{}", ran.stderr));
    (ran.code, serde_json::from_str(first).unwrap())
}

#[test]
fn an_image_of_a_volume_is_compared_with_it_byte_for_byte() {
    let Some(disks) = Disks::new() else { return };
    let desk = &disks.desk;
    let (plain, packed) = (desk.arg("plain.raw"), desk.arg("plain.E01"));
    for image in [&plain, &packed] {
        disks.run("acquire", &["--decrypted", image]).ok();
        let (code, answer) = verified(&disks, image);
        assert_eq!((code, &answer["ok"], number(&answer, "differing_bytes")), (Some(0), &Value::Bool(true), 0));
        assert_eq!(answer["first_difference"], Value::Null);
        assert_eq!(answer["disks"].as_array().unwrap().len(), 3);
        assert_eq!(number(&answer, "compared_bytes"), fs::metadata(&plain).unwrap().len());
    }
    let content = fs::read(&plain).unwrap();
    let size = content.len() as u64;

    let mut other = content.clone();
    for at in [5 * MIB, 5 * MIB + 1, 9 * MIB] {
        other[at as usize] ^= 1;
    }
    let (code, answer) = verified(&disks, &desk.file("other.raw", &other));
    assert_eq!((code, number(&answer, "first_difference")), (Some(3), 5 * MIB));
    assert_eq!((number(&answer, "differing_bytes"), number(&answer, "differing_ranges")), (3, 2));
    assert_eq!(answer["differing"][0], serde_json::json!({"offset": 5 * MIB, "len": 2}));

    let (code, answer) = verified(&disks, &desk.file("cut.raw", &content[..(size - 512) as usize]));
    assert_eq!((code, number(&answer, "first_difference")), (Some(3), size - 512));
    assert_eq!((number(&answer, "differing_bytes"), &answer["ok"]), (0, &Value::Bool(false)));
    assert_eq!((number(&answer, "image_size_bytes"), number(&answer, "volume_size_bytes")), (size - 512, size));

    // What is on the disk is not the content.
    let (code, answer) = verified(&disks, &disks.paths[0]);
    assert_eq!((code, &answer["ok"]), (Some(3), &Value::Bool(false)));
}

#[test]
fn a_volume_that_no_key_opens_or_that_is_not_named_is_compared_with_nothing() {
    let Some(disks) = Disks::new() else { return };
    let [first, second, third] = &disks.paths;
    let image = disks.desk.file("image.raw", &disks.content);
    let wrong = disks.desk.file("wrong.txt", b"wrong\n");
    let with = ["verify", first, "--with", second, "--with", third];
    let verify = |more: &[&str]| cheetah(&[&with[..], more].concat());
    verify(&["--unlock", &wrong, "--decrypted", &image]).says(1, &["none of the keys opens it"]);
    verify(&["--unlock", &disks.keys]).says(2, &["--decrypted"]);
    verify(&["--decrypted", &image]).ended_with(2);
    verify(&["--unlock", &disks.keys, "--decrypted", &disks.desk.arg("none.raw")]).says(1, &["none.raw"]);
}
