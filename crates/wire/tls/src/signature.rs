//! Signatures by members of a room, of statements that are kept.

use std::fmt;

use rustls::SignatureScheme;

use crate::certificate;
use crate::credential::Credential;
use crate::error::TlsError;
use crate::identity::{Fingerprint, Identity, RoomId};
use crate::provider::provider;

/// The keys of members are of P-256.
const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;

/// A member's signature (ECDSA over P-256 with SHA-256, in DER), with the certificates that prove the signer. It covers the
/// message and both certificates, so that no byte of them can change.
#[derive(Clone, PartialEq, Eq)]
pub struct Signature {
    /// The signature.
    pub signature: Vec<u8>,
    /// The signer's certificate, in DER.
    pub certificate: Vec<u8>,
    /// The certificate of the room's authority, in DER.
    pub authority: Vec<u8>,
}

impl Credential {
    /// Signs a message with the key of the member's certificate; `None` if the credential is not that of a room's member,
    /// or its key is not one of P-256.
    ///
    /// TLS 1.3 signs messages that begin with 64 spaces (RFC 8446, section 4.4.3), so no other message may begin so.
    pub fn sign(&self, message: &[u8]) -> Option<Signature> {
        let own = self.own().ok()?;
        let (certificate, authority) = (own.cert[0].to_vec(), self.authority().to_vec());
        let signed = [message, &certificate, &authority].concat();
        let signature = own.key.choose_scheme(&[SCHEME])?.sign(&signed).ok()?;
        Some(Signature { signature, certificate, authority })
    }
}

impl Signature {
    /// Checks that the signer, whom the authority of its room has certified, signed `message`. Returns the signer.
    ///
    /// The caller compares the room, and the key if it knows that, with those that it expects: anyone can make a room.
    /// A signer that was revoked since then is accepted.
    ///
    /// # Errors
    ///
    /// If a part is malformed, or does not belong to the others.
    pub fn verify(&self, message: &[u8]) -> Result<Identity, TlsError> {
        let identity = Identity::of_certificate(&self.certificate)?;
        let (certificate, authority) = (certificate::parse(&self.certificate)?, certificate::parse(&self.authority)?);
        certificate
            .verify_signature(Some(authority.public_key()))
            .map_err(|_| TlsError::Malformed("the signer's certificate is not signed by the authority beside it"))?;
        let room = RoomId::of_authority(&Fingerprint::of_certificate(&self.authority)?);
        if identity.room != room {
            return Err(TlsError::OtherRoom(Box::new(identity), room));
        }
        let key = &certificate.public_key().subject_public_key.data;
        let known = provider().signature_verification_algorithms.mapping.iter();
        let mut algorithms = known.filter(|(scheme, _)| *scheme == SCHEME).flat_map(|(_, algorithms)| *algorithms);
        let signed = [message, &self.certificate, &self.authority].concat();
        if !algorithms.any(|algorithm| algorithm.verify_signature(key, &signed, &self.signature).is_ok()) {
            return Err(TlsError::Malformed("the signature does not match"));
        }
        Ok(identity)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({} bytes)", self.signature.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use crate::testing::Room;

    #[test]
    fn a_signature_names_its_signer_and_fits_one_message() {
        let room = Room::new();
        let credential = room.member("lab1", Role::Node).credential();
        let signed = credential.sign(b"message").unwrap();
        let signer = signed.verify(b"message").unwrap();
        assert_eq!(Some(&signer), credential.identity());
        assert_eq!((signer.name.as_str(), signer.role), ("lab1", Role::Node));
        assert!(signed.verify(b"messagf").is_err() && signed.verify(b"").is_err());
    }

    #[test]
    fn a_signature_with_parts_of_another_member_or_room_is_refused() {
        let (room, other) = (Room::new(), Room::new());
        let sign = |room: &Room, name| room.member(name, Role::Node).credential().sign(b"message").unwrap();
        let (signed, of_colleague, of_stranger) = (sign(&room, "lab1"), sign(&room, "lab2"), sign(&other, "lab1"));
        let mixed = [
            Signature { certificate: of_colleague.certificate, ..signed.clone() },
            Signature { certificate: of_stranger.certificate.clone(), ..signed.clone() },
            Signature { authority: of_stranger.authority.clone(), ..signed.clone() },
            Signature { signature: of_stranger.signature, ..signed.clone() },
            Signature { authority: signed.certificate.clone(), ..signed.clone() },
        ];
        for mixed in mixed {
            assert!(mixed.verify(b"message").is_err());
        }
        assert!(signed.verify(b"message").is_ok());
    }

    #[test]
    fn no_byte_of_a_signature_or_certificate_can_change() {
        let signed = Room::new().member("lab1", Role::Node).credential().sign(b"message").unwrap();
        let refused = |changed: &Signature| changed.verify(b"message").is_err();
        for at in 0..signed.signature.len() {
            let mut changed = signed.clone();
            changed.signature[at] ^= 1;
            assert!(refused(&changed), "byte {at} of the signature");
        }
        for at in 0..signed.certificate.len() {
            let mut changed = signed.clone();
            changed.certificate[at] ^= 1;
            assert!(refused(&changed), "byte {at} of the certificate");
        }
        for at in 0..signed.authority.len() {
            let mut changed = signed.clone();
            changed.authority[at] ^= 1;
            assert!(refused(&changed), "byte {at} of the authority's certificate");
        }
        for len in 0..signed.certificate.len() {
            let cut = Signature { certificate: signed.certificate[..len].to_vec(), ..signed.clone() };
            assert!(refused(&cut), "{len} bytes of the certificate");
        }
    }
}
