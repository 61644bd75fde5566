//! What the command line hands to a verb, besides its arguments.

use std::sync::Arc;
use std::time::Duration;

use cheetah_custody::Custodian;
use cheetah_drive::{AcceptanceRecord, Session};
use cheetah_room::archive::Archive;
use cheetah_seal::Keyring;
use cheetah_tls::CredentialSet;

use crate::room::Upkeep;

/// The process as a verb finds it.
pub struct Desk {
    /// What `--room` names.
    pub room: Option<String>,
    /// The upkeep of the membership that the verb acts as, if it takes part in a room.
    pub upkeep: Option<Upkeep>,
    /// The archive of the room in which the verb acts as a client.
    pub archive: Option<Archive>,
    /// The credentials with which the verb connects and listens.
    pub credentials: CredentialSet,
    /// Keeps what is known of custody logs elsewhere.
    pub custodian: Custodian,
    /// The identities that open sealed drives.
    pub keyring: Arc<Keyring>,
    /// Whether unverified units of sealed drives are accepted. The custody log says which.
    pub accepts_unverified: bool,
}

impl Desk {
    /// What drives are opened with, and nodes called with, if a node may take that long to answer.
    pub fn session(&self, timeout: Duration) -> Session {
        let custodian = || Arc::new(self.custodian.clone()) as Arc<dyn AcceptanceRecord>;
        Session {
            keyring: self.keyring.clone(),
            acceptance: self.accepts_unverified.then(custodian),
            credentials: self.credentials.clone(),
            timeout,
        }
    }
}
