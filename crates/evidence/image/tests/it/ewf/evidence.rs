//! Real images, made with other programs.

use cheetah_image::ewf::{Ewf, EwfFormat};
use cheetah_image::hash::hex;
use md5::Digest as _;

use super::support::read_all;
use crate::need;

fn hashes_to(name: &str, size: u64, md5: &str) {
    let Some(path) = need::evidence(name) else { return };
    let image = Ewf::open(&path).unwrap();
    assert_eq!(image.info().format, EwfFormat::E01);
    assert_eq!(image.info().size, size);
    assert_eq!(image.info().hashes.md5.as_deref(), Some(md5));
    let content = read_all(&image, 1 << 20).unwrap();
    assert_eq!(hex(&md5::Md5::digest(&content)), md5);
}

#[test]
fn a_real_image_of_emails_is_read() {
    hashes_to("nps-2010-emails.E01", 10_485_760, "2f5ec5894f7fe3cea93bd29e7cf1eb50");
}

#[test]
fn a_real_image_of_an_ntfs_volume_is_read() {
    hashes_to("ntfs_sample.E01", 7_340_032, "e4e9578a9c8bf6c6b375a80c630196a4");
}
