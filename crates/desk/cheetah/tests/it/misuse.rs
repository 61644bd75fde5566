//! Misuse of the command line: one clear sentence, the right exit code, no partial result.

use std::path::Path;

use crate::support::bytes::partitioned;
use crate::support::run::{cheetah_plain, cheetah_signing};
use crate::support::{Desk, MIB, Mounted, Node, cheetah, need, noise};

#[test]
fn help_and_version_are_printed() {
    assert!(cheetah_plain(&["--version"]).ok().out().starts_with("cheetah "));
    let help = cheetah_plain(&["--help"]).ok().out();
    for verb in ["demo", "node", "create", "enlarge", "load", "save", "verify", "status", "destroy", "mount", "export"]
    {
        assert!(help.contains(verb), "{verb}");
        assert!(
            cheetah_plain(&[verb, "--help"]).ok().out().contains(&format!("cheetah {verb}")),
            "no example for {verb}"
        );
    }
    cheetah_plain(&[]).ended_with(2);
}

#[test]
fn wrong_units_and_sizes_are_refused_with_a_suggestion() {
    let desk = Desk::new();
    let drive = desk.arg("a.drive");
    let create = |more: &[&str]| {
        let mut args = vec!["create", &drive, "--nodes", "127.0.0.1:1"];
        args.extend(more);
        cheetah(&args)
    };
    create(&["--size", "1GiB", "--unit", "64q"]).says(2, &["64q", "64KiB"]);
    create(&["--size", "20"]).says(2, &["20 bytes", "20MiB"]);
    create(&[]).says(2, &["--size", "--from"]);
    create(&["--size", "1GiB", "--from", "x"]).says(2, &["--from"]);
    create(&["--size", "1GiB", "--layout", "stripe", "--copies", "2"]).says(2, &["--copies", "mirror"]);
    create(&["--size", "1GiB", "--layout", "mirror", "--parity", "1"]).says(2, &["--parity", "parity"]);
    create(&["--size", "1GiB", "--copies", "5"]).says(2, &["--copies", "2..=4"]);
    cheetah(&["create", &drive, "--size", "1GiB"]).says(2, &["--nodes"]);
    cheetah(&["node"]).says(2, &["--memory"]);

    cheetah(&["mount", &drive, "/", "--prefetch", "64"]).says(2, &["--prefetch", "64 bytes", "64MiB"]);
    cheetah(&["mount", &drive, "/", "--cache", "/var/tmp:64"]).says(2, &["--cache", "64 bytes", "64MiB"]);

    let node = Node::start("16m");
    for unit in ["6KiB", "2KiB", "8MiB"] {
        cheetah(&["create", &drive, "--nodes", node.address(), "--size", "1MiB", "--unit", unit]).says(2, &["unit"]);
    }
    assert_eq!(node.exports(), 0);
    assert!(!desk.at("a.drive").exists());
}

#[test]
fn an_image_that_save_would_name_after_another_format_is_refused() {
    let desk = Desk::new();
    for name in ["copy.E01", "copy.qcow2"] {
        let ran = cheetah(&["save", &desk.arg("case.drive"), &desk.arg(name)]);
        ran.says(2, &[name, "raw", "cheetah acquire"]);
    }
}

#[test]
fn address_without_a_port_or_host_is_refused_with_an_example() {
    for address in ["5050", "localhost", "127.0.0.1"] {
        cheetah(&["node", "--memory", "8MiB", "--listen", address]).says(2, &["ADDRESS:PORT", "127.0.0.1:25050"]);
    }
}

#[test]
fn error_of_the_operating_system_names_the_users_file_and_the_next_step() {
    let desk = Desk::new();
    let (image, _) = desk.image("a.raw", MIB);
    let ran = cheetah_signing(Path::new("/proc/nowhere/key"), &["acquire", &image, &desk.arg("b.raw")]);
    let ran = ran.says(1, &["/proc/nowhere/key", "check the path"]);
    assert!(!ran.stderr.contains("os error") && !ran.stderr.contains(".tmp"), "{}", ran.stderr);
    let node = Node::start("16MiB");
    let ran = cheetah(&["create", "/nonexistent/a.drive", "--nodes", node.address(), "--size", "1MiB"]);
    let ran = ran.says(1, &["/nonexistent", "check the path"]);
    assert!(!ran.stderr.contains("os error") && !ran.stderr.contains("cheetah-partial"), "{}", ran.stderr);
}

