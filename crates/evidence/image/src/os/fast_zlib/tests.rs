use std::io::Read as _;

use proptest::prelude::*;

use super::{FastZlib, libdeflate};

const CHUNK: usize = 32 << 10;
/// A byte that is not written to.
const UNTOUCHED: u8 = 0xa5;

/// Inflates with another library than the one that compresses or reads images.
fn inflated(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut decoder = flate2::read::ZlibDecoder::new(packed);
    decoder.read_to_end(&mut bytes).unwrap();
    assert_eq!(decoder.total_in(), packed.len() as u64, "nothing follows the stream");
    bytes
}

/// Compresses into the first `room` bytes of a longer buffer, behind which nothing may be written.
fn packed(zlib: &mut FastZlib, data: &[u8], room: usize) -> Option<Vec<u8>> {
    let mut out = vec![UNTOUCHED; room + 512];
    let len = zlib.zlib(data, &mut out[..room]);
    assert!(out[room..].iter().all(|byte| *byte == UNTOUCHED), "{room} bytes of room were exceeded");
    len.map(|len| {
        assert!(len <= room);
        out.truncate(len);
        out
    })
}

/// A stream in as much room as any can need.
fn roomy(zlib: &mut FastZlib, data: &[u8]) -> Option<Vec<u8>> {
    packed(zlib, data, data.len() + data.len() / 8 + 1000)
}

/// Compresses and inflates, also into less room; returns the compressed length.
fn there_and_back(zlib: &mut FastZlib, data: &[u8], less: usize) -> usize {
    let whole = roomy(zlib, data).unwrap();
    assert!(inflated(&whole) == data);
    for room in [whole.len() + 3, whole.len(), whole.len().saturating_sub(less)] {
        if let Some(packed) = packed(zlib, data, room) {
            assert!(inflated(&packed) == data, "in {room} bytes of room");
        }
    }
    whole.len()
}

/// Runs, text, repeats from anywhere before, and noise over few or many values.
fn chunk(bytes_max: usize) -> impl Strategy<Value = Vec<u8>> {
    let piece = (0u8..6, any::<u8>(), any::<u16>(), 1..bytes_max / 8);
    (prop::collection::vec(piece, 1..120), any::<u64>(), 8..=bytes_max).prop_map(|(pieces, mut state, bytes)| {
        let text = b"It was the best of times, it was the worst of times, it was the age of wisdom. ";
        let mut data = Vec::new();
        for (kind, value, back, len) in pieces.into_iter().cycle() {
            for at in 0..len {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let noise = (state >> 40) as u8;
                data.push(match kind {
                    0 => 0,
                    1 => value,
                    2 => text[(at + usize::from(back)) % text.len()],
                    3 => data.len().checked_sub(1 + usize::from(back)).map_or(value, |at| data[at]),
                    4 => noise % (value % 16 + 1),
                    _ => noise,
                });
            }
            if data.len() >= bytes {
                break;
            }
        }
        data.truncate(bytes);
        data
    })
}

proptest! {
    #[test]
    fn compressed_chunks_inflate_to_the_input_and_no_byte_is_written_beyond_the_room(
        first in chunk(CHUNK),
        second in chunk(128 << 10),
        less in 0usize..CHUNK,
    ) {
        let mut zlib = FastZlib::new();
        there_and_back(&mut zlib, &first, less);
        there_and_back(&mut zlib, &second, less);
        // Nothing of a chunk is left for the next one.
        there_and_back(&mut zlib, &first, less);
        prop_assert!(roomy(&mut zlib, &second) == roomy(&mut FastZlib::new(), &second), "it depends on earlier chunks");
    }

    #[test]
    fn small_chunks_inflate_to_the_input_in_any_room(data in chunk(300)) {
        let mut zlib = FastZlib::new();
        let len = there_and_back(&mut zlib, &data, 0);
        for room in 0..len + 20 {
            if let Some(packed) = packed(&mut zlib, &data, room) {
                prop_assert!(inflated(&packed) == data, "in {room} bytes of room");
            }
        }
    }

    #[test]
    fn noise_does_not_fit_where_it_would_have_to_shrink(seed in any::<u64>(), len in 4096usize..CHUNK) {
        let mut state = seed;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let data: Vec<_> = (0..len).map(|_| noise()).collect();
        let mut zlib = FastZlib::new();
        prop_assert_eq!(packed(&mut zlib, &data, len - 1), None);
        prop_assert!(there_and_back(&mut zlib, &data, 0) < len + 300);
    }
}

/// Of so small and uniform chunks, one in 25 differs if igzip is called in the usual way, where its output depends on its address.
#[test]
fn compressors_anywhere_in_memory_have_the_same_output() {
    let mut compressors: Vec<_> = (0..8).map(|_| FastZlib::new()).collect();
    let mut state = 1u64;
    for _ in 0..4000 {
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize
        };
        let (len, values) = (20 + random() % 100, 2 + random() % 6);
        let data: Vec<u8> = (0..len).map(|_| (random() % values) as u8).collect();
        let outputs: Vec<_> = compressors.iter_mut().map(|zlib| roomy(zlib, &data)).collect();
        assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "{data:?}");
    }
}

#[test]
fn uniform_and_varied_chunks_of_critical_lengths_inflate_to_the_input() {
    let mut zlib = FastZlib::new();
    for len in [8, 9, 10, 16, 24, 25, 32, 258, 266, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 65_535, 65_536, 65_824, 1 << 20]
    {
        for value in [0, 0xff, 7] {
            there_and_back(&mut zlib, &vec![value; len], 1);
        }
        there_and_back(&mut zlib, &(0..len).map(|at| ((at / 256) ^ (at * 7)) as u8).collect::<Vec<_>>(), 1);
    }
    assert!(there_and_back(&mut zlib, &[7; CHUNK], 0) < 300);
}

#[test]
fn the_largest_chunk_inflates_to_the_input() {
    let data: Vec<_> = (0..16 << 20).map(|at: usize| (at.wrapping_mul(at >> 9) >> 11) as u8).collect();
    there_and_back(&mut FastZlib::new(), &data, 100_000);
}

#[test]
fn chunks_of_less_than_eight_bytes_either_fit_or_are_refused() {
    let mut zlib = FastZlib::new();
    for len in 0..8 {
        let data = vec![1; len];
        if let Some(packed) = roomy(&mut zlib, &data) {
            assert!(inflated(&packed) == data);
        }
        // They do not shrink.
        assert_eq!(packed(&mut zlib, &data, len.saturating_sub(1)), None);
    }
}

#[test]
fn the_library_for_other_systems_compresses_to_streams_that_inflate_to_the_input() {
    let mut zlib = libdeflate::FastZlib::new();
    for len in [0, 1, 512, CHUNK] {
        let data: Vec<_> = (0..len).map(|at| (at / 100) as u8).collect();
        let mut out = vec![UNTOUCHED; len + 1000];
        let packed = zlib.zlib(&data, &mut out).unwrap();
        assert!(inflated(&out[..packed]) == data);
        assert!(packed < 50 + len / 10, "{len} bytes became {packed}");
        assert_eq!(zlib.zlib(&data, &mut out[..packed - 1]), None);
    }
}
