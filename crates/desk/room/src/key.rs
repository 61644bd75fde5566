//! Keys of members: ECDSA over P-256, which GnuTLS, OpenSSL and ring all support.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_error::{Error, Result};
use cheetah_tls::Fingerprint;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm, SigningKey as _};
use rustls::SignatureScheme;
use zeroize::{Zeroize as _, Zeroizing};

/// The bytes of a point that is not compressed.
const POINT_LEN: usize = 65;
const UNCOMPRESSED: u8 = 4;

/// A member's private key. It is wiped when dropped.
pub struct PrivateKey(KeyPair);

/// A member's public key: a point that is not compressed. Text: base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey([u8; POINT_LEN]);

impl PrivateKey {
    /// A new key.
    ///
    /// # Errors
    ///
    /// If the kernel gives no random bytes.
    pub fn generate() -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        key.map(Self).map_err(|error| Error::failed(format!("making a key: {error}")))
    }

    /// Reads a key in PEM (PKCS #8).
    ///
    /// # Errors
    ///
    /// If it is not one of P-256.
    pub fn from_pem(pem: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(pem).unwrap_or_default();
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(text, &PKCS_ECDSA_P256_SHA256);
        key.map(Self).map_err(|_| Error::failed("it holds no private key of P-256 in PEM (PKCS #8)"))
    }

    /// The key in PEM (PKCS #8).
    pub fn to_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.serialize_pem())
    }

    /// The public key.
    ///
    /// # Errors
    ///
    /// If the library returns it in another form.
    pub fn public(&self) -> Result<PublicKey> {
        PublicKey::from_point(self.0.public_key_raw()).ok_or_else(|| Error::failed("the key has an unexpected form"))
    }

    /// Signs a message.
    ///
    /// # Errors
    ///
    /// If the library refuses.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        self.0.sign(message).map_err(|error| Error::failed(format!("signing: {error}")))
    }

    pub(crate) fn pair(&self) -> &KeyPair {
        &self.0
    }
}

impl Drop for PrivateKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for PrivateKey {
    /// Shows nothing of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey")
    }
}

impl PublicKey {
    fn from_point(point: &[u8]) -> Option<Self> {
        let point: [u8; POINT_LEN] = point.try_into().ok()?;
        (point[0] == UNCOMPRESSED).then_some(Self(point))
    }

    /// Parses its text. [`Self::has_signed`] finds out whether the point is on the curve.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > 2 * POINT_LEN {
            return None;
        }
        Self::from_point(&STANDARD.decode(text).ok()?)
    }

    /// Its fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_key(&self.subject_public_key_info())
    }

    /// Whether `signature` is a valid signature of `message` by this key.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let found = algorithms.mapping.iter().find(|(scheme, _)| *scheme == SignatureScheme::ECDSA_NISTP256_SHA256);
        let mut found = found.into_iter().flat_map(|(_, algorithms)| *algorithms);
        found.any(|algorithm| algorithm.verify_signature(&self.0, message, signature).is_ok())
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_as_it_prints_and_signs() {
        let key = PrivateKey::generate().unwrap();
        let public = key.public().unwrap();
        let again = PrivateKey::from_pem(key.to_pem().as_bytes()).unwrap();
        assert_eq!(again.public().unwrap(), public);
        assert_eq!(PublicKey::parse(&public.to_string()), Some(public.clone()));
        assert_eq!(public.fingerprint(), Fingerprint::of_key(&key.pair().subject_public_key_info()));
        let signature = key.sign(b"message").unwrap();
        assert!(public.has_signed(b"message", &signature));
        assert!(!public.has_signed(b"other", &signature) && !public.has_signed(b"message", &signature[1..]));
        assert!(!PrivateKey::generate().unwrap().public().unwrap().has_signed(b"message", &signature));
    }

    #[test]
    fn a_point_that_is_not_on_the_curve_has_signed_nothing() {
        let public = PublicKey::from_point(&[&[UNCOMPRESSED][..], &[7; 64]].concat()).unwrap();
        assert!(!public.has_signed(b"", b""));
        for text in ["", "AAAA", "%", &STANDARD.encode([3; POINT_LEN]), &"A".repeat(500)] {
            assert_eq!(PublicKey::parse(text), None, "{text}");
        }
    }
}
