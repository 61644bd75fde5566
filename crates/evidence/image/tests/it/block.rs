//! A disk with a bad sector: the sectors beside it can be read.

use cheetah_device::{ByteRange, Device as _, Error};
use cheetah_image::{Kind, OpenOptions, open};

use crate::bad_disk::{BadDisk, PROGRAMS};
use crate::need;

/// A size whose blocks in the page cache have 4 KiB.
const SIZE: u64 = 64 << 10;
/// The first sector of such a block.
const BAD: ByteRange = ByteRange::new(40 << 10, 512);

#[tokio::test]
async fn sectors_beside_a_bad_one_are_read() {
    if !need::programs(&PROGRAMS) || !need::fuse() || !need::root_and_loop() {
        return;
    }
    let content: Vec<u8> = (0..SIZE).map(|at| (at / 512 * 7 + at % 251) as u8).collect();
    let disk = BadDisk::new(&content, BAD);
    if !disk.is_direct() {
        need::skip("needs loop devices that read a file in FUSE past the page cache");
        return;
    }
    let source = open(disk.path(), &OpenOptions::default()).await.unwrap();
    assert_eq!((source.identity.kind, source.identity.size), (Kind::Block, SIZE));
    // The sectors of the block and those next to it, one by one, as an acquisition finally reads them; then unaligned
    // ranges, ranges that end at the bad sector, and ranges that begin after it.
    let sectors = (BAD.offset / 512 - 2..BAD.offset / 512 + 10).map(|sector| ByteRange::new(sector * 512, 512));
    let odd = [(BAD.end() + 100, 5), (BAD.end(), 5000), (0, BAD.offset), (BAD.offset - 1000, 1000)];
    let good = sectors.filter(|sector| *sector != BAD).chain(odd.map(|(offset, len)| ByteRange::new(offset, len)));
    for range in good {
        let data = source.device.read(range).await.unwrap_or_else(|error| panic!("{range}: {error}"));
        assert!(data == content[range.offset as usize..range.end() as usize], "{range}");
    }
    for asked in [BAD, ByteRange::new(BAD.offset + 77, 5), ByteRange::new(BAD.end() - 1, 2), ByteRange::new(0, SIZE)] {
        let error = source.device.read(asked).await.unwrap_err();
        assert!(matches!(&error, Error::Unreadable { range, .. } if *range == asked), "{asked}: {error}");
    }
}
