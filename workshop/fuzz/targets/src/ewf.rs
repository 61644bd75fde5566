//! E01 and Ex01 images: opening and reading one neither panics nor exceeds its memory limits, and two reads of a chunk
//! agree.

use cheetah_device::{ByteRange, Device as _};
use cheetah_image::ewf::Ewf;

/// The number of chunks to read: a few cover every packing.
const READS_MAX: usize = 16;
/// Chunks up to this size are read on the spot when they are in memory; larger ones would need a runtime.
const CHUNK_MAX: u32 = 64 << 10;
/// Small images to start from: one by ewfacquire, one by the tests' encoder of Ex01.
const SEEDS: [&[u8]; 2] = [include_bytes!("../seeds/tiny.E01"), include_bytes!("../seeds/tiny.Ex01")];

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let mut image = match choice & 3 {
        seed @ (0 | 1) => edit(SEEDS[usize::from(seed)], data),
        _ => data.to_vec(),
    };
    if choice & 4 == 0 {
        mend(&mut image);
    }
    let segments = match choice & 8 {
        0 => vec![image],
        _ => {
            let second = image.split_off(image.len() / 2);
            vec![image, second]
        }
    };
    if let Ok(image) = Ewf::from_memory(segments) {
        read(&image);
    }
}

fn read(image: &Ewf) {
    let info = image.info();
    for range in &info.unreadable {
        assert!(range.fits(info.size) && !range.is_empty());
    }
    if info.chunk_size > CHUNK_MAX {
        return;
    }
    for range in ByteRange::new(0, info.size).split_at_multiples(info.chunk_size.into()).take(READS_MAX) {
        let read = || futures::executor::block_on(image.read(range)).map(|data| data.into_bytes());
        let first = read();
        assert!(first.as_ref().map_or(true, |bytes| bytes.len() as u64 == range.len));
        assert_eq!(first, read());
    }
}

/// The seed with changed bytes: two bytes give the offset, one the new value.
fn edit(seed: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut image = seed.to_vec();
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % image.len();
        image[at] = edit[2];
    }
    image
}

/// Corrects the checksums of section descriptors, of volumes, and of the heads of tables, so that their content is
/// parsed.
fn mend(image: &mut [u8]) {
    if image.starts_with(b"EVF2") { mend_v2(image) } else { mend_v1(image) }
}

fn mend_v1(image: &mut [u8]) {
    let mut at = 13;
    while let Some(descriptor) = image.get_mut(at..at + 76) {
        seal(descriptor);
        let next = number(descriptor, 16);
        let len = match &descriptor[..5] {
            b"volum" | b"disk\0" | b"data\0" => 1052,
            b"table" => 24,
            b"error" => 520,
            _ => 0,
        };
        if let Some(head) = image.get_mut(at + 76..at + 76 + len) {
            seal(head);
        }
        if next <= at || next > image.len() {
            break;
        }
        at = next;
    }
}

fn mend_v2(image: &mut [u8]) {
    let Some(mut at) = image.len().checked_sub(64) else { return };
    loop {
        let Some(descriptor) = image.get_mut(at..at + 64) else { return };
        seal(descriptor);
        let (kind, previous) = (descriptor[0], number(descriptor, 8));
        let start = if previous == 0 { 32 } else { previous.saturating_add(64) };
        if matches!(kind, 4 | 5)
            && let Some(head) = start.checked_add(20).and_then(|end| image.get_mut(start..end))
        {
            seal(head);
        }
        if previous == 0 || previous >= at {
            return;
        }
        at = previous;
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    bytes[at..].first_chunk().map_or(0, |bytes| usize::try_from(u64::from_le_bytes(*bytes)).unwrap_or(usize::MAX))
}

/// Appends the Adler-32 of the bytes.
fn seal(bytes: &mut [u8]) {
    let Some((before, sum)) = bytes.split_last_chunk_mut::<4>() else { return };
    let (mut a, mut b) = (1, 0);
    for byte in before {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    *sum = (b << 16 | a).to_le_bytes();
}
