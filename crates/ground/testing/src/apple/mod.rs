//! Volumes of Apple's systems, made field by field: not encrypted, and without checksums.

pub mod apfs;
pub mod core_storage;

/// Bytes that are written to.
struct Bytes(Vec<u8>);

impl Bytes {
    fn put(&mut self, at: usize, content: &[u8]) -> &mut Self {
        self.0[at..at + content.len()].copy_from_slice(content);
        self
    }

    fn numbers<const N: usize>(&mut self, at: usize, numbers: [u64; N]) -> &mut Self {
        self.put(at, &numbers.map(u64::to_le_bytes).concat())
    }
}
