//! Sets of known files: whatever one says, it is refused, or is written again as it was.

use std::sync::LazyLock;

use cheetah_search::{BLOCK_BYTES, KnownFiles};

/// The bytes of the checksum at the end.
const SUM_BYTES: usize = 32;

/// A set of two files that share a block.
static VALID: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let block = |seed: u32| (0..BLOCK_BYTES as u32 / 4).flat_map(move |at| (at * at + seed).to_le_bytes());
    let mut known = KnownFiles::default();
    for (name, seeds) in [("a", [1, 2]), ("b", [2, 3])] {
        let content: Vec<u8> = seeds.into_iter().flat_map(block).collect();
        known.add(name, &content[..]).unwrap();
    }
    let mut bytes = Vec::new();
    known.without_common_blocks().write_set(&mut bytes).unwrap();
    bytes.truncate(bytes.len() - SUM_BYTES);
    bytes
});

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let content = match choice % 3 {
        0 => data.to_vec(),
        1 => [&VALID[..20], data].concat(),
        _ => super::edited(&VALID, data),
    };
    // The checksum is made right, so that what it covers is looked at.
    let bytes = [&content[..], blake3::hash(&content).as_bytes()].concat();
    if let Ok(known) = KnownFiles::read_set(&bytes) {
        let mut again = Vec::new();
        known.write_set(&mut again).unwrap();
        assert_eq!(again, bytes);
    }
}
