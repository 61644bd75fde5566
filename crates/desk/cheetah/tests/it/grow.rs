//! Drives that grow while they are used or filled, and drives that gather nodes.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sealed::identity;
use crate::support::bytes::noise;
use crate::support::service::Service;
use crate::support::{Desk, MIB, Mounted, Node, cheetah, need, node, number, three, until};

const SIZE: u64 = 16 * MIB;

fn size_of(mount: &Mounted) -> u64 {
    fs::metadata(&mount.file).unwrap().len()
}

/// Enlarges a drive while one process writes its first half, and another one reads its second half.
fn is_enlarged_in_use(desk: &Desk, layout: &str, options: &[&str], opening: &[&str]) {
    let [first, second, third] = three("40MiB");
    let drive = desk.arg("case.drive");
    let (nodes, size) = (node::list(&[&first, &second]), SIZE.to_string());
    // A mirror takes two nodes, of which the drive may have one.
    let added = if layout == "mirror" { node::list(&[&third, &first]) } else { third.address().to_owned() };
    let create = ["create", &drive, "--nodes", &nodes, "--size", &size, "--layout", layout];
    cheetah(&[&create, options, opening].concat()).ok();
    let mut content = noise(SIZE, 7);
    let image = desk.file("image", &content);
    cheetah(&[&["load", &drive, &image], opening].concat()).ok();
    let reader = Mounted::new(&drive, &desk.dir("reader"), opening);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &[&["--writable"], opening].concat());
    let [reading, file] = [&reader, &mount].map(|mount| {
        fs::File::options().read(true).write(mount.file.starts_with(desk.at("mnt"))).open(&mount.file).unwrap()
    });
    let half = (SIZE / 2) as usize;
    let second_half = content[half..].to_vec();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut rounds = 0;
            while rounds < 2 || !ends.load(Ordering::Relaxed) {
                let mut back = vec![0; half];
                reading.read_exact_at(&mut back, half as u64).unwrap();
                assert!(back == second_half, "the reader reads other bytes than were written");
                rustix::fs::fadvise(&reading, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                rounds += 1;
            }
        });
        let writes = scope.spawn(|| {
            let mut round = 0;
            while round < 20 || !ends.load(Ordering::Relaxed) {
                round += 1;
                let (at, bytes) = (round * 700_001 % (half as u64 - MIB), noise(100_000, round));
                file.write_all_at(&bytes, at).unwrap();
                content[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                let mut back = vec![0; bytes.len()];
                file.read_exact_at(&mut back, at).unwrap();
                assert!(back == bytes, "other bytes are read than were written");
            }
        });
        let grown = cheetah(&["enlarge", &drive, "--nodes", &added, "--size", "8MiB"]).ok();
        assert!(grown.stderr.contains("in use") && grown.stderr.contains("open the drive again"), "{}", grown.stderr);
        assert_eq!(number(&grown.json(), "size_bytes"), SIZE + 8 * MIB);
        ends.store(true, Ordering::Relaxed);
        writes.join().unwrap();
        reads.join().unwrap();
    });
    assert_eq!([size_of(&mount), size_of(&reader)], [SIZE; 2]);
    drop(file);
    mount.unmount();
    let mount = Mounted::new(&drive, &desk.dir("again"), &[&["--writable"], opening].concat());
    let read = mount.read();
    assert!(read[..SIZE as usize] == content && read[SIZE as usize..] == [0; 8 * MIB as usize]);
    let file = fs::File::options().write(true).open(&mount.file).unwrap();
    file.write_all_at(b"new", SIZE + MIB).unwrap();
    drop(file);
    mount.unmount();
    let mut back = vec![0; half];
    reading.read_exact_at(&mut back, half as u64).unwrap();
    assert!(back == second_half, "the reader of the smaller drive reads other bytes than were written");
    drop(reading);
    reader.unmount();
    assert!(third.used_bytes() > 0);
    let mount = Mounted::new(&drive, &desk.dir("last"), opening);
    assert_eq!(mount.read()[(SIZE + MIB) as usize..][..3], *b"new");
    mount.unmount();
}

#[test]
fn a_drive_is_enlarged_while_it_is_read_and_written_and_shows_its_size_when_it_is_opened_again() {
    if need::fuse() {
        is_enlarged_in_use(&Desk::new(), "stripe", &[], &[]);
    }
}

#[test]
fn a_sealed_drive_is_enlarged_while_it_is_read_and_written() {
    if need::fuse() {
        let desk = Desk::new();
        let (key, _) = identity(&desk, "me.key");
        is_enlarged_in_use(&desk, "stripe", &["--seal"], &["--identity", &key]);
    }
}

