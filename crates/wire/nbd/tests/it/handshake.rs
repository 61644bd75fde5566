//! The two sides of the negotiation, tested against each other and against arbitrary bytes.

use bytes::{Buf, BufMut, BytesMut};
use cheetah_nbd::handshake::BlockSizes;
use cheetah_nbd::handshake::client::{Agreement, ClientHandshake, ExportRequest, Failure, Step as ClientStep};
use cheetah_nbd::handshake::server::{ExportLookup, Offer, Refusal, ServerHandshake, Session, Step as ServerStep};
use cheetah_nbd::proto::{OPTION_MAGIC, OPTION_REPLY_MAGIC, TransmissionFlags, option};
use proptest::prelude::*;

const SIZE: u64 = 12345;
const BLOCKS: BlockSizes = BlockSizes { min: 1, preferred: 8192, payload_max: 1 << 20 };
const INSTANCE: &str = "x-cheetah:instance/0123";

/// One export, "drive", that grants one context.
struct Exports;

impl ExportLookup for Exports {
    type Export = ();

    fn list(&self) -> Vec<String> {
        vec!["drive".into(), "other".into()]
    }

    fn open(&self, name: &str, contexts: &[String]) -> Result<Offer<()>, Refusal> {
        if name != "drive" {
            return Err(Refusal::unknown(format!("no export '{name}'")));
        }
        let contexts = contexts.iter().filter(|context| *context == INSTANCE).cloned().collect();
        let flags = TransmissionFlags::SEND_FLUSH | TransmissionFlags::SEND_DF;
        Ok(Offer { export: (), size: SIZE, flags, description: "a drive".into(), blocks: BLOCKS, contexts })
    }
}

/// Runs both sides, passing at most `at_once` bytes a time from one to the other.
fn negotiate(wanted: ExportRequest, at_once: usize) -> (Result<Agreement, Failure>, Option<Session<()>>) {
    let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
    let (mut server_in, mut client_in) = (BytesMut::new(), BytesMut::new());
    let mut server = ServerHandshake::new(&mut to_client);
    let mut client = ClientHandshake::new(wanted);
    let mut session = None;
    loop {
        let some = at_once.min(to_client.len());
        client_in.put(to_client.split_to(some));
        match client.advance(&mut client_in, &mut to_server) {
            Ok(ClientStep::Read) => {}
            Ok(ClientStep::Done(agreement)) => return (Ok(agreement), session),
            Err(failure) => return (Err(failure), session),
        }
        let some = at_once.min(to_server.len());
        server_in.put(to_server.split_to(some));
        while session.is_none() {
            match server.advance(&mut server_in, &Exports, &mut to_client) {
                ServerStep::Read => break,
                ServerStep::Again => {}
                ServerStep::Enter(entered) => session = Some(entered),
                ServerStep::StartTls => panic!("TLS was not asked for"),
                ServerStep::Close(why) => panic!("the server hung up: {why}"),
            }
        }
    }
}

fn wanted(export: &str, contexts: &[&str]) -> ExportRequest {
    let contexts = contexts.iter().map(|name| (*name).to_owned()).collect();
    ExportRequest { export: export.into(), contexts, ..ExportRequest::default() }
}

#[test]
fn client_and_server_agree_for_any_split_of_the_bytes() {
    for at_once in [1, 2, 7, 1000] {
        let (agreement, session) = negotiate(wanted("drive", &[INSTANCE]), at_once);
        let (agreement, session) = (agreement.unwrap(), session.unwrap());
        assert_eq!((agreement.size, agreement.blocks, agreement.structured), (SIZE, BLOCKS, true));
        assert_eq!(agreement.flags, session.flags);
        assert!(session.flags.has(TransmissionFlags::HAS_FLAGS | TransmissionFlags::SEND_DF));
        let names: Vec<_> = session.contexts.iter().map(|context| context.name.as_str()).collect();
        assert_eq!(names, ["base:allocation", INSTANCE]);
        assert_eq!(agreement.allocation, Some(session.contexts[0].id));
    }
}

#[test]
fn without_a_required_context_the_options_take_one_round_trip() {
    for (contexts, trips_expected) in [(&[][..], 1), (&[INSTANCE][..], 3)] {
        let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
        let mut server = ServerHandshake::new(&mut to_client);
        let mut client = ClientHandshake::new(wanted("drive", contexts));
        let mut trips = 0;
        let agreement = loop {
            match client.advance(&mut to_client, &mut to_server).unwrap() {
                ClientStep::Done(agreement) => break agreement,
                ClientStep::Read => trips += 1,
            }
            while matches!(server.advance(&mut to_server, &Exports, &mut to_client), ServerStep::Again) {}
        };
        assert_eq!((trips, agreement.structured, agreement.allocation.is_some()), (trips_expected, true, true));
    }
}

