//! Records of a peer that has the keys and obeys no rule: content is right or there is an error, and then nothing more.

use std::io;

use cheetah_tls::testing::{Forger, Reader, direction};
use cheetah_tls::{RecordError, Refusal};

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const RECORD_LEN_MAX: usize = 1 << 14;
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const KEY_REQUEST: [u8; 5] = [24, 0, 0, 1, 1];
const TICKET: [u8; 8] = [4, 0, 0, 4, 1, 2, 3, 4];

/// What comes of records, one after the other: the content and why it ended, if it did.
fn read(make: impl FnOnce(&mut Forger) -> Vec<Vec<u8>>) -> (Vec<u8>, Option<io::Error>, Reader) {
    let (mut forger, mut reader) = direction(0);
    let mut content = Vec::new();
    for record in make(&mut forger) {
        reader.receive(&record);
        match reader.take(usize::MAX) {
            Ok(more) => content.extend(more),
            Err(error) => return (content, Some(error), reader),
        }
    }
    (content, None, reader)
}

/// The error that a record causes.
#[track_caller]
fn error(kind: u8, record: &[u8], padding: usize) -> io::Error {
    let (content, error, mut reader) =
        read(|forger| vec![forger.record(DATA, b"before", 0), forger.record(kind, record, padding)]);
    assert_eq!(content, b"before");
    // It stays: what follows is not taken for content.
    assert!(reader.take(100).is_err() && !reader.is_closed());
    error.unwrap()
}

/// Why a record is refused.
#[track_caller]
fn defect(kind: u8, record: &[u8], padding: usize) -> RecordError {
    let error = error(kind, record, padding);
    RecordError::of_error(&error).unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn padding_is_dropped_and_too_much_of_it_refused() {
    let largest = vec![7; RECORD_LEN_MAX];
    for (content, padding) in [(&b"a"[..], 0), (b"a", 1), (b"a", RECORD_LEN_MAX - 1), (b"", 9), (&largest, 0)] {
        let (read, error, _) = read(|forger| vec![forger.record(DATA, content, padding)]);
        assert!(read == content && error.is_none(), "{padding}: {error:?}");
    }
    assert_eq!(defect(DATA, b"a", RECORD_LEN_MAX), RecordError::TooMuchContent);
    assert_eq!(defect(DATA, &largest, 1), RecordError::TooMuchContent);
    assert_eq!(defect(DATA, &vec![7; RECORD_LEN_MAX + 1], 0), RecordError::TooMuchContent);
    assert_eq!(defect(DATA, &vec![7; RECORD_LEN_MAX + 240], 0), RecordError::TooLong);
    assert_eq!(defect(0, b"", 0), RecordError::NoType);
    assert_eq!(defect(0, &[0; 5000], 0), RecordError::NoType);
}

#[test]
fn every_other_type_of_record_or_message_is_refused() {
    for kind in [1, 20, 24, 25, 255] {
        assert_eq!(defect(kind, b"abc", 0), RecordError::UnknownType, "{kind}");
    }
    // Every message of a handshake but tickets and new keys.
    for message in (0..=255u8).filter(|message| ![4, 24].contains(message)) {
        assert_eq!(defect(HANDSHAKE, &[message, 0, 0, 0], 0), RecordError::UnexpectedMessage, "{message}");
    }
    for key_update in [&[24, 0, 0, 0][..], &[24, 0, 0, 1, 2], &[24, 0, 0, 2, 0, 0]] {
        assert_eq!(defect(HANDSHAKE, key_update, 0), RecordError::UnexpectedMessage);
    }
    assert_eq!(defect(HANDSHAKE, b"", 0), RecordError::EmptyMessage);
    assert_eq!(defect(HANDSHAKE, &[4, 1, 0, 1], 0), RecordError::LongMessage);
    // A new key is the last that a record says.
    assert_eq!(defect(HANDSHAKE, &[&KEY_UPDATE[..], &TICKET].concat(), 0), RecordError::UnexpectedMessage);
    assert_eq!(defect(HANDSHAKE, &[&KEY_UPDATE[..], &[24]].concat(), 0), RecordError::UnexpectedMessage);
}

#[test]
fn alerts_end_the_connection_and_only_one_of_them_is_an_end_in_order() {
    for close in [[1, 0], [2, 0]] {
        let (content, error, reader) = read(|forger| {
            vec![forger.record(DATA, b"all", 0), forger.record(ALERT, &close, 0), forger.record(DATA, b"more", 0)]
        });
        assert_eq!(content, b"all", "what follows the end is ignored");
        assert!(error.is_none() && reader.is_closed());
    }
    assert_eq!(Refusal::of_error(&error(ALERT, &[2, 44], 0)), Some(Refusal::Revoked));
    assert_eq!(defect(ALERT, &[1, 90], 0), RecordError::Alert(90));
    for malformed in [&[][..], &[1], &[1, 0, 1, 0], &[0; 100]] {
        assert_eq!(defect(ALERT, malformed, 0), RecordError::MalformedAlert, "{malformed:?}");
    }
    // In clear, as anyone could send it.
    let (mut forger, mut reader) = direction(0);
    reader.receive(&[&forger.record(DATA, b"a", 0)[..], &[21, 3, 3, 0, 2, 1, 0]].concat());
    assert_eq!(reader.take(10).unwrap(), b"a");
    let forged = reader.take(10).unwrap_err();
    assert!(RecordError::of_error(&forged) == Some(RecordError::Clear) && !reader.is_closed(), "{forged}");
}

#[test]
fn messages_in_pieces_are_put_together_and_not_interrupted() {
    let (content, error, reader) = read(|forger| {
        let mut records: Vec<_> = TICKET.iter().map(|byte| forger.record(HANDSHAKE, &[*byte], 3)).collect();
        records.push(forger.record(HANDSHAKE, &[&TICKET[..], &TICKET, &KEY_REQUEST[..3]].concat(), 0));
        records.push(forger.record(HANDSHAKE, &KEY_REQUEST[3..], 0));
        forger.next_key();
        records.push(forger.record(DATA, b"new", 0));
        records
    });
    assert_eq!(content, b"new");
    assert!(error.is_none() && reader.key_wanted());
    for (kind, between) in [(DATA, &b"data"[..]), (DATA, b""), (ALERT, &[1, 0])] {
        let (content, error, reader) =
            read(|forger| vec![forger.record(HANDSHAKE, &TICKET[..5], 0), forger.record(kind, between, 0)]);
        assert!(content.is_empty() && !reader.is_closed());
        assert_eq!(RecordError::of_error(&error.unwrap()), Some(RecordError::Interrupted));
    }
}

#[test]
fn floods_of_records_without_content_end_the_connection() {
    let flood = |kind: u8, bytes: &'static [u8], count: usize| {
        read(move |forger| {
            let mut records = Vec::new();
            for _ in 0..count {
                records.push(forger.record(kind, bytes, 0));
                if bytes == KEY_UPDATE || bytes == KEY_REQUEST {
                    forger.next_key();
                }
            }
            records.push(forger.record(DATA, b"content", 0));
            records
        })
    };
    for (kind, bytes) in [(DATA, &b""[..]), (HANDSHAKE, &KEY_UPDATE), (HANDSHAKE, &KEY_REQUEST), (HANDSHAKE, &TICKET)] {
        assert_eq!(flood(kind, bytes, 32).0, b"content");
        let (content, error, reader) = flood(kind, bytes, 1_000);
        assert!(content.is_empty() && reader.memory() < 4096);
        assert_eq!(RecordError::of_error(&error.unwrap()), Some(RecordError::Idle));
    }
    // A message that never ends.
    let (_, error, reader) = read(|forger| {
        let mut records = vec![forger.record(HANDSHAKE, &[4, 1, 0, 0], 0)];
        records.extend((0..9).map(|_| forger.record(HANDSHAKE, &[0; RECORD_LEN_MAX], 0)));
        records
    });
    assert!(RecordError::of_error(&error.unwrap()) == Some(RecordError::Idle) || reader.memory() < 1 << 18);
}

