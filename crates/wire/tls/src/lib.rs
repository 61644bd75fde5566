//! TLS 1.3 between the machines of a room.
//!
//! A room has an authority, whose key signs the certificates of its members. Each has a [`Role`]. A [`Credential`] is a
//! member's certificate and private key; from it come [`ClientTls`] and [`ServerTls`], which verify the other side:
//! signed by the same authority, not revoked and, on the client's side, of the role and with the key that it
//! [expects](Expected). This machine's clock is not used. The server decides the rights of a role, by the peer's
//! [`Identity`].
//!
//! A member's certificate has the member's name as the subject's common name, and one URI, [`Identity::urn`], among the
//! subject's alternative names. Servers of others, such as nbdkit with TLS, are verified by name against an authority from PEM files
//! ([`Credential::from_dir`]).
//!
//! Connections are a [`Secured`] stream, or the two directions of a [`Channel`]. The handshake and the keys are rustls's.
//!
//! The cryptography is `ring`'s; workshop/bench/RESULTS.md has its speed beside aws-lc's. Only TLS 1.3 is spoken, without early data.

#![forbid(unsafe_code)]

mod certificate;
mod channel;
mod client;
mod connection_slots;
mod credential;
mod credential_set;
mod error;
mod handshake;
mod handshake_slots;
mod identity;
mod inbound;
mod provider;
mod record;
mod revocation;
mod role;
mod server;
mod signature;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
mod trust;

pub use channel::{Channel, Receiver, Secured, Sender};
pub use client::{ClientTls, Expected};
pub use connection_slots::{ConnectionSlot, ConnectionSlots};
pub use credential::Credential;
pub use credential_set::CredentialSet;
pub use error::{BadCredential, RecordError, Refusal, TlsError};
pub use handshake_slots::{HandshakeSlot, HandshakeSlots};
pub use identity::{Fingerprint, Identity, NAME_LEN_MAX, NotHexadecimal, RoomId, Serial, is_name};
pub use revocation::REVOCATIONS_BYTES_MAX;
pub use role::{Role, Roles, UnknownRole};
pub use server::ServerTls;
pub use signature::Signature;
pub use transport::Transport;
pub use trust::Standing;