#[test]
fn a_drive_that_survives_losses_is_enlarged_while_it_is_read_and_written_and_survives_them_still() {
    if need::fuse() {
        is_enlarged_in_use(&Desk::new(), "mirror", &[], &[]);
        let desk = Desk::new();
        let (key, _) = identity(&desk, "me.key");
        is_enlarged_in_use(&desk, "mirror", &["--seal"], &["--identity", &key]);
    }
    let (desk, [first, second, third]) = (Desk::new(), three("40MiB"));
    let (image, content) = desk.image("disk.raw", SIZE);
    let drive = desk.drive("case", &[&first, &second], &image, &["--layout", "mirror"]);
    cheetah(&["enlarge", &drive, "--nodes", third.address(), "--size", "1MiB"]).says(2, &["needs 2"]);
    let unsafe_ = ["enlarge", &drive, "--nodes", third.address(), "--layout", "stripe"];
    cheetah(&unsafe_).says(2, &["survives the loss of 1"]);
    cheetah(&["enlarge", &drive, "--nodes", &node::list(&[&third, &first]), "--size", "4MiB"]).ok();
    // The first node has a part of each set.
    first.kill();
    let saved = desk.arg("saved.raw");
    cheetah(&["save", &drive, &saved]).ok();
    assert!(fs::read(&saved).unwrap()[..SIZE as usize] == content, "other bytes are read than were loaded");
    let spare = Node::start("40MiB");
    cheetah(&["repair", &drive, "--nodes", spare.address()]).ok();
    assert_eq!(spare.exports(), 2);
    let status = cheetah(&["status", &drive]).ok().json();
    assert_eq!(number(&status, "survives_losses"), 1, "{status}");
    cheetah(&["repair", &drive, "--check"]).ok();
    cheetah(&["verify", &drive]).ok();
    // The lost node may still hold its parts.
    cheetah(&["destroy", &drive, "--force"]).ended_with(1);
    assert_eq!([second.exports(), third.exports(), spare.exports()], [0; 3]);
}

/// Enlarges a drive before it is filled, while it is, and while another one is loaded.
fn is_enlarged_before_it_is_full(desk: &Desk, options: &[&str], opening: &[&str]) {
    let [first, second, third] = three("40MiB");
    let (image, content) = desk.image("image.raw", SIZE);
    let lazy = desk.arg("lazy.drive");
    let list = node::list(&[&first, &second]);
    let opened = |args: &[&str]| cheetah(&[args, opening].concat());
    let striped = |args: &[&str]| opened(&[args, &["--nodes", &list, "--layout", "stripe"], options].concat()).ok();
    striped(&["create", &lazy, "--from", &image, "--lazy"]);
    cheetah(&["enlarge", &lazy, "--nodes", third.address(), "--size", "1MiB"]).ok();
    let mount = Mounted::new(&lazy, &desk.dir("mnt"), opening);
    cheetah(&["enlarge", &lazy, "--nodes", third.address(), "--size", "3MiB"]).ok();
    assert!(mount.read()[..SIZE as usize] == content, "other bytes are read than the image has");
    mount.unmount();
    // Refused if the mount has filled it to the end.
    opened(&["load", &lazy]);
    opened(&["verify", &lazy]).ok();
    let whole = desk.arg("whole.raw");
    opened(&["save", &lazy, &whole, "--whole"]).ok();
    let saved = fs::read(&whole).unwrap();
    assert!(saved[..SIZE as usize] == content && saved[SIZE as usize..] == [0; 4 * MIB as usize]);

    let loaded = desk.arg("loaded.drive");
    striped(&["create", &loaded, "--size", &(SIZE + 5).to_string()]);
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| opened(&["load", &loaded, &image]).ok());
        for _ in 0..3 {
            cheetah(&["enlarge", &loaded, "--nodes", third.address(), "--size", "1MiB"]).ok();
        }
        loading.join().unwrap();
    });
    opened(&["verify", &loaded]).ok();
    assert_eq!(number(&cheetah(&["status", &loaded]).ok().json(), "size_bytes") / MIB, SIZE / MIB + 3);
}

#[test]
fn a_drive_is_enlarged_while_it_is_filled_and_while_it_is_loaded() {
    if need::fuse() {
        is_enlarged_before_it_is_full(&Desk::new(), &[], &[]);
    }
}

