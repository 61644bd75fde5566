//! libdeflate at level 1, where ISA-L is not used: its build for Windows needs another assembler, and what its code for
//! ARM writes does not inflate to the input (tried with version 2.31).

use libdeflater::{CompressionLvl, Compressor};

/// The lowest level that compresses; the library's own `fastest` only stores.
const LEVEL: CompressionLvl = match CompressionLvl::new(1) {
    Ok(level) => level,
    Err(_) => CompressionLvl::best(),
};

/// The compressor; each thread has its own. Its output depends on its input alone.
pub(crate) struct FastZlib(Compressor);

impl FastZlib {
    pub(crate) fn new() -> Self {
        Self(Compressor::new(LEVEL))
    }

    /// Writes `data` to `out` as a zlib stream and returns its length, or `None` if there is not enough room.
    pub(crate) fn zlib(&mut self, data: &[u8], out: &mut [u8]) -> Option<usize> {
        self.0.zlib_compress(data, out).ok()
    }
}
