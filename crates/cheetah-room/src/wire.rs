//! The messages of enrolment: JSON over TLS.
//!
//! | request | answer |
//! |---|---|
//! | `POST /v1/enrol` [`Enrol`] | [`Enrolled`] |
//! | `POST /v1/pending` [`Begin`] | [`Begun`] |
//! | `PUT /v1/pending/ID` [`Reveal`] | 204 |
//! | `GET /v1/pending/ID` | 202 while the machine waits; then [`Enrolled`] |

use cheetah_tls::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::key::{PrivateKey, PublicKey};
use cheetah_error::Result;

/// The most bytes of a request's body.
pub const REQUEST_LEN_MAX: usize = 16 << 10;
/// The most bytes of an answer's body: a list of as many revoked certificates as a room can have fits.
pub const ANSWER_LEN_MAX: usize = 2 << 20;

/// The signature that proves possession of a key covers this, the room's key and the public key.
const PROOF_CONTEXT: &[u8] = b"cheetah enrolment v1\0";

/// A machine's claims about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claims {
    /// Its public key, in base64.
    pub public_key: String,
    /// The signature of the key over the room's key and itself, in base64: the machine has the private key.
    pub proof: String,
    /// The name that it would like.
    #[serde(default)]
    pub name: String,
    /// Its IP addresses.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The port of its NBD server, if it has one.
    #[serde(default)]
    pub nbd_port: Option<u16>,
    /// Its clock: seconds since 1970. It is only reported.
    #[serde(default)]
    pub time_s: u64,
}

/// Joins with an invitation.
#[derive(Clone, Serialize, Deserialize)]
pub struct Enrol {
    /// The token: 32 hexadecimal digits.
    pub token: String,
    /// The machine.
    #[serde(flatten)]
    pub claims: Claims,
}

/// A member's certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Enrolled {
    /// The certificate, in PEM.
    pub certificate: String,
    /// The authority's certificate, in PEM.
    pub authority: String,
    /// The list of revoked certificates, in PEM.
    pub revocations: String,
    /// The room's name.
    pub room: String,
    /// The clock of the room's machine: seconds since 1970.
    pub time_s: u64,
}

/// Begins to wait for approval.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin {
    /// The commitment: 64 hexadecimal digits.
    pub commitment: String,
    /// The name that the machine would like.
    pub name: String,
    /// The role that it asks for.
    pub role: String,
}

/// The room's nonce.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begun {
    /// The place's id.
    pub id: String,
    /// The nonce: 64 hexadecimal digits.
    pub nonce: String,
}

/// Reveals the key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reveal {
    /// The joiner's nonce: 64 hexadecimal digits.
    pub nonce: String,
    /// The machine.
    #[serde(flatten)]
    pub claims: Claims,
}

impl Claims {
    /// The claims of the machine with this key to the room with that one.
    ///
    /// # Errors
    ///
    /// If the key cannot sign.
    pub fn new(
        key: &PrivateKey,
        room_key: &Fingerprint,
        name: &str,
        hosts: Vec<String>,
        nbd_port: Option<u16>,
        time_s: u64,
    ) -> Result<Self> {
        use base64::Engine as _;
        let public = key.public()?;
        let proof = key.sign(&proof_message(room_key, &public))?;
        let proof = base64::engine::general_purpose::STANDARD.encode(proof);
        Ok(Self { public_key: public.to_string(), proof, name: name.to_owned(), hosts, nbd_port, time_s })
    }

    /// The public key, if the machine has proved that it has the private one.
    pub fn proven_key(&self, room_key: &Fingerprint) -> Option<PublicKey> {
        use base64::Engine as _;
        if self.proof.len() > 256 {
            return None;
        }
        let public = PublicKey::parse(&self.public_key)?;
        let proof = base64::engine::general_purpose::STANDARD.decode(&self.proof).ok()?;
        public.has_signed(&proof_message(room_key, &public), &proof).then_some(public)
    }
}

fn proof_message(room_key: &Fingerprint, public: &PublicKey) -> Vec<u8> {
    [PROOF_CONTEXT, &room_key.0, &public.fingerprint().0].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_its_private_half_is_not_proven() {
        let (key, room) = (PrivateKey::generate().unwrap(), Fingerprint([1; 32]));
        let claims = Claims::new(&key, &room, "lab", Vec::new(), None, 0).unwrap();
        assert_eq!(claims.proven_key(&room), Some(key.public().unwrap()));
        assert_eq!(claims.proven_key(&Fingerprint([2; 32])), None, "a proof for one room is none for another");
        let other = PrivateKey::generate().unwrap().public().unwrap().to_string();
        assert_eq!(Claims { public_key: other, ..claims }.proven_key(&room), None);
    }
}
