use super::*;
use crate::options::LoginKeys;
use crate::pdu::{Header, Opcode};
use proptest::prelude::*;

fn session(digests: Digests, in_flight_max: usize) -> Session {
    let sequence = Sequence { stat_sn: 0, exp_cmd_sn: 0, max_cmd_sn: 63 };
    let keys = LoginKeys::default();
    Session::new(&NegotiatedLogin { digests, keys, numbers: Numbers::default(), sequence }, 3, in_flight_max)
}

/// Feeds the session the target's bytes, at most `at_once` at a time.
fn feed(session: &mut Session, mut wire: &[u8], at_once: usize) -> Result<(Vec<(u32, Outcome)>, BytesMut), SessionEnd> {
    let (mut input, mut out, mut ended) = (BytesMut::new(), BytesMut::new(), Vec::new());
    while !wire.is_empty() {
        if let Some(len) = session.target().receive_from(&mut wire, at_once, &mut input) {
            session.received(len, &mut input);
        }
        session.take(&mut input, &mut out, &mut ended)?;
    }
    Ok((ended, out))
}

fn sequence(stat_sn: u32) -> Sequence {
    Sequence { stat_sn, exp_cmd_sn: 0, max_cmd_sn: 63 }
}

fn piece(itt: u32, data_sn: u32, offset: usize, status: Option<u8>) -> Header {
    Response::DataIn { itt, status, data_sn, offset: offset as u32, sequence: sequence(0) }.header()
}

fn wire(pdus: &[(Header, &[u8])], digests: Digests) -> BytesMut {
    let mut out = BytesMut::new();
    pdus.iter().for_each(|(header, data)| frame::put(&mut out, *header, data, digests));
    out
}

/// The task tags of the PDUs sent.
fn tags(out: &BytesMut) -> Vec<(u8, u32)> {
    out.chunks(48).map(|header| (header[0] & 0x3F, u32::from_be_bytes(header[16..20].try_into().unwrap()))).collect()
}

#[test]
fn the_window_is_respected_and_moves() {
    let mut session = session(Digests::default(), 1000);
    let mut out = BytesMut::new();
    let mut count = 0;
    while session.has_room() {
        session.submit(&Cdb::TestUnitReady, 0, &mut out);
        count += 1;
    }
    assert_eq!(count, 64);
    let end = |itt, max_cmd_sn| {
        let sequence = Sequence { stat_sn: itt, exp_cmd_sn: 64, max_cmd_sn };
        Response::Scsi { itt, response: 0, status: GOOD, sequence }.header()
    };
    // A shrinking or invalid window is ignored.
    for (itt, max_cmd_sn, room) in [(1, 10, false), (2, 62, false), (3, 63, false), (4, 64, true)] {
        feed(&mut session, &wire(&[(end(itt, max_cmd_sn), &[])], Digests::default()), 999).unwrap();
        assert_eq!(session.has_room(), room, "{max_cmd_sn}");
    }
}

#[test]
fn the_configured_limit_is_respected() {
    let mut session = session(Digests::default(), 2);
    let mut out = BytesMut::new();
    while session.has_room() {
        session.submit(&Cdb::TestUnitReady, 0, &mut out);
    }
    assert_eq!(tags(&out), [(1, 1), (1, 2)]);
}

#[test]
fn commands_carry_rising_numbers_and_pings_do_not() {
    let mut session = session(Digests::default(), 9);
    let mut out = BytesMut::new();
    session.submit(&Cdb::TestUnitReady, 0, &mut out);
    session.ping(&mut out);
    session.ping(&mut out);
    session.submit(&Cdb::TestUnitReady, 0, &mut out);
    let numbers: Vec<u32> = out.chunks(48).map(|h| u32::from_be_bytes(h[24..28].try_into().unwrap())).collect();
    assert_eq!(tags(&out), [(1, 1), (0, 2), (1, 3)]);
    assert_eq!(numbers, [0, 1, 1]);
    assert!(out[48] & 0x40 != 0 && out[0] & 0x40 == 0);
    // The next ping is sent once this one is answered.
    let pong = Response::NopIn { itt: 2, ttt: NO_TAG, lun: [0; 8], sequence: sequence(0) }.header();
    feed(&mut session, &wire(&[(pong, &[])], Digests::default()), 999).unwrap();
    out.clear();
    session.ping(&mut out);
    assert_eq!(tags(&out), [(0, 4)]);
}

#[test]
fn a_flood_of_pings_ends_the_session() {
    let mut session = session(Digests::default(), 9);
    let ping = Response::NopIn { itt: NO_TAG, ttt: 5, lun: [0; 8], sequence: sequence(0) }.header();
    let flood = wire(&vec![(ping, &[][..]); 50_000], Digests::default());
    assert!(matches!(feed(&mut session, &flood, 1 << 20), Err(SessionEnd::Violation(_))));
}

