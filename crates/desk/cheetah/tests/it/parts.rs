//! A part is never taken for the whole: parts of images, images that were cut short, and files under the names of parts that
//! are none.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::time::Duration;

use crate::support::run::{cheetah_plain, program};
use crate::support::{Desk, MIB, Mounted, Node, Service, cheetah, need, noise, text, tool, until};

/// Cuts a file into parts with these names, in the desk's folder.
fn parts(desk: &Desk, content: &[u8], names: &[&str]) -> String {
    for (name, part) in names.iter().zip(content.chunks(content.len().div_ceil(names.len()))) {
        desk.file(name, part);
    }
    desk.arg(names[0])
}

#[test]
fn a_set_with_names_of_any_program_is_acquired_whole_and_each_part_is_in_report_and_log_with_its_hash() {
    let content = noise(MIB, 3);
    for names in [
        ["disk.dd.00", "disk.dd.01", "disk.dd.02"],
        ["disk.dd.01", "disk.dd.02", "disk.dd.03"],
        ["xaa", "xab", "xac"],
        ["disk.a", "disk.b", "disk.c"],
    ] {
        let desk = Desk::new();
        let (first, copy) = (parts(&desk, &content, &names), desk.arg("copy.raw"));
        let report = cheetah(&["acquire", &first, &copy]).ok().json()["report"].clone();
        assert!(fs::read(&copy).unwrap() == content, "{names:?}");
        let shown = fs::read_to_string(format!("{copy}.report.txt")).unwrap();
        let log = fs::read_to_string(format!("{copy}.custody")).unwrap();
        for (index, name) in names.iter().enumerate() {
            let sha256 = tool("sha256sum", &[&desk.arg(name)]).ok().out()[..64].to_owned();
            assert_eq!(text(&report["files"][index], "sha256"), sha256);
            for said in [&shown, &log] {
                assert!(said.contains(&sha256) && said.contains(name), "{name}: {said}");
            }
        }
        cheetah(&["acquire", &desk.arg(names[1]), &desk.arg("later.raw")]).says(2, &[names[0]]);
        fs::remove_file(desk.at(names[1])).unwrap();
        cheetah(&["acquire", &first, &desk.arg("gap.raw")]).says(3, &[names[1], "missing"]);
    }
}

#[test]
fn a_set_that_may_be_one_is_refused_and_raw_reads_one_file() {
    let content = noise(MIB, 4);
    for names in [["disk_001.dd", "disk_002.dd"], ["part1", "part2"], ["disk-1of2.raw", "disk-2of2.raw"]] {
        let desk = Desk::new();
        let first = parts(&desk, &content, &names);
        cheetah(&["acquire", &first, &desk.arg("copy.img")]).says(2, &[names[1], "raw:"]);
        cheetah(&["acquire", &format!("raw:{first}"), &desk.arg("copy.img")]).ok();
        assert!(fs::read(desk.at("copy.img")).unwrap() == content[..content.len() / 2]);
    }
}