#[test]
fn a_server_that_refuses_every_option_gets_the_export_name_option() {
    let mut client = ClientHandshake::new(wanted("drive", &[]));
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    input.put_slice(b"NBDMAGICIHAVEOPT\0\x03");
    for asked in [option::STRUCTURED_REPLY, option::SET_META_CONTEXT, option::GO] {
        input.put_u64(OPTION_REPLY_MAGIC);
        input.put_u32(asked);
        input.put_u32(option::ERR_UNSUP);
        input.put_u32(0);
    }
    assert_eq!(client.advance(&mut input, &mut out), Ok(ClientStep::Read));
    assert!(out.ends_with(&send(option::EXPORT_NAME, b"drive")));
    input.put_u64(SIZE);
    input.put_u16(1);
    let Ok(ClientStep::Done(agreement)) = client.advance(&mut input, &mut out) else { panic!() };
    assert_eq!((agreement.size, agreement.structured, agreement.allocation), (SIZE, false, None));
}

#[test]
fn the_error_for_an_unknown_export_lists_the_existing_ones() {
    let (failure, _) = negotiate(wanted("drvie", &[]), 1000);
    let text = failure.unwrap_err().to_string();
    assert_eq!(text, "the server has no export 'drvie'; it has 'drive', 'other'");
}

#[test]
fn the_error_for_a_context_that_is_not_granted_names_it() {
    let (failure, _) = negotiate(wanted("drive", &[INSTANCE, "x-cheetah:instance/4567"]), 1000);
    assert_eq!(failure, Err(Failure::NotGranted("x-cheetah:instance/4567".into())));
}

/// One option as a client sends it.
fn send(number: u32, data: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u64(OPTION_MAGIC);
    out.put_u32(number);
    out.put_u32(data.len() as u32);
    out.put_slice(data);
    out
}

fn name_and(name: &str, rest: &[u8]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend(rest);
    data
}

/// A server past the flags.
fn server(flags: u32) -> ServerHandshake {
    let mut out = BytesMut::new();
    let mut server = ServerHandshake::new(&mut out);
    let mut input = BytesMut::from(&flags.to_be_bytes()[..]);
    assert!(matches!(server.advance(&mut input, &Exports, &mut out), ServerStep::Again));
    server
}

/// Sends one option and returns the kinds of the replies, with the step that followed.
fn ask(server: &mut ServerHandshake, number: u32, data: &[u8]) -> (Vec<u32>, ServerStep<()>) {
    let mut out = BytesMut::new();
    let step = server.advance(&mut send(number, data), &Exports, &mut out);
    let mut kinds = Vec::new();
    while !out.is_empty() {
        assert_eq!((out.get_u64(), out.get_u32()), (OPTION_REPLY_MAGIC, number));
        kinds.push(out.get_u32());
        let len = out.get_u32();
        out.advance(len as usize);
    }
    (kinds, step)
}

#[test]
fn options_are_answered_as_the_specification_requires() {
    let mut server = server(3);
    let no_query = 0u32.to_be_bytes();
    let cases: [(u32, Vec<u8>, Vec<u32>); 13] = [
        (option::STARTTLS, vec![], vec![option::ERR_UNSUP]),
        (option::EXTENDED_HEADERS, vec![], vec![option::ERR_UNSUP]),
        (4711, vec![1, 2, 3], vec![option::ERR_UNSUP]),
        (option::LIST, vec![1], vec![option::ERR_INVALID]),
        (option::LIST, vec![], vec![option::REP_SERVER, option::REP_SERVER, option::REP_ACK]),
        (option::SET_META_CONTEXT, name_and("drive", &no_query), vec![option::ERR_INVALID]),
        (option::STRUCTURED_REPLY, vec![0], vec![option::ERR_INVALID]),
        (option::STRUCTURED_REPLY, vec![], vec![option::REP_ACK]),
        (option::LIST_META_CONTEXT, name_and("drive", &no_query), vec![option::REP_META_CONTEXT, option::REP_ACK]),
        (option::SET_META_CONTEXT, name_and("drive", &no_query), vec![option::REP_ACK]),
        (option::SET_META_CONTEXT, name_and("drive", &33u32.to_be_bytes()), vec![option::ERR_TOO_BIG]),
        (option::INFO, name_and("nothing", &[0, 0]), vec![option::ERR_UNKNOWN]),
        (option::INFO, name_and("drive", &[0, 1, 0, 2]), vec![option::REP_INFO, option::REP_INFO, option::REP_ACK]),
    ];
    for (number, data, expected) in cases {
        let (kinds, step) = ask(&mut server, number, &data);
        assert_eq!(kinds, expected, "option {number} with {data:?}");
        assert!(matches!(step, ServerStep::Again));
    }
    let (kinds, step) = ask(&mut server, option::ABORT, &[]);
    assert_eq!(kinds, [option::REP_ACK]);
    assert!(matches!(step, ServerStep::Close(_)));
}