#[test]
fn a_record_that_is_changed_missing_repeated_or_exchanged_is_never_taken_for_another() {
    let (mut forger, _) = direction(0);
    let records = [b"one", b"two", b"six"].map(|content| forger.record(DATA, content, 0));
    let tampered = |order: &[usize], flip: Option<(usize, usize)>| {
        let (_, mut reader) = direction(0);
        let mut content = Vec::new();
        for (place, record) in order.iter().enumerate() {
            let mut record = records[*record].clone();
            if let Some((_, byte)) = flip.filter(|(at, _)| *at == place) {
                record[byte] ^= 1;
            }
            reader.receive(&record);
        }
        while let Ok(more @ [_, ..]) = reader.take(2).as_deref().map_err(drop) {
            content.extend_from_slice(more);
        }
        // Whatever follows an error stays unread.
        reader.receive(&records[2]);
        assert!(order[..2] == [0, 1] || reader.take(100).is_err());
        content
    };
    assert_eq!(tampered(&[0, 1], None), b"onetwo");
    assert_eq!(tampered(&[1, 2], None), b"");
    assert_eq!(tampered(&[0, 2, 1], None), b"one");
    assert_eq!(tampered(&[0, 0, 1], None), b"one");
    for byte in 0..records[1].len() {
        // A changed length may wait for more bytes; the bytes that follow do not fit.
        let content = tampered(&[0, 1, 2], Some((1, byte)));
        assert_eq!(content, b"one", "byte {byte}");
    }
}

#[test]
fn the_sender_changes_its_key_at_its_limit_and_no_nonce_is_used_twice() {
    let (mut forger, mut reader) = direction(0);
    forger.change_key_after(3);
    for round in 0..100u32 {
        let content = vec![round as u8; 2 * RECORD_LEN_MAX + 5];
        reader.receive(&forger.content(&content).unwrap());
        assert!(reader.take(usize::MAX).unwrap() == content, "round {round}");
    }
    assert!(!reader.key_wanted(), "none is asked for in the other direction");
    // At the end of the numbers there is an error, never a number again.
    let (mut forger, mut reader) = direction(u64::MAX - 1);
    forger.change_key_after(u64::MAX);
    reader.receive(&forger.content(b"last").unwrap());
    assert_eq!(reader.take(100).unwrap(), b"last");
    assert!(forger.content(b"beyond").is_err());
}

#[test]
fn memory_is_bounded_by_what_is_received_at_once() {
    let (mut forger, mut reader) = direction(0);
    for _ in 0..200 {
        let record = forger.record(DATA, &[1; RECORD_LEN_MAX], 0);
        // In pieces, as a slow or hostile peer sends it.
        for piece in record.chunks(999) {
            reader.receive(piece);
            while !reader.take(4000).unwrap().is_empty() {}
        }
        assert!(reader.memory() < 128 << 10, "{}", reader.memory());
    }
}