#[test]
fn a_table_or_file_system_that_reaches_beyond_the_end_is_said_by_every_command_and_recorded() {
    let desk = Desk::new();
    // An MBR with a partition of 2 MiB at 1 MiB, of which half is there.
    let mut disk = vec![0; 2 * MIB as usize];
    disk[450] = 0x83;
    disk[454..462].copy_from_slice(&[2048u32, 4096].map(u32::to_le_bytes).concat());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let (image, copy) = (desk.file("cut.raw", &disk), desk.arg("copy.raw"));
    let words = ["partition 1 of the MBR", "beyond the end"];
    let acquired = cheetah_plain(&["acquire", &image, &copy]).ok();
    let (report, log) = (format!("{copy}.report.txt"), format!("{copy}.custody"));
    for said in [acquired.stderr.clone(), fs::read_to_string(report).unwrap(), fs::read_to_string(&log).unwrap()] {
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    // Behind a link it is looked at while it is read.
    let agent = Service::start(&["serve", &image, "--listen", "127.0.0.1:0"]);
    let far = desk.arg("far.raw");
    let acquired = cheetah_plain(&["acquire", text(&agent.ready, "uri"), &far]).ok();
    let (report, record) = (format!("{far}.report.txt"), format!("{far}.custody"));
    for said in [acquired.stderr.clone(), fs::read_to_string(report).unwrap(), fs::read_to_string(record).unwrap()] {
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    let verified = cheetah_plain(&["verify", &copy]).ok();
    let out = verified.out().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.iter().all(|word| out.contains(word)), "{out}");
    assert_eq!(fs::read_to_string(&log).unwrap().matches(words[1]).count(), 2, "one record each");
    let node = Node::start("16MiB");
    let drive = desk.arg("case.drive");
    let made = cheetah_plain(&["create", &drive, "--nodes", node.address(), "--from", &image]).ok();
    let said = [
        made.stderr,
        fs::read_to_string(format!("{drive}.custody")).unwrap(),
        cheetah_plain(&["load", &drive, &image, "--force"]).ok().stderr,
        cheetah_plain(&["verify", &drive]).ok().out(),
        cheetah_plain(&["save", &drive, &desk.arg("saved.raw")]).ok().stderr,
    ];
    for said in said.iter().map(|said| said.split_whitespace().collect::<Vec<_>>().join(" ")) {
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    if need::fuse() {
        let lazy = desk.arg("lazy.drive");
        cheetah_plain(&["create", &lazy, "--nodes", node.address(), "--from", &image, "--lazy"]).ok();
        let mounted = Mounted::new(&lazy, &desk.dir("lazy"), &[]);
        until("a look at the drive that fills", || {
            let said = mounted.service().stderr();
            ["IN DOUBT"].iter().chain(&words).all(|word| said.contains(word))
        });
        mounted.unmount();
    }
    let whole = desk.file("whole.raw", &[&disk[..], &vec![0; MIB as usize]].concat());
    let said = cheetah_plain(&["acquire", &whole, &desk.arg("copy.img")]).ok();
    assert!(!said.stderr.contains("beyond the end"), "{}", said.stderr);
    if need::fuse() {
        let mounted = Mounted::new(&image, &desk.dir("mnt"), &[]);
        let said = mounted.service().stderr();
        assert!(["IN DOUBT"].iter().chain(&words).all(|word| said.contains(word)), "{said}");
        mounted.unmount();
    }
}

#[test]
fn a_format_that_is_known_and_not_read_is_named_by_every_command() {
    let desk = Desk::new();
    // Swap at 1 MiB and a physical volume at 2 MiB.
    let mut disk = vec![0; 4 * MIB as usize];
    for (entry, kind, first) in [(446, 0x82, 2048u32), (462, 0x8e, 4096)] {
        disk[entry + 4] = kind;
        disk[entry + 8..entry + 16].copy_from_slice(&[first, 2048].map(u32::to_le_bytes).concat());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[MIB as usize + 0xff6..][..10].copy_from_slice(b"SWAPSPACE2");
    disk[2 * MIB as usize + 0x218..][..8].copy_from_slice(b"LVM2 001");
    let image = desk.file("disk.raw", &disk);
    let words = ["partition 1 holds Linux swap", "partition 2 holds LVM2 physical volume"];
    let export = Service::start(&["export", &image, "--unix", &desk.arg("socket")]);
    let mut said = vec![export.stderr()];
    if need::fuse() {
        let mounted = Mounted::new(&image, &desk.dir("mnt"), &[]);
        said.push(mounted.service().stderr());
        assert!(said[1].contains("shown as p2"), "{}", said[1]);
        mounted.unmount();
    }
    for said in said {
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
}

#[test]
fn a_link_a_pipe_and_a_socket_are_no_part_of_any_image() {
    let desk = Desk::new();
    let secret = desk.file("secret", &noise(MIB / 2, 5));
    let names = ["disk.001", "disk.002"];
    let first = parts(&desk, &noise(MIB, 6), &names);
    let second = desk.at(names[1]);
    fs::remove_file(&second).unwrap();
    symlink(&secret, &second).unwrap();
    cheetah(&["acquire", &first, &desk.arg("copy.raw")]).says(2, &["disk.002", "symbolic link"]);
    assert!(!desk.at("copy.raw").exists());
    fs::remove_file(&second).unwrap();
    tool("mkfifo", &[second.to_str().unwrap()]).ok();
    cheetah(&["verify", &first]).says(2, &["disk.002", "pipe"]);
    fs::remove_file(&second).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&second).unwrap();
    cheetah(&["verify", &first]).says(2, &["disk.002"]);
    fs::remove_file(&second).unwrap();
    // Segments, too: an E01 in two, of which the second is a link to the real one.
    let (raw, e01) = (desk.file("source.img", &noise(3 * MIB, 7)), desk.arg("x.E01"));
    cheetah(&["acquire", &raw, &e01, "--level", "none", "--segment-size", "2MiB"]).ok();
    let (segment, real) = (desk.at("x.E02"), desk.at("elsewhere"));
    fs::rename(&segment, &real).unwrap();
    symlink(&real, &segment).unwrap();
    cheetah(&["verify", &e01]).says(2, &["x.E02", "symbolic link"]);
}

#[test]
fn a_pipe_under_any_name_is_refused_at_once_by_every_command() {
    let desk = Desk::new();
    for name in ["p.drive", "p.raw", "p.E01", "p.custody", "p.vmdk"] {
        tool("mkfifo", &[&desk.arg(name)]).ok();
    }
    let image = desk.file("disk.raw", &noise(MIB, 8));
    tool("mkfifo", &[&desk.arg("disk.raw.map")]).ok();
    tool("mkfifo", &[&desk.arg("disk.raw.custody")]).ok();
    let dir = desk.dir("mnt");
    let (copy, drive) = (desk.arg("copy.img"), desk.arg("p.drive"));
    let mut commands = vec![vec!["verify", &image], vec!["status", &drive], vec!["destroy", &drive, "--yes"]];
    let names = ["p.drive", "p.raw", "p.E01", "p.custody", "p.vmdk"].map(|name| desk.arg(name));
    for name in &names {
        commands.extend([vec!["verify", name], vec!["acquire", name, &copy], vec!["mount", name, &dir]]);
        commands.push(vec!["export", name, "--listen", "127.0.0.1:0"]);
    }
    for args in commands {
        let mut command = program();
        let started = command.args(&args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = started.unwrap();
        until(&format!("{args:?} ended"), || {
            std::thread::sleep(Duration::from_millis(10));
            child.try_wait().unwrap().is_some()
        });
        assert!(!child.wait().unwrap().success(), "{args:?}");
    }
}

/// Runs `verify` with an address space of this size, and returns what it says.
fn verified_within(mib: u64, image: &str) -> (Option<i32>, String) {
    let limit = format!("--as={}", mib << 20);
    let binary = program().get_program().to_str().unwrap().to_owned();
    let ran = tool("prlimit", &[&limit, &binary, "--room", "none", "verify", image]);
    (ran.code, format!("{}{}", ran.out(), ran.stderr))
}

#[test]
fn hostile_images_are_read_or_refused_within_a_limited_address_space() {
    if !need::programs(&["prlimit", "python3"]) {
        return;
    }
    let desk = Desk::new();
    let script = desk.file(
        "make.py",
        br#"
import gzip, os, struct, sys, zipfile
os.chdir(sys.argv[1])
z = zipfile.ZipFile('deep.aff4', 'w', zipfile.ZIP_DEFLATED)
z.writestr('container.description', 'aff4://00000000-0000-0000-0000-000000000001')
z.writestr('version.txt', 'major=1\nminor=0\ntool=x\n')
z.writestr('information.turtle', '@prefix : <x:> .\n:a :p ' + '[:p ' * 1_000_000)
z.close()
open('members.raw.gz', 'wb').write(b''.join(gzip.compress(bytes([n % 251]), 1) for n in range(300)) * 4000)
"#,
    );
    tool("python3", &[&script, desk.path().to_str().unwrap()]).ok();
    let small = desk.file("small.raw", &noise(MIB, 9));
    // What the program takes by itself: its code, and stacks for each processor.
    let own = (64..=512).step_by(16).find(|mib| verified_within(*mib, &small).0 == Some(0)).unwrap();
    // The budget of a parser, and a little for a thread more.
    let limit = own + 64 + 16;
    let (code, said) = verified_within(limit, &desk.arg("deep.aff4"));
    assert!(code == Some(3) && said.contains("nested"), "{code:?} {said}");
    let (code, said) = verified_within(limit, &desk.arg("members.raw.gz"));
    assert!(code == Some(0) && said.contains("1.1MiB"), "{code:?} {said}");
}
