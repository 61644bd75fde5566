//! The header of an `age` file. Does no I/O.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ring::hmac;

use super::{CHANGED, CUT_OFF, FileKey};
use crate::error::SealError;
use crate::key::derive;

const VERSION_LINE: &str = "age-encryption.org/v1";
/// Characters of a full line of a stanza's body.
const LINE_CHARS: usize = 64;

/// The wrapped file key, for one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stanza {
    /// Its type, and the arguments of that.
    pub args: Vec<String>,
    pub body: Vec<u8>,
}

/// A header with one stanza.
pub(super) struct Header<'a> {
    pub stanza: Stanza,
    /// The bytes that the MAC covers, and the MAC; empty for a header that is to be encoded.
    covered: &'a [u8],
    mac: Vec<u8>,
}

impl<'a> Header<'a> {
    pub fn new(stanza: Stanza) -> Self {
        Self { stanza, covered: &[], mac: Vec::new() }
    }

    /// Encodes it, with its MAC.
    pub fn encode(&self, file_key: &FileKey) -> Result<Vec<u8>, SealError> {
        let mut text = format!("{VERSION_LINE}\n-> {}\n", self.stanza.args.join(" "));
        let body = BASE64.encode(&self.stanza.body);
        let mut rest = body.as_str();
        // The last line is shorter than the others, and may be empty.
        loop {
            let (line, after) = rest.split_at(rest.len().min(LINE_CHARS));
            text.push_str(line);
            text.push('\n');
            if line.len() < LINE_CHARS {
                break;
            }
            rest = after;
        }
        text.push_str("---");
        let mac = hmac::sign(&mac_key(file_key)?, text.as_bytes());
        text.push_str(&format!(" {}\n", BASE64.encode(mac)));
        Ok(text.into_bytes())
    }

    /// Parses the header at the start of a file. Returns the payload as well.
    pub fn parse(file: &'a [u8]) -> Result<(Self, &'a [u8]), SealError> {
        let mut rest = file;
        if line(&mut rest)? != VERSION_LINE {
            return Err(CUT_OFF);
        }
        let args = line(&mut rest)?.strip_prefix("-> ").ok_or(CUT_OFF)?;
        let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
        if args.iter().any(|arg| arg.is_empty() || !arg.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(CUT_OFF);
        }
        let mut body = String::new();
        loop {
            let part = line(&mut rest)?;
            if part.len() > LINE_CHARS {
                return Err(CUT_OFF);
            }
            body.push_str(part);
            if part.len() < LINE_CHARS {
                break;
            }
        }
        let covered_len = file.len() - rest.len() + "---".len();
        let mac = line(&mut rest)?.strip_prefix("--- ").ok_or(CUT_OFF)?;
        let stanza = Stanza { args, body: decode(&body)? };
        let covered = file.get(..covered_len).ok_or(CUT_OFF)?;
        Ok((Self { stanza, covered, mac: decode(mac)? }, rest))
    }

    /// Checks the MAC.
    pub fn verify(&self, file_key: &FileKey) -> Result<(), SealError> {
        hmac::verify(&mac_key(file_key)?, self.covered, &self.mac).map_err(|_| CHANGED)
    }
}

fn mac_key(file_key: &FileKey) -> Result<hmac::Key, SealError> {
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &*derive(&**file_key, &[], &[b"header"])?))
}

/// Takes a line off the start of `rest`.
fn line<'a>(rest: &mut &'a [u8]) -> Result<&'a str, SealError> {
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or(CUT_OFF)?;
    let (line, after) = rest.split_at(end);
    *rest = after.get(1..).unwrap_or_default();
    std::str::from_utf8(line).map_err(|_| CUT_OFF)
}

/// Decodes canonical base64 without padding.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, SealError> {
    BASE64.decode(text).map_err(|_| CUT_OFF)
}

pub(super) fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}
