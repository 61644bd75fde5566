//! The credentials of this process.
//!
//! The command line sets them once; code that connects or listens finds them here, so that the layers between need not
//! pass them on.

use std::collections::HashMap;
use std::net::SocketAddr;

use parking_lot::RwLock;

use crate::credential::Credential;
use crate::error::TlsError;
use crate::identity::RoomId;
use crate::server::ServerTls;

static STORE: RwLock<Option<Store>> = RwLock::new(None);

#[derive(Debug, Default)]
struct Store {
    default: Option<Credential>,
    rooms: HashMap<RoomId, Credential>,
}

/// Adds a member's credential. It replaces a credential of the same room.
pub fn add(credential: Credential) {
    let mut store = STORE.write();
    if let Some(room) = credential.room() {
        store.get_or_insert_default().rooms.insert(room, credential);
    }
}

/// Adds a credential, and uses it for all connections for which no other is named. With `None`, these are not
/// encrypted.
pub fn set_default(credential: Option<Credential>) {
    if let Some(credential) = &credential {
        add(credential.clone());
    }
    STORE.write().get_or_insert_default().default = credential;
}

/// The credential for connections for which no other is named; `None` if these are not encrypted.
pub fn default() -> Option<Credential> {
    STORE.read().as_ref()?.default.clone()
}

/// TLS for a server that listens on `address` or, if this side dials a client there, connects to it; `None` if it
/// serves without encryption: if the user says `insecure`, or within this machine if the machine is in no room.
///
/// # Errors
///
/// [`TlsError::Exposed`] if the server would be reachable from other machines without encryption.
pub fn server(address: SocketAddr, insecure: bool) -> Result<Option<ServerTls>, TlsError> {
    server_as(default().as_ref(), address, insecure)
}

/// The same with this credential, which need not be the process's.
///
/// # Errors
///
/// As for [`server`].
pub fn server_as(
    credential: Option<&Credential>,
    address: SocketAddr,
    insecure: bool,
) -> Result<Option<ServerTls>, TlsError> {
    if insecure {
        if !address.ip().is_loopback() {
            tracing::warn!("INSECURE: connections at {address} are neither encrypted nor authenticated");
        }
        return Ok(None);
    }
    match credential {
        Some(credential) => credential.server().map(Some),
        None if address.ip().is_loopback() => Ok(None),
        None => Err(TlsError::Exposed(address)),
    }
}

/// All credentials of members.
pub fn all() -> Vec<Credential> {
    STORE.read().iter().flat_map(|store| store.rooms.values().cloned()).collect()
}

/// The credential for a room.
pub fn of_room(room: &RoomId) -> Option<Credential> {
    STORE.read().as_ref()?.rooms.get(room).cloned()
}
