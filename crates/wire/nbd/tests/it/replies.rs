//! The client's core, fed with replies in every order, cut at every byte, and with arbitrary bytes.

use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cheetah_device::data::Part;
use cheetah_device::{ByteRange, Extent};
use cheetah_nbd::Method;
use cheetah_nbd::client::inflight::{Answer, Cookie, ExpectedReply, Failed, Inflight, ReadChunk, ReadChunks, Wakers};
use cheetah_nbd::client::receive::Receiver;
use cheetah_nbd::handshake::BlockSizes;
use cheetah_nbd::handshake::client::Agreement;
use cheetah_nbd::proto::packed::{self, Compression, Compressor};
use cheetah_nbd::proto::{Command, ErrorCode, TransmissionFlags, Violation, reply};
use proptest::prelude::*;
use tokio::time::Instant;

const ALLOCATION: u32 = 7;

fn agreement(structured: bool) -> Agreement {
    let (flags, blocks) = (TransmissionFlags::ALL, BlockSizes::default());
    let allocation = structured.then_some(ALLOCATION);
    Agreement { size: 1 << 30, flags, blocks, structured, allocation, packed: None, description: None }
}

/// A connection without a socket.
struct Core {
    receiver: Receiver,
    table: Inflight,
    input: BytesMut,
}

impl Core {
    fn new(structured: bool) -> Self {
        Self {
            receiver: Receiver::new(&agreement(structured), false),
            table: Inflight::default(),
            input: BytesMut::new(),
        }
    }

    /// Where packed reads were agreed.
    fn packed() -> Self {
        let agreement = Agreement { packed: Some(Method::Auto), ..agreement(true) };
        Self { receiver: Receiver::new(&agreement, false), ..Self::new(true) }
    }

    fn ask(&mut self, command: Command, offset: u64, len: u64) -> Cookie {
        let (ask, now) = (ExpectedReply { command, range: ByteRange::new(offset, len) }, Instant::now());
        self.table.insert(ask, now, now + Duration::from_secs(10), 0)
    }

    fn read(&mut self, offset: u64, len: u64) -> Cookie {
        self.ask(Command::Read, offset, len)
    }

    /// Receives `bytes` as a socket would hand them out, at most `at_once` a time.
    fn feed(&mut self, mut bytes: &[u8], at_once: usize) -> Result<(), Violation> {
        while !bytes.is_empty() {
            let target = self.receiver.target(self.table.read_len_mean());
            if let Some(len) = target.receive_from(&mut bytes, at_once, &mut self.input) {
                self.receiver.received(len, &mut self.input);
            }
            self.receiver.take(&mut self.input, &mut self.table, &mut Wakers::new())?;
        }
        Ok(())
    }

    fn result(&mut self, cookie: Cookie) -> Option<Result<Answer, Failed>> {
        match self.table.poll(cookie, Waker::noop()) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    fn bytes(&mut self, cookie: Cookie) -> Bytes {
        match self.result(cookie) {
            Some(Ok(Answer::Data(data))) => data.into_bytes(),
            Some(Ok(Answer::Packed(pieces))) => unpacked(&pieces),
            other => panic!("{other:?}"),
        }
    }
}

/// The content of the export at an offset.
fn content(offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len).map(|at| if at / 1000 % 3 == 0 { 0 } else { (at % 251) as u8 }).collect()
}

fn unpacked(pieces: &ReadChunks) -> Bytes {
    let mut out = BytesMut::new();
    for (_, piece) in pieces {
        match piece {
            ReadChunk::Plain(Part::Bytes(bytes)) => out.extend_from_slice(bytes),
            ReadChunk::Plain(Part::Zeros(len)) => out.resize(out.len() + *len as usize, 0),
            ReadChunk::Packed(packed) => {
                let start = out.len();
                out.resize(start + packed.0.len as usize, 0);
                packed::unpack(&packed.0, &packed.1, &mut out[start..]).unwrap();
            }
        }
    }
    out.freeze()
}

