//! Splitting content into holes and data. No I/O.

use cheetah_device::data::{Part, is_zero};
use cheetah_device::{ByteRange, Data};

/// Zeros are detected in blocks of this size, aligned on the device.
const BLOCK_LEN: u64 = 4 << 10;
/// Shorter runs of zeros stay in the data: packed, they take almost nothing.
const HOLE_LEN_MIN: u64 = 16 << 10;

/// A part of a device's content.
#[derive(Debug, Clone)]
pub(super) enum ContentPart {
    /// Zeros.
    Hole(ByteRange),
    /// Something else, from this offset on.
    Content(u64, Data),
}

/// Splits the content at `offset`.
pub(super) fn cut(offset: u64, data: &Data) -> Vec<ContentPart> {
    let whole = ByteRange::new(offset, data.len());
    let mut cuts = Vec::new();
    let mut content_from = offset;
    for hole in holes(offset, data) {
        if hole.len < HOLE_LEN_MIN && hole != whole {
            continue;
        }
        let before = ByteRange::between(content_from, hole.offset);
        if !before.is_empty() {
            cuts.push(ContentPart::Content(before.offset, data.slice(before.offset - offset, before.len)));
        }
        cuts.push(ContentPart::Hole(hole));
        content_from = hole.end();
    }
    if content_from < whole.end() {
        cuts.push(ContentPart::Content(content_from, data.slice(content_from - offset, whole.end() - content_from)));
    }
    cuts
}

/// Every run of zero blocks.
fn holes(offset: u64, data: &Data) -> Vec<ByteRange> {
    let mut holes: Vec<ByteRange> = Vec::new();
    let mut add = |found: ByteRange| found.append_to(&mut holes);
    let mut at = offset;
    for part in data.parts() {
        let range = ByteRange::new(at, part.len());
        match part {
            Part::Zeros(_) => add(range),
            Part::Bytes(bytes) => {
                for block in range.split_at_multiples(BLOCK_LEN) {
                    // Not truncated: positions within bytes in memory.
                    let (from, to) = ((block.offset - at) as usize, (block.end() - at) as usize);
                    if is_zero(&bytes[from..to]) {
                        add(block);
                    }
                }
            }
        }
        at = range.end();
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_add_up_to_the_content(
            runs in prop::collection::vec((0u8..3, 1usize..40_000, any::<bool>()), 1..8), offset in 0u64..10_000
        ) {
            let mut data = Data::new();
            for (fill, len, as_zeros) in runs {
                if fill == 0 && as_zeros {
                    data.push_part(Part::Zeros(len as u64));
                } else {
                    data.push_part(Part::Bytes(vec![fill; len].into()));
                }
            }
            let mut joined = Data::new();
            for cut in cut(offset, &data) {
                match cut {
                    ContentPart::Hole(range) => {
                        prop_assert_eq!(range.offset, offset + joined.len());
                        joined.append(Data::zeros(range.len));
                    }
                    ContentPart::Content(at, content) => {
                        prop_assert_eq!(at, offset + joined.len());
                        // The rest has no long run of zeros.
                        let bytes = content.clone().into_bytes();
                        let longest = bytes.split(|byte| *byte != 0).map(<[u8]>::len).max().unwrap_or(0);
                        prop_assert!((longest as u64) < HOLE_LEN_MIN + 2 * BLOCK_LEN);
                        joined.append(content);
                    }
                }
            }
            prop_assert!(joined.into_bytes() == data.into_bytes());
        }
    }

    #[test]
    fn a_run_of_zeros_of_any_length_is_a_hole() {
        let cuts = cut(700, &Data::from(vec![0; 512]));
        assert!(matches!(cuts[..], [ContentPart::Hole(range)] if range == ByteRange::new(700, 512)), "{cuts:?}");
    }
}
