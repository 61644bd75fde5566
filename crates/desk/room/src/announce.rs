//! Rooms on the local network, by mDNS: a machine without an invitation finds where to ask.
//!
//! An announcement names the room, its id and the port of its enrolment server, all of which the server tells everyone
//! who connects. It proves nothing: comparing codes decides whether it is the right room.

use std::net::SocketAddr;
use std::time::Duration;

use cheetah_control::mdns::{Announcement, addresses, browse, service};
use cheetah_error::{Error, Result, next};
use mdns_sd::{ResolvedService, ServiceInfo};

use crate::invitation::Host;
use crate::machine::check_room_name;
use crate::room::Room;

/// The service type of enrolment servers. Its TXT keys: `room` (name), `id`.
const SERVICE: &str = "_cheetah-room._tcp.local.";

/// A room that is announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// Its name.
    pub room: String,
    /// The address of the enrolment server.
    pub at: (Host, u16),
}

/// Announces the enrolment server of a room at `listen`, until the result is dropped.
///
/// # Errors
///
/// If the mDNS library fails.
pub fn announce(room: &Room, listen: SocketAddr) -> Result<Announcement> {
    let made = described(room.name(), &room.id().to_string(), listen);
    made.and_then(|service| Announcement::start(service, listen.ip())).map_err(|error| failed(&error))
}

fn described(room: &str, id: &str, listen: SocketAddr) -> mdns_sd::Result<ServiceInfo> {
    let id_short = id.get(..8).unwrap_or_default();
    let host = format!("cheetah-room-{id_short}.local.");
    service(SERVICE, &format!("{room} {id_short}"), &host, listen, &[("room", room.to_owned()), ("id", id.to_owned())])
}

/// Listens for announcements of rooms.
///
/// # Errors
///
/// If the mDNS library fails.
pub async fn find(duration: Duration) -> Result<Vec<Announced>> {
    let services = browse(SERVICE, duration).await.map_err(|error| failed(&error))?;
    Ok(services.iter().filter_map(parse).collect())
}

fn parse(service: &ResolvedService) -> Option<Announced> {
    let room = service.txt_properties.get_property_val_str("room").filter(|room| check_room_name(room).is_ok())?;
    let address = addresses(service).first().copied()?;
    let port = Some(service.get_port()).filter(|port| *port != 0)?;
    Some(Announced { room: room.to_owned(), at: (Host::Ip(address), port) })
}

fn failed(error: &mdns_sd::Error) -> Error {
    Error::failed(format!("mDNS: {error}")).next(next::Room::NameMachine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_tells_the_rooms_name_and_id_and_nothing_else() {
        let service = described("lab", &"ab".repeat(16), "10.0.0.5:10812".parse().unwrap()).unwrap();
        let texts: Vec<_> = service.get_properties().iter().map(|text| (text.key(), text.val_str())).collect();
        assert_eq!(texts, [("room", "lab"), ("id", &*"ab".repeat(16))]);
        assert_eq!(service.get_port(), 10812);
    }
}
