use super::*;
use crate::pdu::{Header, NO_TAG};
use crate::uri::Password;
use proptest::prelude::*;

const ISID: [u8; 6] = [0x80, 1, 2, 3, 4, 5];

fn parameters(user: Option<(&str, &str)>) -> LoginParameters {
    let credentials =
        user.map(|(user, password)| Credentials { user: user.into(), password: Some(Password::new(password)) });
    let (initiator, target) = ("iqn.x:me".into(), Some("iqn.x:disk".into()));
    LoginParameters { initiator, target, credentials, isid: ISID, keys: LoginKeys::default() }
}

/// A target's response: flags (bits of transit, more, stage, next) and keys.
type Said = (bool, bool, u8, u8, &'static [(&'static str, &'static str)]);

fn pdu(said: &Said, stat_sn: u32) -> (Header, BytesMut) {
    let &(transit, more, stage, next, keys) = said;
    let sequence = Sequence { stat_sn, exp_cmd_sn: 0, max_cmd_sn: 9 };
    let response = Response::Login {
        itt: ITT,
        transit,
        more,
        stage,
        next,
        version_active: 0,
        isid: ISID,
        tsih: 1,
        class: 0,
        detail: 0,
        sequence,
    };
    let mut text = BytesMut::new();
    keys.iter().for_each(|(key, value)| text::put(&mut text, key, value));
    (response.header(), text)
}

/// A request's flags and keys.
type Sent = (u8, Vec<String>);

/// Logs in at a target that sends these responses; returns the result and the PDUs sent.
fn log_in(parameters: LoginParameters, says: &[Said]) -> (Result<Step, LoginError>, Vec<Sent>) {
    let (mut out, mut requests) = (BytesMut::new(), Vec::new());
    let mut login = Login::start(parameters, &mut out);
    let mut step = Ok(Step::Read);
    for (number, said) in says.iter().enumerate() {
        note(&mut out, &mut requests);
        let (header, text) = pdu(said, number as u32);
        let mut input = BytesMut::new();
        frame::put(&mut input, header, &text, Digests::default());
        step = login.advance(&mut input, &mut out);
        if step.is_err() {
            break;
        }
    }
    note(&mut out, &mut requests);
    (step, requests)
}

fn note(out: &mut BytesMut, requests: &mut Vec<Sent>) {
    while let Some((header, data)) = frame::take_plain(out, 1 << 16).unwrap() {
        let keys = text::parse(&data).unwrap().into_iter().map(|(key, value)| format!("{key}={value}"));
        requests.push((header.0[1], keys.collect()));
    }
}

const OPERATIONAL: Said = (true, false, 1, 3, &[("HeaderDigest", "CRC32C"), ("DataDigest", "None")]);

#[test]
fn a_login_without_credentials_takes_two_rounds() {
    let (step, requests) = log_in(parameters(None), &[(true, false, 0, 1, &[("AuthMethod", "None")]), OPERATIONAL]);
    let Ok(Step::Done(agreement)) = step else { panic!("{step:?}") };
    assert_eq!(agreement.digests, Digests { header: true, data: false });
    assert_eq!((agreement.numbers.exp_stat_sn, agreement.sequence.max_cmd_sn), (2, 9));
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].0, 0x81);
    assert!(requests[0].1.contains(&"TargetName=iqn.x:disk".to_owned()));
    assert_eq!(requests[1].0, 0x87);
    assert!(requests[1].1.contains(&"DataDigest=CRC32C,None".to_owned()));
}

#[test]
fn chap_answers_the_challenge() {
    let (step, requests) = log_in(
        parameters(Some(("ann", "secret"))),
        &[
            (false, false, 0, 0, &[("TargetPortalGroupTag", "1"), ("AuthMethod", "CHAP")]),
            (false, false, 0, 0, &[("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", "0x000102")]),
            (true, false, 0, 1, &[]),
            OPERATIONAL,
        ],
    );
    assert!(matches!(step, Ok(Step::Done(_))), "{step:?}");
    assert!(requests[0].1.contains(&"AuthMethod=CHAP,None".to_owned()));
    assert_eq!(requests[1], (0x00, vec!["CHAP_A=5".to_owned()]));
    let answer = ["CHAP_N=ann".to_owned(), "CHAP_R=0xc4081e0c9f89346155ddb08f0bf91611".to_owned()];
    assert_eq!(requests[2], (0x81, answer.to_vec()));
}

#[test]
fn unrequested_credentials_are_not_sent() {
    let says = [(false, false, 0, 0, &[("AuthMethod", "None")][..]), (true, false, 0, 1, &[]), OPERATIONAL];
    let (step, requests) = log_in(parameters(Some(("ann", "secret"))), &says);
    assert!(matches!(step, Ok(Step::Done(_))), "{step:?}");
    assert!(!requests.iter().any(|(_, keys)| keys.iter().any(|key| key.starts_with("CHAP"))), "{requests:?}");
}

