//! The life of a drive: create, load, verify, status, save, enlarge, destroy; and how a node ends.

use rustix::process::Signal;

use crate::support::{Desk, KIB, MIB, Node, cheetah, node, number, text, three};

#[test]
fn an_image_is_loaded_verified_saved_and_destroyed_in_every_layout() {
    let desk = Desk::new();
    let nodes = three("32MiB");
    let (image, content) = desk.image("disk.raw", 20 * MIB + 512);
    for (name, layout) in
        [("linear", vec!["--layout", "linear"]), ("small", vec!["--unit", "4KiB"]), ("large", vec!["--unit", "4MiB"])]
    {
        let drive = desk.drive(name, &nodes.each_ref(), &image, &layout);

        let verified = cheetah(&["verify", &drive]).ok().json();
        assert_eq!(number(&verified, "ok_bytes"), content.len() as u64);
        assert_eq!(text(&verified, "compared"), "digests");

        let status = cheetah(&["status", &drive]).ok().json();
        assert_eq!(status["healthy"], true);
        assert_eq!(number(&status, "size_bytes"), content.len() as u64);
        assert_eq!(status["nodes"].as_array().unwrap().len(), 3);

        let copy = desk.arg(&format!("{name}.copy"));
        let saved = cheetah(&["save", &drive, &copy]).ok().json();
        assert!(std::fs::read(&copy).unwrap() == content, "{name}: the copy differs");
        assert_eq!(saved["hashes"], verified["hashes"]);
        cheetah(&["save", &drive, &copy]).says(2, &["exists"]);
        cheetah(&["save", &drive, &copy, "--force"]).ok();

        let destroyed = cheetah(&["destroy", &drive]).ok().json();
        for node in destroyed["nodes"].as_array().unwrap() {
            assert_eq!(node["receipt"]["verified_zero"], true, "{destroyed}");
        }
        assert!(!std::path::Path::new(&drive).exists());
    }
    for node in &nodes {
        assert_eq!((node.exports(), node.used_bytes()), (0, 0));
    }
}

#[test]
fn hashes_match_published_test_vectors() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let image = desk.file("abc.raw", b"abc");
    let drive = desk.drive("abc", &[&node], &image, &[]);
    let hashes = cheetah(&["verify", &drive]).ok().json()["hashes"].clone();
    assert_eq!(text(&hashes, "md5"), "900150983cd24fb0d6963f7d28e17f72");
    assert_eq!(text(&hashes, "sha1"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    assert_eq!(text(&hashes, "sha256"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(text(&hashes, "blake3"), "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85");
}

#[test]
fn only_requested_hashes_are_computed() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("a.raw", MIB);
    let drive = desk.drive("a", &[&node], &image, &["--hash", "sha1"]);
    let verified = cheetah(&["verify", &drive]).ok().json();
    assert_eq!(verified["hashes"].as_object().unwrap().keys().collect::<Vec<_>>(), ["sha1"]);
    cheetah(&["load", &drive, &image, "--hash", "md6"]).says(2, &["md6"]);
}

#[test]
fn an_empty_drive_can_be_loaded_later() {
    let desk = Desk::new();
    let nodes = [Node::start("16MiB"), Node::start("48MiB")];
    let drive = desk.arg("later.drive");
    let list = node::list(&nodes.each_ref());
    cheetah(&["create", &drive, "--nodes", &list, "--layout", "stripe", "--size", "24MiB"]).ok();
    let (image, content) = desk.image("a.raw", 3 * MIB);
    cheetah(&["load", &drive, &image]).ok();
    assert_eq!(cheetah(&["verify", &drive]).ok().json()["compared"], "digests");
    let copy = desk.arg("copy.raw");
    cheetah(&["save", &drive, &copy]).ok();
    assert!(std::fs::read(&copy).unwrap() == content, "the image's bytes, not the drive's");
    cheetah(&["save", &drive, &copy, "--whole", "--force"]).ok();
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), 24 * MIB);
    // Shares are in proportion to the nodes' memory.
    let status = cheetah(&["status", &drive]).ok().json();
    let sizes: Vec<_> = status["nodes"].as_array().unwrap().iter().map(|node| number(node, "size_bytes")).collect();
    assert!(sizes[1] > 2 * sizes[0] && sizes[1] < 4 * sizes[0], "{sizes:?}");
}

#[test]
fn a_new_drive_survives_the_loss_of_a_node_unless_another_layout_is_named() {
    let desk = Desk::new();
    let nodes = three("32MiB");
    let addresses: Vec<_> = nodes.iter().map(Node::address).collect();
    let cases: [(usize, &[&str], &str, u64); 6] = [
        (3, &[], "parity in units of 64KiB over 3 nodes", 1),
        (2, &[], "mirror of 2 copies in units of 64KiB over 2 nodes", 1),
        (1, &[], "linear over 1 node", 0),
        (3, &["--parity", "2"], "2 parities in units of 64KiB over 3 nodes", 2),
        (3, &["--layout", "mirror", "--copies", "3"], "mirror of 3 copies in units of 64KiB over 3 nodes", 2),
        (3, &["--layout", "stripe"], "stripe of 64KiB over 3 nodes", 0),
    ];
    for (index, (count, more, layout, losses)) in cases.into_iter().enumerate() {
        let (drive, list) = (desk.arg(&format!("{index}.drive")), addresses[..count].join(","));
        let made = cheetah(&[&["create", &drive, "--nodes", &list, "--size", "2MiB"], more].concat()).ok().json();
        assert_eq!((text(&made, "layout"), number(&made, "survives_losses")), (layout, losses));
        assert_eq!(number(&made, "redundancy_bytes") > 0, losses > 0, "{made}");
        let status = cheetah(&["status", &drive]).ok().json();
        assert_eq!((&status["healthy"], number(&status, "survives_losses")), (&true.into(), losses));
        cheetah(&["destroy", &drive]).ok();
    }
}