#[test]
fn a_taken_port_is_an_error_that_names_it() {
    let node = Node::start("8MiB");
    cheetah(&["node", "--memory", "8MiB", "--listen", node.address()]).says(1, &[node.address(), "taken"]);
}

#[test]
fn listening_beyond_loopback_requires_insecure() {
    // Not in a room, even if one announces itself on this network.
    cheetah(&["node", "--memory", "8MiB", "--listen", "0.0.0.0:0", "--room", "none"])
        .says(2, &["0.0.0.0", "--insecure"]);
    let desk = Desk::new();
    let (image, _) = desk.image("a.raw", MIB);
    cheetah(&["export", &image, "--listen", "0.0.0.0:0"]).says(2, &["0.0.0.0", "--insecure"]);
}

#[test]
fn more_memory_than_the_machine_can_spare_is_refused() {
    let ran = cheetah(&["node", "--memory", "900TiB", "--listen", "127.0.0.1:0"]).says(1, &["spare"]);
    assert!(ran.stderr.contains("GiB") || ran.stderr.contains("MiB"), "how much it could spare: {}", ran.stderr);
}

#[test]
fn an_image_that_is_missing_or_empty_or_a_directory_is_refused() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let drive = desk.arg("a.drive");
    let from = |image: &str| cheetah(&["create", &drive, "--nodes", node.address(), "--from", image]);
    from(&desk.arg("nowhere.raw")).says(1, &["nowhere.raw"]);
    from(&desk.file("empty.raw", b"")).says(1, &["empty.raw"]);
    from(&desk.dir("folder")).says(2, &["folder"]);
    from("nbd://127.0.0.1:1/gone").says(1, &["127.0.0.1:1"]);
    assert_eq!(node.exports(), 0);
    assert!(!desk.at("a.drive").exists());
    assert!(!desk.at("a.drive.digests").exists());
}

#[test]
fn an_image_larger_than_the_drive_is_refused() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let drive = desk.arg("a.drive");
    cheetah(&["create", &drive, "--nodes", node.address(), "--size", "1MiB"]).ok();
    let (image, _) = desk.image("big.raw", 2 * MIB);
    cheetah(&["load", &drive, &image]).says(1, &["2MiB", "1MiB"]);
    // Nothing was begun, so the drive is as it was.
    assert_eq!(cheetah(&["verify", &drive]).ok().json()["compared"], "empty");
}

#[test]
fn a_full_node_is_an_error_and_leaves_nothing() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let drive = desk.arg("a.drive");
    cheetah(&["create", &drive, "--nodes", node.address(), "--size", "1GiB"])
        .says(1, &["not enough memory", node.address()]);
    assert_eq!(node.exports(), 0);
    assert!(!desk.at("a.drive").exists());
}

#[test]
fn an_unreachable_node_undoes_the_creation() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let drive = desk.arg("a.drive");
    let nodes = format!("{},127.0.0.1:1", node.address());
    cheetah(&["create", &drive, "--nodes", &nodes, "--size", "1MiB"]).says(1, &["127.0.0.1"]);
    let twice = format!("{},{}", node.address(), node.address());
    cheetah(&["create", &drive, "--nodes", &twice, "--size", "1MiB"]).says(2, &["same node"]);
    assert_eq!(node.exports(), 0);
    assert!(!desk.at("a.drive").exists());
}

#[test]
fn an_existing_drive_is_not_overwritten() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("a.raw", MIB);
    let drive = desk.drive("a", &[&node], &image, &[]);
    cheetah(&["create", &drive, "--nodes", node.address(), "--size", "1MiB"]).says(2, &["exists"]);
    assert_eq!(node.exports(), 1);
    cheetah(&["verify", &drive]).ok();
}

