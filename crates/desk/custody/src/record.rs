//! A record as a line: writes, signs and parses it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_error::{Error, Result};
use cheetah_tls::Credential;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::CustodyEvent;
use crate::key::{KeyId, PublicKey, SigningKey};

/// The bytes between the signed part and the signature.
const SIGNATURE_BEGINS: &[u8] = br#","sig":""#;
/// The bytes after the signature.
const SIGNATURE_ENDS: &[u8] = br#""}"#;
/// The number of base64 digits of a signature.
const SIGNATURE_DIGITS: usize = 88;
/// The number of bytes at the end of a line, newline excluded, that are not signed.
const TAIL_BYTES: usize = SIGNATURE_BEGINS.len() + SIGNATURE_DIGITS + SIGNATURE_ENDS.len();

/// The SHA-256 by which a record refers to the one before it.
pub type PrevDigest = [u8; 32];

/// The virtual line before the first record.
pub const ORIGIN: &[u8] = b"cheetah custody log v1\n";

/// The member of a room that a process acts as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActingAs {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: String,
    /// The SHA-256 of its public key, in hexadecimal.
    pub key_sha256: String,
    /// The room's id.
    pub room: String,
}

impl ActingAs {
    /// The member that a process with this credential acts as; `None` if it is one of no room.
    pub fn of(credential: &Credential) -> Option<Self> {
        let identity = credential.identity()?;
        Some(Self {
            name: identity.name.clone(),
            role: identity.role.to_string(),
            key_sha256: identity.key.to_string(),
            room: identity.room.to_string(),
        })
    }
}

/// A record about to be written.
#[derive(Serialize)]
pub struct Draft<'a> {
    /// Counted from 1.
    pub seq: u64,
    /// RFC 3339, UTC, milliseconds.
    pub time: String,
    /// Program and version.
    pub tool: &'a str,
    /// The machine's name.
    pub host: &'a str,
    /// The user.
    pub user: &'a str,
    /// The credential with which this process acts in a room, if it is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<&'a ActingAs>,
    /// `event` and `details`.
    #[serde(flatten)]
    pub event: &'a CustodyEvent,
    /// The key that signs.
    pub key: String,
    /// The public key, in the first record signed with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// SHA-256 of all bytes from the start of the previous record up to this line; for the first record, of [`ORIGIN`].
    pub prev: String,
}

impl Draft<'_> {
    /// Returns the signed line, with its newline.
    pub fn seal(&self, key: &SigningKey) -> Result<Vec<u8>> {
        let mut line =
            serde_json::to_vec(self).map_err(|error| Error::failed(format!("putting a record as JSON: {error}")))?;
        // The signature becomes the object's last member.
        line.pop();
        let signature = STANDARD.encode(key.sign(&line));
        for part in [SIGNATURE_BEGINS, signature.as_bytes(), SIGNATURE_ENDS, b"\n"] {
            line.extend_from_slice(part);
        }
        Ok(line)
    }
}

/// The members that records of every version have. Others are ignored; they are signed with the rest.
#[derive(Debug, Clone, Deserialize)]
pub struct CustodyRecord {
    /// Counted from 1.
    pub seq: u64,
    /// As written.
    pub time: String,
    /// As written.
    #[serde(default)]
    pub tool: String,
    /// As written.
    #[serde(default)]
    pub host: String,
    /// As written.
    #[serde(default)]
    pub user: String,
    /// As written.
    #[serde(default)]
    pub credential: Option<ActingAs>,
    /// The event's name.
    #[serde(rename = "event")]
    pub name: String,
    #[serde(default)]
    details: Value,
    /// The number of unfinished lines just before this record. Earlier versions left such lines in the log.
    #[serde(default)]
    pub torn: u64,
    key: String,
    #[serde(default)]
    public_key: Option<String>,
    prev: String,
}

/// A line that has the form of a record.
pub struct Parsed<'a> {
    /// Its members.
    pub record: CustodyRecord,
    /// The key that it names as its signer.
    pub key: KeyId,
    /// The public key it introduces, which always belongs to `key`.
    pub introduces: Option<PublicKey>,
    /// The digest of the previous record, as it states it.
    pub prev: PrevDigest,
    signed: &'a [u8],
    signature: [u8; 64],
}

impl<'a> Parsed<'a> {
    /// Parses a line without its newline; `None` if it is no record.
    pub fn of(line: &'a [u8]) -> Option<Self> {
        let (signed, tail) = line.split_at_checked(line.len().checked_sub(TAIL_BYTES)?)?;
        let digits = tail.strip_prefix(SIGNATURE_BEGINS)?.strip_suffix(SIGNATURE_ENDS)?;
        let signature = STANDARD.decode(digits).ok()?.try_into().ok()?;
        let record: CustodyRecord = serde_json::from_slice(line).ok()?;
        let key = KeyId::parse(&record.key)?;
        let introduces = match &record.public_key {
            Some(text) => Some(text.parse::<PublicKey>().ok().filter(|public| public.id() == key)?),
            None => None,
        };
        let prev = prev_digest(&record.prev)?;
        Some(Self { record, key, introduces, prev, signed, signature })
    }

    /// Whether `key` has signed it.
    pub fn is_signed_by(&self, key: PublicKey) -> bool {
        key.has_signed(self.signed, &self.signature)
    }
}

impl CustodyRecord {
    /// The sentence in it, if its event has one: what failed, or the reason.
    pub fn sentence(&self) -> Option<&str> {
        ["what", "why"].iter().find_map(|name| self.details.get(name)?.as_str())
    }

    /// Returns the event; `None` if this version does not know it.
    pub fn event(&self) -> Option<CustodyEvent> {
        let tagged = Tagged { event: &self.name, details: &self.details };
        serde_json::to_value(tagged).and_then(serde_json::from_value).ok()
    }
}

/// An event as [`CustodyEvent`] is written.
#[derive(Serialize)]
struct Tagged<'a> {
    event: &'a str,
    details: &'a Value,
}

/// Parses a digest in hexadecimal.
fn prev_digest(text: &str) -> Option<PrevDigest> {
    let bytes = cheetah_image::hash::is_hex(text, 64).then_some(text.as_bytes())?;
    let mut digest = [0; 32];
    for (byte, digits) in digest.iter_mut().zip(bytes.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_image::hash::hex;

    #[test]
    fn a_line_is_its_own_canonical_form() {
        let dir = tempfile::tempdir().unwrap();
        let key = SigningKey::load_or_make(&dir.path().join("k")).unwrap();
        let event = CustodyEvent::Stopped { why: "the examiner said \"enough\", \u{1F406}\n".into() };
        let draft = Draft {
            seq: 7,
            time: "2026-11-20T12:00:00.123Z".into(),
            tool: "cheetah 0",
            host: "h",
            user: "u",
            credential: None,
            event: &event,
            key: key.public().id().to_string(),
            public_key: Some(key.public().to_string()),
            prev: hex(&[7; 32]),
        };
        let line = draft.seal(&key).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let line = &line[..line.len() - 1];
        let parsed = Parsed::of(line).unwrap();
        assert_eq!(parsed.record.seq, 7);
        assert_eq!(parsed.record.event(), Some(event));
        assert_eq!(parsed.prev, [7; 32]);
        assert!(parsed.is_signed_by(parsed.introduces.unwrap()));
        // Every bit of the line counts.
        for at in 0..line.len() {
            let mut bad = line.to_vec();
            bad[at] ^= 1;
            assert!(!Parsed::of(&bad).is_some_and(|bad| bad.is_signed_by(key.public())), "byte {at}");
        }
    }
}