#[test]
fn a_text_in_several_pdus_is_joined() {
    let (step, requests) = log_in(
        parameters(None),
        &[
            (true, false, 0, 1, &[]),
            (false, true, 1, 0, &[("HeaderDigest", "CRC32C")]),
            (false, false, 1, 0, &[("DataDigest", "CRC32C")]),
            (true, false, 1, 3, &[]),
        ],
    );
    let Ok(Step::Done(agreement)) = step else { panic!("{step:?}") };
    assert_eq!(agreement.digests, Digests { header: true, data: true });
    // An empty request without the transit bit asks for the rest.
    assert_eq!(requests[2], (0x04, vec![]));
}

#[test]
fn an_invalid_login_response_fails_the_login() {
    let chap = Some(("ann", "secret"));
    let challenged: Said = (false, false, 0, 0, &[("AuthMethod", "CHAP")]);
    for (user, says) in [
        // Stages that were not requested, or do not exist.
        (None, vec![(true, false, 0, 3, &[][..])]),
        (None, vec![(true, false, 0, 0, &[])]),
        (None, vec![(true, false, 1, 3, &[])]),
        (None, vec![(true, true, 0, 1, &[])]),
        // Methods that were not offered.
        (None, vec![(false, false, 0, 0, &[("AuthMethod", "KRB5")])]),
        (None, vec![challenged]),
        // Invalid CHAP.
        (chap, vec![challenged, (false, false, 0, 0, &[("CHAP_A", "7")])]),
        (chap, vec![challenged, (false, false, 0, 0, &[("CHAP_A", "5"), ("CHAP_I", "1")])]),
        (chap, vec![challenged, (false, false, 0, 0, &[("CHAP_I", "256"), ("CHAP_C", "0x00")])]),
        (chap, vec![challenged, (false, false, 0, 0, &[("CHAP_I", "1"), ("CHAP_C", "00")])]),
        (chap, vec![challenged, (true, false, 0, 1, &[])]),
        // Answers that were not offered.
        (None, vec![(true, false, 0, 1, &[]), (true, false, 1, 3, &[("DataDigest", "MD5")])]),
        // Endless login.
        (None, vec![(false, false, 0, 0, &[]); 40]),
        (None, vec![(false, true, 0, 0, &[("TargetAlias", "x")]); 40]),
    ] {
        let (step, _) = log_in(parameters(user), &says);
        assert!(step.is_err(), "{says:?}: {step:?}");
    }
}

fn numbers() -> NegotiatedLogin {
    let (numbers, sequence) = (Numbers::default(), Sequence::default());
    NegotiatedLogin { digests: Digests::default(), keys: LoginKeys::default(), numbers, sequence }
}

#[test]
fn a_list_of_targets_in_several_pdus_is_joined() {
    let mut out = BytesMut::new();
    let mut discovery = Discovery::start(numbers(), &mut out);
    assert!(out.ends_with(b"SendTargets=All\0"));
    let mut input = BytesMut::new();
    let part = |last, ttt| Response::Text { itt: 1, last, more: !last, ttt, sequence: Sequence::default() }.header();
    frame::put(&mut input, part(false, 7), b"TargetName=iqn.x:a\0TargetAddr", Digests::default());
    out.clear();
    assert_eq!(discovery.advance(&mut input, &mut out), Ok(None));
    // The initiator requests the continuation, with the target's tag.
    assert_eq!(out[20..24], 7u32.to_be_bytes());
    frame::put(&mut input, part(true, NO_TAG), b"ess=1.2.3.4:3260,1\0TargetName=iqn.x:b\0", Digests::default());
    let targets = vec!["'iqn.x:a'".to_owned(), "'iqn.x:b'".to_owned()];
    assert_eq!(discovery.advance(&mut input, &mut out), Ok(Some(targets)));
}

proptest! {
    #[test]
    fn whatever_comes_is_dealt_with(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        flags: u8,
        len in 0u8..200,
        user: bool,
    ) {
        let mut bytes = bytes;
        for code in [0x23, 0x24] {
            if let Some(header) = bytes.first_chunk_mut::<48>() {
                header[..2].copy_from_slice(&[code, flags]);
                header[4..8].copy_from_slice(&[0, 0, 0, len]);
                header[8..14].copy_from_slice(&ISID);
                header[16..20].copy_from_slice(&[0, 0, 0, u8::from(code == 0x24)]);
                header[36] = 0;
            }
            let mut out = BytesMut::new();
            let mut login = Login::start(parameters(user.then_some(("a", "b"))), &mut out);
            let _ = login.advance(&mut BytesMut::from(&bytes[..]), &mut out);
            let _ = Discovery::start(numbers(), &mut out).advance(&mut BytesMut::from(&bytes[..]), &mut out);
        }
    }

    #[test]
    fn keys_that_come_byte_by_byte_are_the_same(cut in 1usize..90) {
        let mut wire = BytesMut::new();
        for (number, said) in [(true, false, 0, 1, &[("AuthMethod", "None")][..]), OPERATIONAL].iter().enumerate() {
            let (header, text) = pdu(said, number as u32);
            frame::put(&mut wire, header, &text, Digests::default());
        }
        let mut out = BytesMut::new();
        let mut login = Login::start(parameters(None), &mut out);
        let (mut input, mut last) = (BytesMut::new(), None);
        for part in wire.chunks(cut) {
            input.extend_from_slice(part);
            last = Some(login.advance(&mut input, &mut out).unwrap());
        }
        prop_assert!(matches!(last, Some(Step::Done(_))));
    }
}
