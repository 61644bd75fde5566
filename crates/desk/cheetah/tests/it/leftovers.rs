//! Files that are never overwritten, and memory that nobody would free.

use std::fs;
use std::time::Duration;

use cheetah_control::ControlClient;
use cheetah_control::api::NewExport;

use crate::support::run::cheetah;
use crate::support::{Desk, MIB, Node, until};

#[test]
fn save_replaces_no_file_of_the_drive_under_any_name_and_no_record_of_another() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("i.raw", MIB);
    let passphrase = desk.file("pw", b"pw\n");
    let more = ["--seal", "--passphrase-file", &passphrase];
    let drive = desk.drive("a", &[&node], &image, &more);
    let other = desk.drive("b", &[&node], &image, &more);
    fs::hard_link(format!("{drive}.seal"), desk.at("hard.raw")).unwrap();
    std::os::unix::fs::symlink(&drive, desk.at("soft.raw")).unwrap();
    fs::copy(format!("{other}.custody"), desk.at("log.raw")).unwrap();
    let names = [
        "a.drive",
        "a.drive.seal",
        "a.drive.custody",
        "a.drive.digests",
        "b.drive",
        "b.drive.seal",
        "hard.raw",
        "soft.raw",
        "log.raw",
    ];
    let before: Vec<_> = names.iter().map(|name| fs::read(desk.at(name)).unwrap()).collect();
    for (name, before) in names.iter().zip(before) {
        let target = desk.arg(name);
        for how in [&["--hash", "none"][..], &["--partial"]] {
            let args = [&["save", &drive, &target, "--force", "--passphrase-file", &passphrase][..], how].concat();
            cheetah(&args).says(2, &[name]);
        }
        assert!(fs::read(desk.at(name)).unwrap() == before, "{name}");
    }
    cheetah(&["save", &drive, &desk.arg("new.seal"), "--passphrase-file", &passphrase]).says(2, &["new.seal"]);
    let copy = desk.arg("copy.drive");
    for beside in ["", ".seal"] {
        fs::copy(format!("{drive}{beside}"), format!("{copy}{beside}")).unwrap();
    }
    for source in [&drive, &copy] {
        cheetah(&["load", &drive, source, "--force", "--passphrase-file", &passphrase]).says(2, &["itself"]);
        cheetah(&["acquire", source, &drive, "--force", "--passphrase-file", &passphrase]).says(2, &["itself"]);
    }
}

#[test]
fn an_export_that_its_creator_never_confirms_is_freed_and_those_of_drives_are_confirmed() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let control = ControlClient::new(&node.http, None).with_timeout(Duration::from_secs(60));
        for name in ["kept", "orphan"] {
            control.create_unconfirmed(&NewExport::reserved(name, MIB), 2).await.unwrap();
        }
        control.confirm_export("orphan", Some(3)).await.unwrap();
        control.confirm_export("kept", None).await.unwrap();
        // Too late to be asked to wait again.
        control.confirm_export("kept", Some(1)).await.unwrap();
    });
    until("the orphan is freed", || node.exports() == 1);
    assert_eq!(node.status()["exports"][0]["name"], "kept");
    let drive = desk.arg("a.drive");
    cheetah(&["create", &drive, "--nodes", node.address(), "--size", "1MiB"]).ok();
    let exports = node.status()["exports"].clone();
    assert!(exports.as_array().unwrap().iter().all(|export| export["confirm_in_s"].is_null()), "{exports}");
}
