//! A hostile iSCSI target, from the login on: the initiator does not panic, returns at most the requested bytes, and
//! does not answer without bound.

use bytes::BytesMut;
use cheetah_iscsi::login::{Discovery, Login, LoginParameters, NegotiatedLogin, Step};
use cheetah_iscsi::pdu::request::Numbers;
use cheetah_iscsi::pdu::{Digests, Sequence};
use cheetah_iscsi::scsi::{Capacity, Cdb, Standard, serial_number};
use cheetah_iscsi::session::{OTHER_LEN_MAX, Outcome, Session};
use cheetah_iscsi::{Credentials, IscsiUri, LoginKeys, Password};

const ISID: [u8; 6] = [0x80, 0, 0, 0, 0, 0];
const READS: [u32; 4] = [64, 512, 40_000, 1 << 20];

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let at_once = usize::from(choice >> 4) * 600 + 1;
    match choice & 3 {
        0 => log_in(data, choice & 4 != 0),
        1 => discover(data),
        2 => {
            if let Ok(text) = std::str::from_utf8(data) {
                let _ = text.parse::<IscsiUri>().map(|uri| uri.to_string());
            }
        }
        _ => read(data, at_once, choice & 4 != 0),
    }
}

fn agreement(digests: Digests) -> NegotiatedLogin {
    let sequence = Sequence { stat_sn: 0, exp_cmd_sn: 0, max_cmd_sn: 31 };
    NegotiatedLogin { digests, keys: LoginKeys::default(), numbers: Numbers::default(), sequence }
}

fn log_in(data: &[u8], known: bool) {
    let credentials = known.then(|| Credentials { user: "ann".into(), password: Some(Password::new("secret")) });
    let (initiator, target) = ("iqn.x:me".into(), Some("iqn.x:disk".into()));
    let parameters = LoginParameters { initiator, target, credentials, isid: ISID, keys: LoginKeys::default() };
    let (mut input, mut out) = (BytesMut::from(data), BytesMut::new());
    let mut login = Login::start(parameters, &mut out);
    if let Ok(Step::Done(agreement)) = login.advance(&mut input, &mut out) {
        // Bytes after the end of the login belong to the session.
        carry(Session::new(&agreement, 0, 8), &input, 999);
    }
    assert!(out.len() < 1 << 20);
}

fn discover(data: &[u8]) {
    let mut out = BytesMut::new();
    let mut discovery = Discovery::start(agreement(Digests::default()), &mut out);
    let _ = discovery.advance(&mut BytesMut::from(data), &mut out);
    assert!(out.len() < 1 << 20);
}

fn read(data: &[u8], at_once: usize, digests: bool) {
    carry(Session::new(&agreement(Digests { header: false, data: digests }), 0, 8), data, at_once);
}

fn carry(mut session: Session, mut data: &[u8], at_once: usize) {
    let (mut input, mut out, mut ended) = (BytesMut::new(), BytesMut::new(), Vec::new());
    let mut asked = Vec::new();
    for len in READS {
        if session.has_room() {
            asked.push((session.submit(&Cdb::read(0, 1), len, &mut out), len));
        }
    }
    session.ping(&mut out);
    while !data.is_empty() {
        if let Some(len) = session.target().receive_from(&mut data, at_once, &mut input) {
            session.received(len, &mut input);
        }
        if session.take(&mut input, &mut out, &mut ended).is_err() {
            break;
        }
        assert!(input.len() < OTHER_LEN_MAX + (1 << 20));
    }
    for (itt, outcome) in ended {
        let (_, len) = asked.iter().find(|(asked, _)| *asked == itt).expect("only a sent command ends");
        if let Outcome::Good(data) | Outcome::Check(_, data) = outcome {
            assert!(data.len() <= *len as usize);
            let _ = (Standard::parse(&data), Capacity::parse16(&data), serial_number(&data));
        }
    }
    assert!(out.len() < 2 << 20);
}
