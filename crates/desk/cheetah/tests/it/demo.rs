//! The demonstration, on an image of ours.

use crate::support::bytes::partitioned;
use crate::support::{Desk, MIB, cheetah, need};

#[test]
fn the_demonstration_completes_and_leaves_nothing_behind() {
    if !need::fuse() || !need::programs(&["mmls", "fls", "md5sum", "fusermount3"]) {
        return;
    }
    let desk = Desk::new();
    let content = partitioned(4 * MIB);
    let image = desk.file("disk.raw", &content);
    let answer = cheetah(&["demo", &image]).ok().json();
    assert_eq!(answer["identical"], true);
    // mmls, fls for each of two partitions, md5sum, and md5sum while a node is killed.
    assert_eq!(answer["runs"].as_array().unwrap().len(), 5, "{answer}");
    let steps = answer["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["what"] == "cheetah repair evidence.drive --nodes d"), "{answer}");
    assert!(std::fs::read(&image).unwrap() == content);
}

#[test]
fn a_missing_image_is_an_error_that_names_it() {
    if !need::fuse() || !need::programs(&["mmls", "fls", "md5sum", "fusermount3"]) {
        return;
    }
    cheetah(&["demo", "/nowhere/disk.raw"]).says(1, &["/nowhere/disk.raw"]);
}