#[test]
fn contexts_apply_only_to_the_export_they_were_selected_for() {
    let mut server = server(3);
    let query = name_and("drive", &[&1u32.to_be_bytes()[..], &name_and("base:allocation", &[])].concat());
    ask(&mut server, option::STRUCTURED_REPLY, &[]);
    ask(&mut server, option::SET_META_CONTEXT, &query);
    // A query that fails leaves nothing selected.
    ask(&mut server, option::SET_META_CONTEXT, &[1]);
    let (_, step) = ask(&mut server, option::GO, &name_and("drive", &[0, 0]));
    let ServerStep::Enter(session) = step else { panic!("{step:?}") };
    assert!(session.structured && session.contexts.is_empty());
}

#[test]
fn the_export_name_option_pads_unless_no_zeroes_was_negotiated() {
    for (flags, len) in [(1, 134), (3, 10)] {
        let mut out = BytesMut::new();
        let step = server(flags).advance(&mut send(option::EXPORT_NAME, b"drive"), &Exports, &mut out);
        let ServerStep::Enter(session) = step else { panic!("{step:?}") };
        assert_eq!(out.len(), len);
        assert_eq!(out.get_u64(), SIZE);
        assert!(!session.structured && !session.flags.has(TransmissionFlags::SEND_DF));
    }
    let step = server(3).advance(&mut send(option::EXPORT_NAME, b"x"), &Exports, &mut BytesMut::new());
    assert!(matches!(step, ServerStep::Close(_)));
}

#[test]
fn a_client_gets_a_limited_number_of_options() {
    let mut server = server(3);
    let answered = (0..5000).take_while(|_| matches!(ask(&mut server, 4711, &[]).1, ServerStep::Again)).count();
    assert_eq!(answered, 1024);
}

#[test]
fn a_server_without_fixed_newstyle_gets_the_export_name_option() {
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    let mut client = ClientHandshake::new(wanted("drive", &[]));
    // Newstyle, but not fixed: no options.
    input.put_slice(b"NBDMAGICIHAVEOPT\0\0");
    assert_eq!(client.advance(&mut input, &mut out), Ok(ClientStep::Read));
    assert_eq!(out.split(), [&[0; 4][..], &send(option::EXPORT_NAME, b"drive")].concat());
    input.put_u64(SIZE);
    input.put_u16(1);
    input.put_bytes(0, 124);
    let Ok(ClientStep::Done(agreement)) = client.advance(&mut input, &mut out) else { panic!() };
    assert_eq!((agreement.size, agreement.structured, agreement.allocation), (SIZE, false, None));
    assert_eq!(agreement.blocks, BlockSizes::default());
}

#[test]
fn a_server_that_cannot_grant_contexts_is_refused_if_one_is_needed() {
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    input.put_slice(b"NBDMAGICIHAVEOPT\0\0");
    let mut client = ClientHandshake::new(wanted("drive", &[INSTANCE]));
    assert_eq!(client.advance(&mut input, &mut out), Err(Failure::NotGranted(INSTANCE.into())));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_a_server_and_its_answers_are_bounded(
        numbers in prop::collection::vec((0u32..12, prop::collection::vec(any::<u8>(), 0..40)), 0..20),
        tail in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut server = server(3);
        let mut input = BytesMut::new();
        numbers.iter().for_each(|(number, data)| input.put(send(*number, data)));
        input.put_slice(&tail);
        let mut out = BytesMut::new();
        let mut steps = 0;
        while matches!(server.advance(&mut input, &Exports, &mut out), ServerStep::Again) {
            steps += 1;
        }
        prop_assert!(steps <= numbers.len() + 1);
        prop_assert!(out.len() <= (numbers.len() + 1) * 4300);
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_client(
        greeted: bool,
        needs: bool,
        replies in prop::collection::vec((7u32..11, 0u32..12, any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..9),
    ) {
        let mut client = ClientHandshake::new(wanted("drive", if needs { &[INSTANCE] } else { &[] }));
        let mut input = BytesMut::new();
        if greeted {
            input.put_slice(b"NBDMAGICIHAVEOPT\0\x03");
        }
        for (option, kind, error, data) in &replies {
            input.put_u64(OPTION_REPLY_MAGIC);
            input.put_u32(*option);
            input.put_u32(*kind | u32::from(*error) << 31);
            input.put_u32(data.len() as u32);
            input.put_slice(data);
        }
        let mut out = BytesMut::new();
        let _ = client.advance(&mut input, &mut out);
        prop_assert!(out.len() < 1000);
    }
}
