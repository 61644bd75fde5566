//! The credentials of this process.
//!
//! The command line sets them once; what turns an address into a connection asks here, so that they need not be passed through
//! every layer between.

use std::collections::HashMap;

use parking_lot::RwLock;

use crate::credential::Credential;
use crate::identity::RoomId;

static WALLET: RwLock<Option<Wallet>> = RwLock::new(None);

#[derive(Debug, Default)]
struct Wallet {
    default: Option<Credential>,
    rooms: HashMap<RoomId, Credential>,
}

/// Adds a member's credential. The last one that was added for a room counts.
pub fn add(credential: Credential) {
    let mut wallet = WALLET.write();
    if let Some(room) = credential.room() {
        wallet.get_or_insert_default().rooms.insert(room, credential);
    }
}

/// Adds a credential, and uses it for all connections for which no other is named. `None`: these are in clear.
pub fn set_default(credential: Option<Credential>) {
    if let Some(credential) = &credential {
        add(credential.clone());
    }
    WALLET.write().get_or_insert_default().default = credential;
}

/// The credential for connections for which no other is named; `None` if they are in clear.
pub fn default() -> Option<Credential> {
    WALLET.read().as_ref()?.default.clone()
}

/// The credential for a room.
pub fn of_room(room: &RoomId) -> Option<Credential> {
    WALLET.read().as_ref()?.rooms.get(room).cloned()
}
