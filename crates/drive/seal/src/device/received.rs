//! Sealed units as they were received, in memory in which they can be opened. Does no I/O.

use bytes::{Bytes, BytesMut};
use cheetah_device::data::Part;
use cheetah_device::{Data, buffers};

/// Units of this size and larger stay where they were opened, between the trailers of their neighbours. Smaller ones are
/// moved together: a run of short parts takes longer to hash and to send than to move.
const APART_BYTES_MIN: usize = 64 << 10;

/// Consecutive sealed units.
///
/// They are opened in the memory that they were received in, if nothing else refers to it. Otherwise, and if a unit
/// lies across two parts of the reply, they are copied first.
pub(super) struct Received {
    runs: Vec<Run>,
    stride: usize,
}

/// Consecutive units in one buffer.
struct Run {
    buffer: BytesMut,
    start: usize,
    count: usize,
}

impl Received {
    /// Takes a reply that holds whole units of `stride` bytes, trailers included.
    pub fn new(sealed: Data, stride: usize) -> Self {
        let mut runs = Vec::new();
        // The bytes so far of a unit that lies across parts.
        let mut joined = BytesMut::new();
        for part in sealed.into_parts() {
            let mut buffer = to_buffer(part);
            let start = if joined.is_empty() { 0 } else { buffer.len().min(stride - joined.len()) };
            joined.extend_from_slice(&buffer[..start]);
            if joined.len() == stride {
                runs.push(Run { buffer: std::mem::take(&mut joined), start: 0, count: 1 });
            }
            let count = (buffer.len() - start) / stride;
            let end = start + count * stride;
            if end < buffer.len() {
                joined.reserve(stride);
                joined.extend_from_slice(&buffer[end..]);
                buffer.truncate(end);
            }
            if count > 0 {
                runs.push(Run { buffer, start, count });
            }
        }
        Self { runs, stride }
    }

    /// The units in order, each with its trailer.
    pub fn units(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let stride = self.stride;
        self.runs.iter_mut().flat_map(move |run| run.buffer[run.start..].chunks_exact_mut(stride))
    }

    /// The first `unit` bytes of each, which is all but the trailer.
    pub fn into_content(self, unit: usize) -> Data {
        let mut content = Data::new();
        for mut run in self.runs {
            let positions = (0..run.count).map(|n| run.start + n * self.stride);
            if unit < APART_BYTES_MIN {
                // A unit that is in its place stays: the C library takes longer for that than for a move.
                for (n, at) in positions.enumerate().filter(|(n, at)| *at != n * unit) {
                    run.buffer.copy_within(at..at + unit, n * unit);
                }
                run.buffer.truncate(run.count * unit);
                content.push_part(Part::Bytes(buffers::share(run.buffer)));
            } else {
                let bytes = buffers::share(run.buffer);
                positions.for_each(|at| content.push_part(Part::Bytes(bytes.slice(at..at + unit))));
            }
        }
        content
    }
}

/// A part as memory that can be altered.
fn to_buffer(part: Part) -> BytesMut {
    let copied = |bytes: Bytes| {
        let mut copy = buffers::empty(bytes.len());
        copy.extend_from_slice(&bytes);
        copy
    };
    match part {
        Part::Bytes(bytes) => bytes.try_into_mut().unwrap_or_else(copied),
        // Not truncated: the caller has room for the reply.
        Part::Zeros(len) => BytesMut::zeroed(len as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reply of `count` units whose contents are the unit's number, and its parts' lengths.
    fn reply(count: usize, unit: usize, cuts: &[usize], shared: bool) -> (Data, Vec<Bytes>) {
        let mut whole = BytesMut::new();
        for n in 0..count {
            whole.extend_from_slice(&vec![n as u8 + 1; unit]);
            whole.extend_from_slice(&[0xFF; 3]);
        }
        let (mut data, mut held) = (Data::new(), Vec::new());
        let mut rest = whole.freeze();
        for cut in cuts {
            let part = BytesMut::from(&rest.split_to((*cut).min(rest.len()))[..]).freeze();
            held.extend(shared.then(|| part.clone()));
            data.push_part(Part::Bytes(part));
        }
        data.push_part(Part::Bytes(rest));
        (data, held)
    }

    proptest! {
        #[test]
        fn units_are_altered_in_place_and_what_others_hold_is_not(
            count in 1usize..8,
            is_large in any::<bool>(),
            cuts in prop::collection::vec(1usize..200_000, 0..6),
            shared in any::<bool>(),
        ) {
            let unit = if is_large { APART_BYTES_MIN } else { 40 };
            let cuts: Vec<usize> = cuts.into_iter().map(|cut| if is_large { cut } else { cut % 90 + 1 }).collect();
            let (data, held) = reply(count, unit, &cuts, shared);
            let before: Vec<Vec<u8>> = held.iter().map(|part| part.to_vec()).collect();
            let mut received = Received::new(data, unit + 3);
            prop_assert_eq!(received.units().count(), count);
            for (n, place) in received.units().enumerate() {
                prop_assert!(place[..unit].iter().all(|byte| *byte == n as u8 + 1) && place[unit..] == [0xFF; 3]);
                place[..unit].iter_mut().for_each(|byte| *byte ^= 0x80);
            }
            let content = received.into_content(unit).into_bytes();
            prop_assert_eq!(content.len(), count * unit);
            prop_assert!(content.chunks(unit).enumerate().all(|(n, run)| run.iter().all(|byte| *byte == (n as u8 + 1) ^ 0x80)));
            prop_assert!(held.iter().zip(&before).all(|(part, before)| part == before));
        }
    }

    #[test]
    fn a_reply_that_nothing_else_refers_to_is_not_copied() {
        let reply = BytesMut::from(&[7; 2 * (APART_BYTES_MIN + 24)][..]).freeze();
        let address = reply.as_ptr();
        let content = Received::new(Data::from(reply), APART_BYTES_MIN + 24).into_content(APART_BYTES_MIN);
        let [Part::Bytes(first), Part::Bytes(_)] = content.parts() else { panic!("{content:?}") };
        assert_eq!(first.as_ptr(), address);
    }
}
