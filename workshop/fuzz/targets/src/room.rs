//! Untrusted input of a room and its members: invitations, codes, the messages of enrolment, and the room's own files
//! after an edit. Parsing does not panic, and a value that parses prints as its input.

use cheetah_room::pending::{Code, Pending};
use cheetah_room::register::Register;
use cheetah_room::wire::{Begin, Enrol, Enrolled, Reveal};
use cheetah_room::{Host, Invitation, PublicKey};
use cheetah_tls::{Credential, Fingerprint};

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(data) else {
        if choice % 2 == 0 {
            let _ = Credential::from_pem(data);
        }
        return;
    };
    match choice % 6 {
        0 => {
            if let Ok(parsed) = text.parse::<Invitation>() {
                let again: Invitation = parsed.to_string().parse().unwrap();
                assert_eq!((again.hosts, again.port, again.room_key), (parsed.hosts, parsed.port, parsed.room_key));
            }
        }
        1 => {
            if let Some(code) = Code::parse(text) {
                assert_eq!(Code::parse(&code.to_string()), Some(code));
            }
            let _ = (text.parse::<Host>(), PublicKey::parse(text));
        }
        2 => {
            let room = Fingerprint([7; 32]);
            let _ = serde_json::from_str::<Enrol>(text).map(|enrol| enrol.claims.proven_key(&room));
            let _ = serde_json::from_str::<Reveal>(text).map(|reveal| reveal.claims.proven_key(&room));
            let _ = (serde_json::from_str::<Begin>(text), serde_json::from_str::<Enrolled>(text));
        }
        3 => {
            if let Ok(register) = Register::decode(text) {
                assert_eq!(Register::decode(&register.encode().unwrap()), Ok(register));
            }
        }
        4 => {
            if let Ok(pending) = Pending::decode(text) {
                assert_eq!(Pending::decode(&pending.encode().unwrap()), Ok(pending));
            }
        }
        _ => drop(Credential::from_pem(data)),
    }
}
