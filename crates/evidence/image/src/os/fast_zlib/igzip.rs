//! igzip of Intel's ISA-L at level 1: C and assembler, about twice as fast as libdeflate at level 1.
//!
//! A chunk must always be compressed to the same bytes: else a resumed image would not be the same as one that was not interrupted,
//! and a resumed upload would send most of its parts again. But if nothing precedes the input, igzip's assembler enters the third
//! byte into its hash table under a hash of the address of the stream (`write_first_byte` in igzip_icf_body_h1_gr_bt.asm), so that
//! about one chunk in 5,000 differed between threads. Therefore the first bytes are stored here as a block of their own, and igzip
//! is told that they precede the rest. Processors without SSE 4.2 have another hash, thus other output.
//!
//! The safe wrapper of this library cannot do that. It also allocates and clears its state for each chunk, which took 1.1 to 1.6
//! times as long in all.

#![allow(unsafe_code, reason = "a library in C, twice as fast as another; its safe wrapper lacks a function")]

use isal_sys::igzip_lib as isal;
use libdeflater::adler32;

/// The number of bytes that are stored in the first block.
const FIRST_BYTES: usize = 8;
/// Header of a zlib stream (deflate, 32 KiB, fastest); header of a stored block (not the last one, its length, the complement).
const HEADER: [u8; 7] = [0x78, 0x01, 0x00, FIRST_BYTES as u8, 0, !(FIRST_BYTES as u8), 0xff];
const SUM_BYTES: usize = 4;
const LEVEL: u32 = 1;
/// Room for what igzip finds in 32 KiB, the usual chunk, before it writes a block.
const LEVEL_BYTES: usize = isal::ISAL_DEF_LVL1_MEDIUM as usize;

/// The compressor; each thread has its own. Its output depends on its input alone.
pub(crate) struct FastZlib {
    stream: Box<isal::isal_zstream>,
    /// Memory of igzip for its level, in words because it has pointers in there.
    level: Box<[u64]>,
}

// SAFETY: the pointers in the stream and in `level` lead to constants, or into these two, which nothing else uses and which stay where they
// are; those to input and output are set by each call. igzip keeps nothing by thread.
unsafe impl Send for FastZlib {}

impl FastZlib {
    pub(crate) fn new() -> Self {
        // SAFETY: the stream consists of integers, arrays of them and pointers that may be null, so zeros are valid.
        let mut stream = unsafe { Box::<isal::isal_zstream>::new_zeroed().assume_init() };
        // SAFETY: the pointer is that of a stream.
        unsafe { isal::isal_deflate_init(&raw mut *stream) };
        Self { stream, level: vec![0; LEVEL_BYTES.div_ceil(8)].into_boxed_slice() }
    }

    /// Writes `data` to `out` as a zlib stream and returns its length, or `None` if there is not enough room, or `data` has less
    /// than eight bytes.
    pub(crate) fn zlib(&mut self, data: &[u8], out: &mut [u8]) -> Option<usize> {
        let first = data.get(..FIRST_BYTES)?;
        let room = out.len().checked_sub(SUM_BYTES)?;
        let (header, blocks) = out.get_mut(..room)?.split_at_mut_checked(HEADER.len())?;
        let (stored, blocks) = blocks.split_at_mut_checked(FIRST_BYTES)?;
        header.copy_from_slice(&HEADER);
        stored.copy_from_slice(first);
        let end = HEADER.len() + FIRST_BYTES + self.deflate(data, blocks)?;
        out.get_mut(end..end + SUM_BYTES)?.copy_from_slice(&adler32(data).to_be_bytes());
        Some(end + SUM_BYTES)
    }

    /// Writes all but the first bytes of `data`, which precede it in the deflate stream, to `out` as its last blocks; returns their length.
    fn deflate(&mut self, data: &[u8], out: &mut [u8]) -> Option<usize> {
        let (before, rest) = data.split_at_checked(FIRST_BYTES)?;
        let stream = &mut *self.stream;
        // SAFETY: the stream was initialised.
        unsafe { isal::isal_deflate_reset(stream) };
        // SAFETY: igzip copies as many bytes as `before` has into the stream, 32 KiB at most, and does not write to `before`.
        let known = unsafe {
            isal::isal_deflate_set_dict(stream, before.as_ptr().cast_mut(), u32::try_from(before.len()).ok()?)
        };
        stream.level = LEVEL;
        stream.level_buf = self.level.as_mut_ptr().cast();
        stream.level_buf_size = LEVEL_BYTES as u32;
        stream.gzip_flag = isal::IGZIP_DEFLATE as u16;
        stream.flush = isal::NO_FLUSH as u16;
        stream.end_of_stream = 1;
        // Of all of `data`, so that what lies before may be read through it.
        stream.next_in = data.as_ptr().wrapping_add(FIRST_BYTES).cast_mut();
        stream.avail_in = u32::try_from(rest.len()).ok()?;
        stream.next_out = out.as_mut_ptr();
        stream.avail_out = u32::try_from(out.len()).unwrap_or(u32::MAX);
        // SAFETY: input, output and the memory for the level have at least the lengths that the stream names, and live longer than this call.
        // The input is only read. igzip may also read up to 32 KiB before it, where its table says that bytes repeat: the table has only
        // places of the first bytes, which lie directly before the rest, and of the rest; its empty entries stand for the last of the first
        // bytes. So all of that lies within `data`.
        let done = unsafe { isal::isal_deflate(stream) };
        let is_whole = stream.internal_state.state == isal::isal_zstate_state_ZSTATE_END;
        let is_well = [known, done].iter().all(|code| *code == isal::COMP_OK as i32);
        // Not truncated: at most the length of `out`.
        (is_well && is_whole).then_some(stream.total_out as usize)
    }
}
