//! Receipts of wipes: a node states that it wiped an export, and signs the statement.
//!
//! A receipt is the word of the node. It cannot prove that no copy of the content exists; on a sealed drive, the destroyed key
//! makes any copy unreadable.

use crate::api::KeyLent;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_tls::{Credential, Identity, Signature, TlsError};
use serde::{Deserialize, Serialize};

/// The format of a statement, its first member.
const FORMAT: &str = "cheetah wipe receipt 1";
/// The node's method: `Arena::free` of `cheetah-node`.
const METHOD: &str = "overwritten with zeros once, then read back";
/// The longest drive id or nonce, in bytes.
const ASKED_BYTES_MAX: usize = 64;
/// The longest part of a signature, in base64 digits. A certificate has about 600 bytes.
const PART_DIGITS_MAX: usize = 16 << 10;

/// What the asker of a wipe has put into the receipt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The drive's id: letters and digits.
    pub drive: String,
    /// Random letters and digits, which no other request has: a receipt with them is not an older one.
    pub nonce: String,
}

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WipedRange {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A node's statement that it wiped an export. The JSON of it, in this order and without spaces, is signed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Statement {
    /// The format.
    pub format: String,
    /// The node's name.
    pub node: String,
    /// The instance of the node that held the bytes.
    pub instance: String,
    /// The drive's id, as the asker named it.
    pub drive: String,
    /// The export.
    pub export: String,
    /// The ranges of the export that were wiped.
    pub ranges: Vec<WipedRange>,
    /// Bytes that were wiped: of the ranges, those in whose chunks anything was stored.
    pub wiped_bytes: u64,
    /// How they were wiped.
    pub method: String,
    /// Whether each of them was read back as zero.
    pub verified_zero: bool,
    /// The asker's nonce.
    pub nonce: String,
    /// The time, RFC 3339, by the node's clock.
    pub time: String,
    /// The keys of the export's sealed content that the node was lent; absent if none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys_lent: Vec<KeyLent>,
}

/// A statement, and the node's signature if the node is in a room.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receipt {
    /// The statement.
    #[serde(flatten)]
    pub statement: Statement,
    /// The signature; `None` if the node has no credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<SignatureText>,
}

/// A [`Signature`], each part in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignatureText {
    /// The signature.
    pub signature: String,
    /// The node's certificate.
    pub certificate: String,
    /// The certificate of the room's authority.
    pub authority: String,
}

/// Why a receipt is not valid.
#[derive(Debug, thiserror::Error)]
pub enum BadReceipt {
    /// It is about something else.
    #[error("its receipt has another {0} than was asked for")]
    Other(&'static str),
    /// The signature is in error.
    #[error("the signature of its receipt is not valid: {0}")]
    Signature(#[from] TlsError),
}

impl Asked {
    /// Whether a request may contain it.
    pub fn is_valid(&self) -> bool {
        let word = |text: &str| text.len() <= ASKED_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        word(&self.drive) && word(&self.nonce)
    }
}

impl Statement {
    /// A statement that everything of an export of `size` bytes was wiped.
    pub fn of_export(export: String, size: u64, asked: Asked) -> Self {
        Self {
            format: FORMAT.to_owned(),
            drive: asked.drive,
            export,
            ranges: vec![WipedRange { offset: 0, len: size }],
            method: METHOD.to_owned(),
            nonce: asked.nonce,
            ..Self::default()
        }
    }

    /// The bytes that are signed.
    fn signed_bytes(&self) -> Vec<u8> {
        // Strings, numbers and lists of them can always be serialized.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Makes a receipt of it, signed if there is a credential.
    pub fn sign(self, credential: Option<&Credential>) -> Receipt {
        let signed = credential.and_then(|credential| credential.sign(&self.signed_bytes()));
        let text = |Signature { signature, certificate, authority }| SignatureText {
            signature: STANDARD.encode(signature),
            certificate: STANDARD.encode(certificate),
            authority: STANDARD.encode(authority),
        };
        Receipt { statement: self, signature: signed.map(text) }
    }
}

impl Receipt {
    /// Checks the signature. Returns the signer; `None` if the receipt is not signed.
    ///
    /// # Errors
    ///
    /// If the signature is malformed, or is not one of this statement by a member of the room beside it.
    pub fn signer(&self) -> Result<Option<Identity>, BadReceipt> {
        let Some(text) = &self.signature else { return Ok(None) };
        if self.statement.format != FORMAT {
            return Err(TlsError::Malformed("the format of the statement is unknown").into());
        }
        let decode = |text: &str| {
            let digits = Some(text).filter(|text| text.len() <= PART_DIGITS_MAX);
            digits
                .and_then(|digits| STANDARD.decode(digits).ok())
                .ok_or(TlsError::Malformed("a part of it is not base64"))
        };
        let signature = Signature {
            signature: decode(&text.signature)?,
            certificate: decode(&text.certificate)?,
            authority: decode(&text.authority)?,
        };
        Ok(Some(signature.verify(&self.statement.signed_bytes())?))
    }

    /// Checks that this answers `asked`, about `export` of the node's `instance`, and checks its signature. Returns the
    /// signer; `None` if the receipt is not signed.
    ///
    /// # Errors
    ///
    /// If it is about something else, as an older receipt is, or its signature is not valid.
    pub fn check(&self, asked: &Asked, export: &str, instance: &str) -> Result<Option<Identity>, BadReceipt> {
        let statement = &self.statement;
        let found = [
            ("nonce", &statement.nonce, asked.nonce.as_str()),
            ("drive", &statement.drive, &asked.drive),
            ("export", &statement.export, export),
            ("instance", &statement.instance, instance),
        ];
        match found.into_iter().find(|(_, stated, expected)| stated != expected) {
            Some((what, ..)) => Err(BadReceipt::Other(what)),
            None => self.signer(),
        }
    }
}

#[cfg(test)]
mod tests;