/// A chunk with this part of the content, packed.
fn put_packed(out: &mut BytesMut, cookie: Cookie, done: bool, offset: u64, len: u64) {
    let how = [Compression::Stored, Compression::Lz4, Compression::Zstd(1)][(offset % 3) as usize];
    let (head, packed) = Compressor::default().pack(offset, &content(offset, len).into(), how);
    head.encode(out, cookie.0, done, packed.len() as u32);
    out.extend_from_slice(&packed);
}

/// A chunk with this part of the content: as a hole where it is all zeros.
fn put_chunk(out: &mut BytesMut, cookie: Cookie, done: bool, offset: u64, len: u64) {
    let bytes = content(offset, len);
    if bytes.iter().all(|byte| *byte == 0) {
        reply::offset_hole(out, cookie.0, done, offset, len as u32);
    } else {
        reply::offset_data(out, cookie.0, done, offset, len as u32);
        out.extend_from_slice(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reads_get_their_bytes_for_any_split_and_order_of_chunks(
        reads in prop::collection::vec((0u64..1 << 20, 1u64..60_000, prop::collection::vec(any::<prop::sample::Index>(), 0..4)), 1..12),
        order in prop::collection::vec(any::<prop::sample::Index>(), 60),
        at_once in prop_oneof![1usize..40, 1000usize..300_000],
        packs: bool,
    ) {
        let mut core = if packs { Core::packed() } else { Core::new(true) };
        let mut replies = Vec::new();
        for (offset, len, cuts) in &reads {
            let cookie = core.read(*offset, *len);
            let mut cuts: Vec<_> = cuts.iter().map(|cut| offset + cut.index(*len as usize) as u64).collect();
            cuts.extend([*offset, offset + len]);
            cuts.sort_unstable();
            cuts.dedup();
            let mut chunks: Vec<_> = cuts.windows(2).map(|ends| (ends[0], ends[1] - ends[0])).collect();
            chunks.rotate_left(len.is_multiple_of(2).into());
            replies.push((cookie, chunks));
        }
        // Chunks of all replies, interleaved; within a reply only the last one ends it.
        let cookies: Vec<_> = replies.iter().map(|(cookie, _)| *cookie).collect();
        let mut out = BytesMut::new();
        let mut order = order.iter().cycle();
        while !replies.is_empty() {
            let which = order.next().unwrap().index(replies.len());
            let (cookie, chunks) = &mut replies[which];
            let (offset, len) = chunks.remove(0);
            match packs && len > 1 && offset % 4 > 0 {
                true => put_packed(&mut out, *cookie, chunks.is_empty(), offset, len),
                false => put_chunk(&mut out, *cookie, chunks.is_empty(), offset, len),
            }
            if chunks.is_empty() {
                replies.swap_remove(which);
            }
        }
        prop_assert_eq!(core.feed(&out, at_once), Ok(()));
        for (cookie, (offset, len, _)) in cookies.into_iter().zip(&reads) {
            prop_assert!(core.bytes(cookie) == content(*offset, *len));
        }
        prop_assert!(core.table.is_empty());
    }

    #[test]
    fn simple_replies_reach_their_requests(
        reads in prop::collection::vec((0u64..1 << 20, 1u64..60_000, any::<bool>()), 1..8), at_once in 1usize..100_000,
    ) {
        let mut core = Core::new(false);
        let cookies: Vec<_> = reads.iter().map(|(offset, len, _)| core.read(*offset, *len)).collect();
        let mut out = BytesMut::new();
        for (cookie, (offset, len, fails)) in cookies.iter().zip(&reads).rev() {
            reply::simple(&mut out, cookie.0, if *fails { Err(ErrorCode::Io) } else { Ok(()) });
            if !fails {
                out.extend_from_slice(&content(*offset, *len));
            }
        }
        prop_assert_eq!(core.feed(&out, at_once), Ok(()));
        for (cookie, (offset, len, fails)) in cookies.into_iter().zip(&reads) {
            if *fails {
                let failed = matches!(core.result(cookie), Some(Err(Failed::Server { code: ErrorCode::Io, .. })));
                prop_assert!(failed);
            } else {
                prop_assert!(core.bytes(cookie) == content(*offset, *len));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_never_answer_a_read_with_another_length(
        structured: bool,
        chunks in prop::collection::vec((0u64..4, 0u16..10, any::<bool>(), any::<bool>(), 0u32..80, prop::collection::vec(any::<u8>(), 0..80)), 0..12),
    ) {
        let mut core = Core::new(structured);
        let cookies = [core.read(0, 40), core.read(1 << 20, 70_000), core.ask(Command::BlockStatus, 0, 4096)];
        let mut out = BytesMut::new();
        for (cookie, kind, error, done, len, payload) in &chunks {
            out.extend_from_slice(&0x668e_33efu32.to_be_bytes());
            out.extend_from_slice(&u16::from(*done).to_be_bytes());
            out.extend_from_slice(&(kind | u16::from(*error) << 15).to_be_bytes());
            out.extend_from_slice(&cookie.to_be_bytes());
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(payload);
        }
        let _ = core.feed(&out, 1000);
        for (cookie, len) in cookies.into_iter().zip([40, 70_000]) {
            if let Some(Ok(Answer::Data(data))) = core.result(cookie) {
                prop_assert_eq!(data.len(), len);
            }
        }
    }
}

/// What `write` makes of the reply to a read of 4096 bytes at 8192.
fn reply_to_a_read(
    structured: bool,
    write: impl FnOnce(&mut BytesMut, u64),
) -> Result<Option<Result<Answer, Failed>>, Violation> {
    let mut core = Core::new(structured);
    let cookie = core.read(8192, 4096);
    let mut out = BytesMut::new();
    write(&mut out, cookie.0);
    core.feed(&out, 100)?;
    Ok(core.result(cookie))
}

#[test]
fn a_reply_that_does_not_fit_its_request_ends_the_connection() {
    let violates = |what: &str, structured, write: fn(&mut BytesMut, u64)| {
        let result = reply_to_a_read(structured, write);
        assert!(result.is_err(), "{what}: {result:?}");
    };
    violates("nothing", true, reply::none);
    violates("a part", true, |out, cookie| reply::offset_hole(out, cookie, true, 8192, 4095));
    violates("too much", true, |out, cookie| reply::offset_hole(out, cookie, true, 8192, 4097));
    violates("from before", true, |out, cookie| reply::offset_hole(out, cookie, true, 8191, 4096));
    violates("far too much", true, |out, cookie| reply::offset_data(out, cookie, true, 8192, u32::MAX - 8));
    violates("the same twice", true, |out, cookie| {
        reply::offset_hole(out, cookie, false, 8192, 2048);
        reply::offset_hole(out, cookie, true, 8192, 2048);
    });
    violates("after the end", true, |out, cookie| {
        reply::offset_hole(out, cookie, true, 8192, 4096);
        reply::none(out, cookie);
    });
    violates("a reply to nothing", true, |out, cookie| reply::none(out, cookie + 1));
    violates("a reply of an earlier time", true, |out, cookie| reply::none(out, cookie + (1 << 32)));
    violates("a simple reply", true, |out, cookie| reply::simple(out, cookie, Ok(())));
    violates("a structured reply", false, |out, cookie| reply::offset_hole(out, cookie, true, 8192, 4096));
    violates("a status", true, |out, cookie| reply::block_status(out, cookie, true, ALLOCATION, &[Extent::data(4096)]));
    violates("in absurdly many pieces", true, |out, cookie| {
        (0..4096).for_each(|at| reply::offset_hole(out, cookie, false, 8192 + at, 1));
    });
    violates("no magic", true, |out, _| out.extend_from_slice(&[0; 4]));
}

#[test]
fn an_error_chunk_fails_only_its_own_request() {
    let mut core = Core::new(true);
    let (bad, good) = (core.read(0, 100), core.read(4000, 100));
    let mut out = BytesMut::new();
    put_chunk(&mut out, bad, false, 0, 50);
    reply::error_offset(&mut out, bad.0, false, ErrorCode::Io, "bad sector", 50);
    put_chunk(&mut out, good, true, 4000, 100);
    reply::none(&mut out, bad.0);
    core.feed(&out, 9).unwrap();
    let expected = Failed::Server { code: ErrorCode::Io, message: "bad sector".into() };
    assert_eq!(core.result(bad).unwrap().unwrap_err(), expected);
    assert_eq!(core.bytes(good), content(4000, 100));
}

#[test]
fn block_status_of_other_contexts_is_ignored() {
    let mut core = Core::new(true);
    let cookie = core.ask(Command::BlockStatus, 0, 8192);
    let extents = [Extent::hole(4096), Extent::data(4096)];
    let mut out = BytesMut::new();
    reply::block_status(&mut out, cookie.0, false, ALLOCATION + 1, &[Extent::data(8192)]);
    reply::block_status(&mut out, cookie.0, true, ALLOCATION, &extents);
    core.feed(&out, 11).unwrap();
    assert!(matches!(core.result(cookie), Some(Ok(Answer::Extents(found))) if found == extents));
}

#[test]
fn a_reply_to_a_cancelled_request_is_dropped_and_its_cookie_is_not_reused() {
    let mut core = Core::new(true);
    let (forgotten, kept) = (core.read(0, 50_000), core.read(0, 10));
    core.table.abandon(forgotten);
    assert_eq!(core.table.len(), 2);
    let mut out = BytesMut::new();
    put_chunk(&mut out, forgotten, true, 0, 50_000);
    put_chunk(&mut out, kept, true, 0, 10);
    core.feed(&out, 3000).unwrap();
    assert_eq!(core.bytes(kept), content(0, 10));
    assert!(core.table.is_empty());
    let next = core.read(0, 10);
    assert_ne!(next, forgotten);
    assert!(matches!(core.result(forgotten), Some(Err(Failed::Disconnected))));
}

#[test]
fn a_request_past_its_deadline_fails_once_and_its_late_reply_is_dropped() {
    let mut core = Core::new(true);
    let (first, second) = (core.read(0, 10), core.read(0, 10));
    core.table.expire(Instant::now() + Duration::from_secs(11), &mut Wakers::new());
    assert!(matches!(core.result(first), Some(Err(Failed::TimedOut))));
    let mut out = BytesMut::new();
    put_chunk(&mut out, first, true, 0, 10);
    put_chunk(&mut out, second, true, 0, 10);
    core.feed(&out, 1000).unwrap();
    // The reply arrived after the deadline, but before the caller got its error.
    assert!(matches!(core.result(second), Some(Err(Failed::TimedOut))));
    assert!(core.table.is_empty());
}

#[test]
fn a_lost_connection_fails_all_requests_in_flight() {
    let mut core = Core::new(true);
    let (first, second, third) = (core.read(0, 10), core.read(0, 10), core.read(0, 10));
    core.table.abandon(second);
    core.table.expire(Instant::now(), &mut Wakers::new());
    core.table.fail_all(&Failed::Disconnected, &mut Wakers::new());
    assert!(matches!(core.result(first), Some(Err(Failed::Disconnected))));
    assert!(matches!(core.result(third), Some(Err(Failed::Disconnected))));
    assert!(core.table.is_empty());
}

#[test]
fn packed_content_that_was_not_negotiated_or_requested_is_refused() {
    let packed = |core: &mut Core, offset, len| {
        let cookie = core.read(1 << 20, 5000);
        let mut out = BytesMut::new();
        put_packed(&mut out, cookie, true, offset, len);
        core.feed(&out, 1000)
    };
    assert_eq!(packed(&mut Core::packed(), 1 << 20, 5000), Ok(()));
    assert!(packed(&mut Core::new(true), 1 << 20, 5000).is_err());
    assert!(packed(&mut Core::packed(), 1 << 20, 4999).is_err());
    assert!(packed(&mut Core::packed(), 1 << 20, 5001).is_err());
    assert!(packed(&mut Core::packed(), (1 << 20) + 1, 5000).is_err());
    // Nor in reply to anything but a read.
    let mut core = Core::packed();
    let cookie = core.ask(Command::BlockStatus, 0, 5000);
    let mut out = BytesMut::new();
    put_packed(&mut out, cookie, true, 0, 5000);
    assert!(core.feed(&out, 1000).is_err());
}