#[test]
fn an_unrequested_response_ends_the_session() {
    let text = Response::Text { itt: 1, last: true, more: false, ttt: NO_TAG, sequence: sequence(0) };
    let logout = Response::Logout { itt: 1, response: 0, sequence: sequence(0) };
    let other = Response::Scsi { itt: 77, response: 0, status: 0, sequence: sequence(0) };
    let pong = Response::NopIn { itt: 1, ttt: NO_TAG, lun: [0; 8], sequence: sequence(0) };
    for response in [text, logout, other, pong, Response::ReadyToTransfer { itt: 1 }] {
        let mut session = session(Digests::default(), 9);
        session.submit(&Cdb::read(0, 1), 512, &mut BytesMut::new());
        let wire = wire(&[(response.header(), &[])], Digests::default());
        assert!(matches!(feed(&mut session, &wire, 99), Err(SessionEnd::Violation(_))), "{response:?}");
    }
    let mut long = Header::new(Opcode::ScsiResponse);
    long.set_data_len((1 << 24) - 1);
    assert!(feed(&mut session(Digests::default(), 9), &long.0, 99).is_err());
    assert!(feed(&mut session(Digests::default(), 9), &[0x1F; 300], 99).is_err());
}

#[derive(Debug, Clone)]
struct Read {
    len: usize,
    piece_len: usize,
    status_apart: bool,
}

fn read() -> impl Strategy<Value = Read> {
    (1usize..90_000, 1usize..40_000, any::<bool>()).prop_map(|(len, piece_len, status_apart)| Read {
        len,
        piece_len: piece_len.max(len / 50 + 1),
        status_apart,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Data of several reads may arrive in any order and in any pieces.
    #[test]
    fn reads_return_what_was_sent(
        reads in prop::collection::vec(read(), 1..8),
        order in any::<u64>(),
        at_once in 1usize..100_000,
        header: bool,
        data: bool,
    ) {
        let digests = Digests { header, data };
        let at_once = at_once.max(500);
        let mut session = session(digests, 32);
        let mut sent = BytesMut::new();
        let content: Vec<Vec<u8>> =
            reads.iter().enumerate().map(|(n, read)| (0..read.len).map(|at| (at * 7 + n) as u8).collect()).collect();
        let mut queues: Vec<Vec<(Header, &[u8])>> = Vec::new();
        for (read, content) in reads.iter().zip(&content) {
            let itt = session.submit(&Cdb::read(0, 1), read.len as u32, &mut sent);
            let pieces = content.chunks(read.piece_len).enumerate();
            let last = content.len().div_ceil(read.piece_len) - 1;
            let mut queue: Vec<_> = pieces.map(|(n, bytes)| {
                let status = (n == last && !read.status_apart).then_some(GOOD);
                (piece(itt, n as u32, n * read.piece_len, status), bytes)
            }).collect();
            if read.status_apart {
                queue.push((Response::Scsi { itt, response: 0, status: GOOD, sequence: sequence(0) }.header(), &[]));
            }
            queue.reverse();
            queues.push(queue);
        }
        let (mut pdus, mut order) = (Vec::new(), order);
        while !queues.iter().all(Vec::is_empty) {
            order = order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let index = (order >> 33) as usize % queues.len();
            pdus.extend(queues[index].pop());
        }
        let (ended, out) = feed(&mut session, &wire(&pdus, digests), at_once).unwrap();
        prop_assert!(out.is_empty());
        prop_assert_eq!(ended.len(), reads.len());
        for (itt, outcome) in ended {
            prop_assert_eq!(outcome, Outcome::Good(content[itt as usize - 1].clone().into()));
        }
        prop_assert!(session.tasks.is_empty());
    }

    /// With digests on headers and data, a flipped bit never becomes data.
    #[test]
    fn a_flipped_bit_never_comes_through(len in 1usize..40_000, flip in any::<usize>(), at_once in 1usize..50_000) {
        let digests = Digests { header: true, data: true };
        let mut session = session(digests, 32);
        let itt = session.submit(&Cdb::read(0, 1), len as u32, &mut BytesMut::new());
        let content = vec![0x5A; len];
        let mut wire = wire(&[(piece(itt, 0, 0, Some(GOOD)), &content)], digests);
        let bit = flip % (wire.len() * 8);
        wire[bit / 8] ^= 1 << (bit % 8);
        if let Ok((ended, _)) = feed(&mut session, &wire, at_once.max(200)) {
            prop_assert!(ended.is_empty());
        }
    }

    #[test]
    fn whatever_comes_is_dealt_with(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        code in prop::sample::select(&[0x20u8, 0x21, 0x25, 0x32, 0x3F, 0x31][..]),
        itt in 0u32..4,
        len in 0u8..80,
        at_once in 1usize..400,
    ) {
        let mut session = session(Digests::default(), 4);
        for _ in 0..3 {
            session.submit(&Cdb::read(0, 1), 64, &mut BytesMut::new());
        }
        let mut bytes = bytes;
        if let Some(header) = bytes.first_chunk_mut::<48>() {
            header[0] = code;
            header[4..8].copy_from_slice(&[0, 0, 0, len]);
            header[16..20].copy_from_slice(&itt.to_be_bytes());
            header[36..44].fill(0);
        }
        if let Ok((ended, _)) = feed(&mut session, &bytes, at_once) {
            for (_, outcome) in ended {
                if let Outcome::Good(data) | Outcome::Check(_, data) = outcome {
                    prop_assert!(data.len() <= 64);
                }
            }
        }
    }
}
