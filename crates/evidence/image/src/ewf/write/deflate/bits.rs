//! Writing bits.

/// A bit writer, lowest bit first.
pub struct Bits<'a> {
    out: &'a mut [u8],
    at: usize,
    /// Pending bits: the low `count`.
    bits: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    /// Starts at the beginning of `out`.
    pub fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0, bits: 0, count: 0 }
    }

    /// Appends the low `count` bits of `bits`, the others being zero. After a [`flush`](Self::flush) there is room for
    /// 56 of them.
    #[inline(always)]
    pub fn put(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        self.count += count;
    }

    /// Moves whole bytes to the buffer; `None` if it is full.
    #[inline(always)]
    pub fn flush(&mut self) -> Option<()> {
        let bytes = self.count / 8;
        match self.out.get_mut(self.at..).and_then(|out| out.first_chunk_mut::<8>()) {
            // Writes eight bytes at once; only the first ones count.
            Some(out) => *out = self.bits.to_le_bytes(),
            None => self.flush_at_end(bytes as usize)?,
        }
        self.at += bytes as usize;
        self.bits >>= bytes * 8;
        self.count -= bytes * 8;
        Some(())
    }

    #[cold]
    fn flush_at_end(&mut self, bytes: usize) -> Option<()> {
        self.out.get_mut(self.at..self.at + bytes)?.copy_from_slice(&self.bits.to_le_bytes()[..bytes]);
        Some(())
    }

    /// Returns the number of bytes for which there is still room.
    pub fn room(&self) -> usize {
        self.out.len() - self.at
    }

    /// Pads the last byte with zeros, and returns the number of bytes.
    pub fn finish(mut self) -> Option<usize> {
        self.count = self.count.next_multiple_of(8);
        self.flush()?;
        Some(self.at)
    }
}