#[test]
fn an_image_is_overwritten_only_when_forced() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (first, content) = desk.image("first.raw", MIB);
    let (second, other) = desk.image("second.raw", MIB - 512);
    let drive = desk.drive("a", &[&node], &first, &[]);
    cheetah(&["load", &drive, &second]).says(2, &["holds an image already", "first.raw", "--force"]);
    let copy = desk.arg("copy.raw");
    cheetah(&["save", &drive, &copy]).ok();
    assert!(std::fs::read(&copy).unwrap() == content, "the drive was changed");
    cheetah(&["load", &drive, &second, "--force"]).ok();
    cheetah(&["save", &drive, &copy, "--force"]).ok();
    assert!(std::fs::read(&copy).unwrap() == other);
}

#[test]
fn a_thin_drive_may_be_larger_than_the_memory_of_its_nodes() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let image = desk.arg("sparse.raw");
    let file = std::fs::File::create(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 50 * MIB).unwrap();
    file.set_len(100 * MIB).unwrap();
    let drive = desk.arg("thin.drive");
    let create = ["create", &drive, "--nodes", node.address(), "--from", &image];
    cheetah(&create).says(1, &["not enough memory"]);
    let ran = cheetah(&[&create[..], &["--thin"]].concat()).ok();
    assert!(ran.stderr.contains("writes fail once they are full"), "{}", ran.stderr);
    cheetah(&["verify", &drive]).ok();
    let (full, _) = desk.image("full.raw", 40 * MIB);
    cheetah(&["load", &drive, &full, "--force"]).says(1, &["no space", "in use"]);
    cheetah(&["verify", &drive]).ended_with(3);
}

#[test]
fn a_drive_is_enlarged_by_another_node() {
    let desk = Desk::new();
    let [first, second, third] = three("16MiB");
    let (image, content) = desk.image("a.raw", 4 * MIB);
    let drive = desk.drive("grow", &[&first, &second], &image, &[]);
    let grown = cheetah(&["enlarge", &drive, "--nodes", third.address(), "--size", "8MiB"]).ok().json();
    assert_eq!(number(&grown, "size_bytes"), 12 * MIB);
    cheetah(&["verify", &drive]).ok();
    let copy = desk.arg("copy.raw");
    cheetah(&["save", &drive, &copy, "--whole"]).ok();
    let saved = std::fs::read(&copy).unwrap();
    assert!(saved[..content.len()] == content && saved[content.len()..].iter().all(|byte| *byte == 0));
    cheetah(&["destroy", &drive]).ok();
    assert_eq!([first.exports(), second.exports(), third.exports()], [0, 0, 0]);
}

#[test]
fn zeros_take_no_memory_at_the_nodes() {
    let desk = Desk::new();
    let node = Node::start("128MiB");
    let image = desk.arg("sparse.raw");
    let file = std::fs::File::create(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 50 * MIB).unwrap();
    file.set_len(100 * MIB).unwrap();
    let drive = desk.drive("sparse", &[&node], &image, &["--hash", "blake3"]);
    assert!(node.used_bytes() <= MIB, "{} bytes for one page", node.used_bytes());
    cheetah(&["verify", &drive]).ok();
    // The saved file is sparse.
    let copy = desk.arg("copy.raw");
    cheetah(&["save", &drive, &copy, "--hash", "none"]).ok();
    let meta = std::fs::metadata(&copy).unwrap();
    assert_eq!(meta.len(), 100 * MIB);
    assert!(std::os::unix::fs::MetadataExt::blocks(&meta) * 512 <= 4 * MIB);
}

#[test]
fn a_stopped_node_wipes_its_memory_and_prints_a_receipt() {
    for signal in [Signal::TERM, Signal::INT] {
        let desk = Desk::new();
        let node = Node::start("16MiB");
        let (image, _) = desk.image("a.raw", 4 * MIB);
        let _drive = desk.drive("a", &[&node], &image, &[]);
        assert!(node.used_bytes() > 3 * MIB);
        let (code, last) = node.service.stop(signal);
        assert_eq!(code, Some(0), "{last}");
        assert_eq!(text(&last, "event"), "wiped");
        assert_eq!(last["verified_zero"], true, "{last}");
        assert!(number(&last, "wiped_bytes") > 3 * MIB, "{last}");
        assert!(text(&last, "receipt").contains("verified zero"), "{last}");
    }
}

#[test]
fn several_drives_share_a_node() {
    let desk = Desk::new();
    let node = Node::start("32MiB");
    let (one, _) = desk.image("one.raw", 5 * MIB);
    let (two, _) = desk.image("two.raw", 6 * MIB + 4 * KIB);
    let first = desk.drive("one", &[&node], &one, &[]);
    let second = desk.drive("two", &[&node], &two, &["--layout", "linear"]);
    cheetah(&["destroy", &first]).ok();
    cheetah(&["verify", &second]).ok();
}

#[test]
fn a_node_serves_prometheus_metrics() {
    let node = Node::start("16MiB");
    let text = node::http_get(&node.http, "/metrics");
    assert!(text.contains("cheetah_"), "{text}");
}
