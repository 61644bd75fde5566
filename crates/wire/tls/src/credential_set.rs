//! The credentials with which a program connects and listens.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::credential::Credential;
use crate::error::TlsError;
use crate::identity::RoomId;
use crate::server::ServerTls;

/// The credential that a program acts as, and those of other rooms, whose servers it may have to reach. The program makes
/// them once and hands them down. By default there are none, and connections are not encrypted.
#[derive(Debug, Clone, Default)]
pub struct CredentialSet {
    acting_as: Option<Credential>,
    rooms: Arc<HashMap<RoomId, Credential>>,
}

impl From<Option<Credential>> for CredentialSet {
    /// Those of a program that knows no other room.
    fn from(acting_as: Option<Credential>) -> Self {
        Self::new(acting_as, [])
    }
}

impl CredentialSet {
    /// `acting_as` is for all connections for which no room is named; if it is `None`, these are not encrypted. Of the others,
    /// a later one replaces an earlier one of the same room.
    pub fn new(acting_as: Option<Credential>, others: impl IntoIterator<Item = Credential>) -> Self {
        let all = others.into_iter().chain(acting_as.clone());
        let rooms = all.filter_map(|credential| Some((credential.room()?, credential)));
        Self { rooms: Arc::new(rooms.collect()), acting_as }
    }

    /// The credential for connections for which no other is named; `None` if these are not encrypted.
    pub fn acting_as(&self) -> Option<&Credential> {
        self.acting_as.as_ref()
    }

    /// All credentials of members.
    pub fn all(&self) -> impl Iterator<Item = &Credential> {
        self.rooms.values()
    }

    /// The credential for a room.
    pub fn of_room(&self, room: &RoomId) -> Option<&Credential> {
        self.rooms.get(room)
    }

    /// TLS for a server that listens on `address` or, if this side dials a client there, connects to it; `None` if it
    /// serves without encryption: if the user says `insecure`, or within this machine if the program is in no room.
    ///
    /// # Errors
    ///
    /// [`TlsError::Exposed`] if the server would be reachable from other machines without encryption.
    pub fn server(&self, address: SocketAddr, insecure: bool) -> Result<Option<ServerTls>, TlsError> {
        if insecure {
            if !address.ip().is_loopback() {
                tracing::warn!("INSECURE: connections at {address} are neither encrypted nor authenticated");
            }
            return Ok(None);
        }
        match &self.acting_as {
            Some(credential) => credential.server().map(Some),
            None if address.ip().is_loopback() => Ok(None),
            None => Err(TlsError::Exposed(address)),
        }
    }
}