#[test]
fn an_edited_missing_or_foreign_drive_file_is_refused() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("a.raw", MIB);
    let drive = desk.drive("a", &[&node], &image, &[]);
    let original = std::fs::read_to_string(&drive).unwrap();

    std::fs::write(&drive, original.replace("size = 1048576", "size = 524288")).unwrap();
    for verb in ["status", "verify", "destroy"] {
        let ran = cheetah(&[verb, &drive]);
        assert!(matches!(ran.code, Some(1 | 3)), "{:?}: {}", ran.code, ran.stderr);
        let code = ran.code.unwrap();
        ran.says(code, &["a.drive", "edited"]);
    }
    assert_eq!(node.exports(), 1, "an edited drive file must not free anything");

    let binary = desk.file("b.drive", &noise(4096, 3));
    assert!(matches!(cheetah(&["status", &binary]).code, Some(1 | 3)));
    cheetah(&["status", &desk.arg("nowhere.drive")]).says(1, &["nowhere.drive"]);

    std::fs::write(&drive, original).unwrap();
    cheetah(&["destroy", &drive]).ok();
}

#[test]
fn a_second_writer_is_refused_until_the_first_ends() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, content) = desk.image("a.raw", MIB);
    let drive = desk.drive("a", &[&node], &image, &[]);
    let (first, second) = (desk.dir("first"), desk.dir("second"));
    let writer = Mounted::new(&drive, &first, &["--writable"]);
    cheetah(&["mount", &drive, &second, "--writable"]).says(1, &["held by"]);
    cheetah(&["load", &drive, &image, "--force"]).says(1, &["held by"]);
    let reader = Mounted::new(&drive, &second, &[]);
    assert!(reader.read() == content, "any number of readers");
    reader.unmount();
    writer.unmount();
    // The lease is free again at once.
    Mounted::new(&drive, &first, &["--writable"]).unmount();
}

#[test]
fn evidence_is_never_opened_for_writing() {
    let desk = Desk::new();
    let (image, _) = desk.image("a.raw", MIB);
    let dir = desk.dir("mnt");
    cheetah(&["mount", &image, &dir, "--writable"]).says(2, &["--overlay"]);
    cheetah(&["export", &image, "--listen", "127.0.0.1:0", "--writable"]).says(2, &["--overlay"]);
}

#[test]
fn a_missing_mount_point_is_an_error_that_names_it() {
    let desk = Desk::new();
    let (image, _) = desk.image("a.raw", MIB);
    cheetah(&["mount", &image, &desk.arg("nowhere")]).says(1, &["nowhere"]);
}

#[test]
fn truncated_or_missing_digests_are_an_error_that_names_them() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("a.raw", 3 * MIB);
    let drive = desk.drive("a", &[&node], &image, &[]);
    let digests = desk.at("a.drive.digests");
    let whole = std::fs::read(&digests).unwrap();
    std::fs::write(&digests, &whole[..whole.len() / 2]).unwrap();
    cheetah(&["verify", &drive]).says(3, &["a.drive.digests"]);
    std::fs::remove_file(&digests).unwrap();
    let ran = cheetah(&["verify", &drive]);
    assert!(matches!(ran.code, Some(1 | 3)) && ran.stderr.contains("a.drive.digests"), "{:?} {}", ran.code, ran.stderr);
    std::fs::write(&digests, whole).unwrap();
    cheetah(&["verify", &drive]).ok();
}

#[test]
fn a_truncated_image_is_mounted_without_padding() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let content = partitioned(4 * MIB);
    let cut = &content[..usize::try_from(6 * MIB).unwrap()];
    let drive = desk.drive("cut", &[&node], &desk.file("disk.raw", cut), &[]);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &[]);
    assert!(mount.read() == cut, "the image is read as far as it goes");
    assert!(mount.dir.join("cut.p1.raw").exists());
    // The truncated partition is shown with its remaining length or not at all, never padded.
    if let Ok(meta) = std::fs::metadata(mount.dir.join("cut.p2.raw")) {
        assert_eq!(meta.len(), MIB);
    }
    mount.unmount();
}
