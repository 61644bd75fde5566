//! Compressed raw images: opening and reading one neither panics nor exceeds its memory limits, and the content that
//! is read at random equals the content that is read in order.

use cheetah_device::{ByteRange, Device as _};
use cheetah_image::compressed::Compressed;
use cheetah_image::detect::Compression;

/// The bytes that are read of an image.
const READ_MAX: u64 = 1 << 20;
/// A larger frame is read in order.
const FRAME_MAX: u64 = 1 << 20;
/// Small images to start from: `xz`, seekable zstd, zstd with sizes, BGZF and bzip2.
const SEEDS: [(Compression, &[u8]); 5] = [
    (Compression::Xz, include_bytes!("../seeds/tiny.xz")),
    (Compression::Zstd, include_bytes!("../seeds/seekable.zst")),
    (Compression::Zstd, include_bytes!("../seeds/tiny.zst")),
    (Compression::Gzip, include_bytes!("../seeds/tiny.bgz")),
    (Compression::Bzip2, include_bytes!("../seeds/tiny.bz2")),
];

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let (compression, seed) = SEEDS[usize::from(*choice) % SEEDS.len()];
    let image = if choice & 0x80 == 0 { edit(seed, data) } else { data.to_vec() };
    let open = |in_order, frame_max| Compressed::from_memory(image.clone(), compression, in_order, frame_max);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let read = |image: &Compressed| {
        let range = ByteRange::new(0, image.geometry().size.min(READ_MAX));
        runtime.block_on(async { image.read(range).await }).map(|data| data.into_bytes())
    };
    let at_random = open(false, FRAME_MAX);
    // A frame of more than no bytes is read in order.
    let in_order = open(true, 0);
    if let (Ok(at_random), Ok(in_order)) = (&at_random, &in_order) {
        assert_eq!(at_random.geometry(), in_order.geometry());
        // A damaged image is refused in order, before its first byte is read, and at random where it is damaged.
        if let (Ok(one), Ok(other)) = (read(at_random), read(in_order)) {
            assert!(one == other);
        }
    }
}

/// The seed with changed bytes: two bytes give the offset, one the new value.
fn edit(seed: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut image = seed.to_vec();
    for edit in edits.chunks_exact(3).take(8) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % image.len();
        image[at] = edit[2];
    }
    image
}
