//! What is around the program: the clock, ports, and rooms.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use cheetah_device::program;
use cheetah_error::Result;
use cheetah_nbd::uri::PORT as NBD_PORT;
use cheetah_room::credentials::stored_credentials;
use cheetah_room::machine::PORT as ROOM_PORT;
use cheetah_room::room::Room;

use crate::answers::doctor::{Check, State};
use crate::commands::options::JOIN_PORT;
use crate::commands::watch;

/// The ports at which verbs listen, if they are not told otherwise.
const PORTS: [u16; 5] = [NBD_PORT, NBD_PORT + 1, JOIN_PORT, ROOM_PORT, watch::PORT];

/// Whether systemd says that the clock is synchronized; `None` if there is no systemd.
pub fn synchronized() -> Option<bool> {
    let mut command = Command::new(program::find("timedatectl")?);
    command.args(["show", "--property=NTPSynchronized", "--value"]).stdin(Stdio::null()).stderr(Stdio::null());
    match command.output().ok()?.stdout.trim_ascii() {
        b"yes" => Some(true),
        b"no" => Some(false),
        _ => None,
    }
}

/// Whether the times in logs and reports are right.
pub fn clock(synchronized: Option<bool>) -> Check {
    let check = |finding: &str| Check::works("time", &["acquire", "triage", "custody"], finding);
    match synchronized {
        Some(true) => check("the clock is synchronized"),
        Some(false) => check("the clock is not synchronized: times in custody logs and reports may be wrong")
            .but(State::Fails, "timedatectl set-ntp true; or compare it with another clock, and note the difference"),
        None => check("this system does not say whether the clock is synchronized")
            .but(State::Unknown, "compare it with another clock, and note the difference"),
    }
}

/// The usual ports that are in use.
pub fn used_ports() -> Vec<u16> {
    let is_used = |port: &u16| {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    };
    PORTS.into_iter().filter(is_used).collect()
}

/// Whether nodes, agents, the room's machine and the pages of this program can listen at their usual ports.
pub fn ports(used: &[u16]) -> Check {
    let listed = |ports: &[u16]| ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let check =
        |finding: String| Check::works("ports", &["node", "serve", "export", "create", "room serve", "watch"], finding);
    match used {
        [] => check(format!("ports {} are free", listed(&PORTS))),
        used => check(format!("in use, by Cheetah or another program: port {}", listed(used)))
            .but(State::Note, "name another with --listen ADDRESS:PORT; ss -ltnp shows the program"),
    }
}

/// The names of this user's rooms and of the rooms that it is in.
pub fn known_rooms() -> Result<Vec<String>> {
    let mut names = Room::names()?;
    names.iter().try_for_each(|name| Room::open(name).map(drop))?;
    names.extend(stored_credentials()?.into_iter().map(|stored| stored.room));
    names.sort();
    names.dedup();
    Ok(names)
}

/// Whether this user is in a room, without which machines cannot connect to each other.
pub fn rooms(known: Result<Vec<String>>) -> Check {
    let check = |finding: String| Check::works("room", &["node", "serve", "create", "acquire"], finding);
    match known {
        Err(error) => check(error.to_string()).but(
            State::Fails,
            match cheetah_words::clauses(error.steps()) {
                steps if steps.is_empty() => "mend that, or join the room again".into(),
                steps => steps,
            },
        ),
        Ok(names) if names.is_empty() => check("this user is in no room, so Cheetah stays on this machine".into())
            .but(State::Note, "make one with cheetah room init NAME, or join one with cheetah room join STRING"),
        Ok(names) => check(format!("this user is in {}", cheetah_error::list(&names))),
    }
}

#[cfg(test)]
mod tests {
    use cheetah_error::Error;

    use super::*;
    use crate::commands::options::JOIN_ADDRESS;

    #[test]
    fn only_what_is_wrong_fails() {
        let states = [clock(Some(true)), clock(None), clock(Some(false))].map(|check| check.state);
        assert_eq!(states, [State::Works, State::Unknown, State::Fails]);
        assert_eq!(ports(&[]).finding, "ports 10809, 10810, 10811, 10812, 10814 are free");
        assert_eq!(ports(&[10809]).state, State::Note);
        assert_eq!(ports(&[10814]).state, State::Note);
        let states = [rooms(Ok(vec!["lab".into()])), rooms(Ok(Vec::new())), rooms(Err(Error::failed("it is damaged")))];
        assert_eq!(states.map(|check| check.state), [State::Works, State::Note, State::Fails]);
    }

    #[test]
    fn the_usual_ports_are_those_of_the_usual_addresses() {
        for (address, port) in [(JOIN_ADDRESS, JOIN_PORT), (watch::ADDRESS, watch::PORT)] {
            assert_eq!(address.rsplit_once(':').unwrap().1, port.to_string());
        }
    }
}
