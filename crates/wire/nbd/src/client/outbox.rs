//! Requests queued for the socket. No I/O.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use cheetah_device::Data;
use cheetah_device::data::{Part, zero_runs};

use crate::proto::Request;

/// Payloads of up to this many bytes are copied behind their header, which is cheaper than another I/O vector entry.
const INLINE_LEN_MAX: usize = 4 << 10;
/// The most runs written with one system call.
pub(super) const RUNS_MAX: usize = 128;

/// A queue of requests, written with as few system calls as possible.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Complete runs, oldest first.
    runs: VecDeque<Bytes>,
    /// The run that is being appended to.
    open: BytesMut,
}

impl Outbox {
    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.open.is_empty()
    }

    /// Queues a request and its payload.
    pub fn request(&mut self, request: &Request, payload: Option<&Data>) {
        request.encode(&mut self.open);
        for part in payload.map(Data::parts).unwrap_or_default() {
            match part {
                Part::Bytes(bytes) => self.bytes(bytes),
                Part::Zeros(len) => zero_runs(*len).for_each(|run: &'static [u8]| self.bytes(&Bytes::from_static(run))),
            }
        }
    }

    fn bytes(&mut self, bytes: &Bytes) {
        if bytes.len() <= INLINE_LEN_MAX {
            self.open.extend_from_slice(bytes);
        } else {
            self.seal();
            self.runs.push_back(bytes.clone());
        }
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            self.runs.push_back(self.open.split().freeze());
        }
    }

    /// Takes everything out, for writing.
    pub fn take(&mut self) -> Batch {
        self.seal();
        Batch(std::mem::take(&mut self.runs))
    }

    /// Puts back the bytes that could not be written, ahead of those queued since.
    pub fn put_back(&mut self, mut batch: Batch) {
        if self.runs.is_empty() {
            // Keeps the queue's allocation.
            std::mem::swap(&mut self.runs, &mut batch.0);
        } else {
            batch.0.append(&mut self.runs);
            self.runs = batch.0;
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.open.clear();
    }
}

/// Runs that are being written.
pub(super) struct Batch(VecDeque<Bytes>);

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The runs to be written next.
    pub fn slices(&self) -> ([IoSlice<'_>; RUNS_MAX], usize) {
        let mut slices = [IoSlice::new(&[]); RUNS_MAX];
        let mut used = 0;
        for (slice, run) in slices.iter_mut().zip(&self.0) {
            *slice = IoSlice::new(run);
            used += 1;
        }
        (slices, used)
    }

    /// Removes the first `len` bytes, which have been written.
    pub fn advance(&mut self, mut len: usize) {
        while let Some(run) = self.0.front_mut() {
            if len < run.len() {
                run.advance(len);
                return;
            }
            len -= run.len();
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Command, CommandFlags};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn partial_writes_keep_the_byte_order(
            lens in prop::collection::vec((0usize..9000, 0u64..100_000), 1..9),
            takes in prop::collection::vec(1usize..30_000, 1..9),
        ) {
            let (mut outbox, mut expected, mut sent) = (Outbox::default(), BytesMut::new(), Vec::new());
            let mut takes = takes.into_iter().cycle();
            for (fill, (bytes, zeros)) in (1u8..).zip(lens) {
                let request = Request {
                    flags: CommandFlags::NONE, command: Command::Write, cookie: 0, offset: 0, len: 0,
                };
                let mut data = Data::from(vec![fill; bytes]);
                data.append(Data::zeros(zeros));
                request.encode(&mut expected);
                expected.extend_from_slice(&data.clone().into_bytes());
                let mut batch = outbox.take();
                outbox.request(&request, Some(&data));
                // The socket takes a part of the bytes queued earlier, and is then full.
                drain(&mut batch, &mut sent, takes.next().unwrap());
                outbox.put_back(batch);
            }
            let mut batch = outbox.take();
            while !batch.is_empty() {
                drain(&mut batch, &mut sent, 7777);
            }
            prop_assert!(outbox.is_empty());
            prop_assert!(sent == expected);
        }
    }

    fn drain(batch: &mut Batch, sent: &mut Vec<u8>, len: usize) {
        let (slices, used) = batch.slices();
        let bytes: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.to_vec()).take(len).collect();
        batch.advance(bytes.len());
        sent.extend(bytes);
    }
}