#[test]
fn a_sealed_drive_is_enlarged_while_it_is_filled_and_while_it_is_loaded() {
    if need::fuse() {
        let desk = Desk::new();
        let (key, _) = identity(&desk, "me.key");
        is_enlarged_before_it_is_full(&desk, &["--seal"], &["--identity", &key]);
    }
}

/// Gathers nodes until the drive is mounted for writing.
fn gathers_until_used(desk: &Desk, options: &[&str], opening: &[&str]) {
    let first = Node::start("8MiB");
    let drive = desk.arg("case.drive");
    let args = [&["create", &drive, "--gather=127.0.0.1:0", "--nodes", first.address()], options, opening].concat();
    let mut gathering = Service::start_on(&args, "gathering");
    let address = gathering.ready["listen"].as_str().unwrap().to_owned();
    let nodes_of = || fs::read_to_string(&drive).map_or(0, |text| text.matches("nbd://").count());
    until("the drive is made", || nodes_of() == 1);
    let joined = ["--join", &address];
    let [_second, _third] = ["16MiB", "8MiB"].map(|memory| Node::start_with(memory, "127.0.0.1:0", &joined));
    until("every node has joined", || nodes_of() == 3);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &[&["--writable"], opening].concat());
    let (code, last) = gathering.wait();
    assert_eq!(code, Some(0), "{last}");
    let size = number(&last, "size_bytes");
    assert!(size > 30 * MIB && size_of(&mount) == size, "{size}");
    let file = fs::File::options().read(true).write(true).open(&mount.file).unwrap();
    let bytes = noise(size, 5);
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    assert!(mount.read() == bytes, "other bytes are read than were written");
    drop(file);
    mount.unmount();
    // What joins later is not taken.
    let _late = Node::start_with("8MiB", "127.0.0.1:0", &joined);
    assert_eq!(nodes_of(), 3);
    let again = Mounted::new(&drive, &desk.dir("again"), opening);
    assert!(again.read() == bytes, "other bytes are read than were written");
    again.unmount();
}

#[test]
fn a_drive_gathers_every_node_that_joins_until_it_is_used() {
    if need::fuse() {
        gathers_until_used(&Desk::new(), &["--no-seal"], &[]);
    }
}

#[test]
fn a_drive_that_gathers_is_sealed_by_default() {
    if need::fuse() {
        let desk = Desk::new();
        let (key, recipient) = identity(&desk, "me.key");
        gathers_until_used(&desk, &[], &["--identity", &key]);
        assert!(fs::read_to_string(desk.at("case.drive")).unwrap().contains(&recipient));
    }
}

#[test]
fn a_drive_that_gathers_ends_at_its_size() {
    let (desk, [first, second, third]) = (Desk::new(), three("8MiB"));
    let (key, _) = identity(&desk, "me.key");
    let gather = |name: &str, nodes: &[&Node], more: &[&str]| {
        let drive = desk.arg(name);
        let args = ["create", &drive, "--gather=127.0.0.1:0", "--nodes", &node::list(nodes), "--size", "10MiB"];
        (Service::start_on(&[&args, more].concat(), "gathering"), drive)
    };
    for more in [&["--no-seal"][..], &["--identity", &key]] {
        // With enough nodes at once.
        let (mut gathering, drive) = gather("many.drive", &[&first, &second, &third], more);
        assert_eq!(number(&gathering.wait().1, "size_bytes"), 10 * MIB);
        cheetah(&["destroy", &drive]).ok();
        // With one that joins later.
        let (mut gathering, drive) = gather("one.drive", &[&first], more);
        let address = gathering.ready["listen"].as_str().unwrap().to_owned();
        let _joins = Node::start_with("8MiB", "127.0.0.1:0", &["--join", &address]);
        assert_eq!(number(&gathering.wait().1, "size_bytes"), 10 * MIB);
        cheetah(&["destroy", &drive]).ok();
    }
}

#[test]
fn a_drive_that_gathers_needs_a_key_or_no_seal() {
    let (desk, node) = (Desk::new(), Node::start("8MiB"));
    let drive = desk.arg("case.drive");
    let gather = ["create", &drive, "--gather=127.0.0.1:0", "--nodes", node.address()];
    cheetah(&gather).says(2, &["sealed", "--identity", "--no-seal"]);
    cheetah(&["create", &drive, "--size", "10MiB"]).says(2, &["--nodes"]);
    cheetah(&[&gather[..], &["--layout", "mirror"]].concat()).says(2, &["--layout"]);
    assert!(!fs::exists(&drive).unwrap());
}
