//! The blocks of a message that comes in pieces, as MD5 (RFC 1321, sections 3.1 and 3.2) and SHA (FIPS 180-4, section 5.1.1)
//! have them.

pub const BLOCK_BYTES: usize = 64;

/// The number of bytes so far, and those that wait for a whole block.
#[derive(Debug, Clone)]
pub struct Blocks {
    bytes: u64,
    /// The beginning of a block, as long as `bytes` says.
    begun: [u8; BLOCK_BYTES],
}

impl Blocks {
    /// Returns the blocks of no bytes.
    pub const fn new() -> Self {
        Self { bytes: 0, begun: [0; BLOCK_BYTES] }
    }

    const fn begun_bytes(&self) -> usize {
        (self.bytes % BLOCK_BYTES as u64) as usize
    }

    /// Adds bytes, and has `compress` take the blocks that are whole.
    pub fn update(&mut self, bytes: &[u8], mut compress: impl FnMut(&[[u8; BLOCK_BYTES]])) {
        let begun = self.begun_bytes();
        self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
        let (first, bytes) = bytes.split_at(if begun == 0 { 0 } else { bytes.len().min(BLOCK_BYTES - begun) });
        self.begun[begun..][..first.len()].copy_from_slice(first);
        if begun > 0 {
            if begun + first.len() < BLOCK_BYTES {
                return;
            }
            compress(&[self.begun]);
        }
        let (blocks, rest) = bytes.as_chunks();
        compress(blocks);
        self.begun[..rest.len()].copy_from_slice(rest);
    }

    /// Has `compress` take the last blocks: the bytes that wait, a one, zeros, and the length in bits, in the order that
    /// `to_bytes` gives it.
    pub fn finish(&self, to_bytes: fn(u64) -> [u8; 8], compress: impl FnOnce(&[[u8; BLOCK_BYTES]])) {
        let begun = self.begun_bytes();
        let length = to_bytes(self.bytes.wrapping_mul(8));
        let mut last = [[0; BLOCK_BYTES]; 2];
        // The length has its place at the end of a block.
        let blocks = if begun + 1 + length.len() > BLOCK_BYTES { 2 } else { 1 };
        let bytes = last[..blocks].as_flattened_mut();
        bytes[..begun].copy_from_slice(&self.begun[..begun]);
        bytes[begun] = 0x80;
        bytes[blocks * BLOCK_BYTES - length.len()..].copy_from_slice(&length);
        compress(&last[..blocks]);
    }
}
