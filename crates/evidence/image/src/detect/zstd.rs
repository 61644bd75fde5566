//! How files of zstd (RFC 8878) begin. No I/O.

/// The first bytes of a frame.
pub(crate) const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// Bytes of the head of a skippable frame: a signature, and a length.
pub(crate) const SKIPPABLE_HEAD_LEN: u64 = 8;

/// Whether a skippable frame begins with these bytes.
pub(crate) fn is_skippable(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Whether a zstd file begins with these bytes. A file that begins with a skippable frame must have a frame after it:
/// the signature of a skippable frame alone proves too little.
pub(crate) fn is_zstd(start: &[u8]) -> bool {
    matches!(first_frame(start, 0), Begins::WithFrame)
}

/// What the beginning of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    /// A frame follows skippable ones, or begins the file.
    WithFrame,
    /// It is no zstd file.
    Otherwise,
    /// Skippable frames reach up to this offset, which is beyond the bytes given.
    Skipping(u64),
}

/// Looks for the first frame in the bytes of a file from `offset`, behind skippable frames.
pub(crate) fn first_frame(bytes: &[u8], mut offset: u64) -> Begins {
    let start = offset;
    loop {
        let rest = usize::try_from(offset - start).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        // The beginning of the file must decide by itself; further bytes may be too few to.
        let (is_frame, may_skip) = (rest.starts_with(&MAGIC), is_skippable(rest));
        let len = rest.get(4..).and_then(|rest| rest.first_chunk()).map(|len| u64::from(u32::from_le_bytes(*len)));
        match (is_frame, may_skip.then_some(len).flatten()) {
            (true, _) => return Begins::WithFrame,
            (_, Some(len)) => offset = offset.saturating_add(SKIPPABLE_HEAD_LEN + len),
            _ if offset > start && rest.len() < SKIPPABLE_HEAD_LEN as usize => return Begins::Skipping(offset),
            _ => return Begins::Otherwise,
        }
    }
}
