//! The headers of LUKS 1 ("LUKS On-Disk Format Specification", version 1.2.3) and LUKS 2 ("LUKS2 On-Disk Format
//! Specification", version 1.1.3).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Lock, text, text_at};

/// The longest header of LUKS 2, in bytes (section 2.2 of the specification).
const HEADER_BYTES_MAX: u64 = 4 << 20;
/// The length of the header before LUKS 2's description, and of the whole header of LUKS 1.
const BINARY_BYTES: usize = 4096;
const SLOTS_V1: usize = 8;
const SLOT_V1_BYTES: usize = 48;
const ENABLED_V1: u32 = 0x00ac_71f3;

/// Returns the length of the header that begins with `head`, in bytes; 0 if there is none.
pub(in super::super) fn header_bytes(head: &[u8]) -> u64 {
    match version(head) {
        1 => BINARY_BYTES as u64,
        2 => {
            head.get(8..16).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_be_bytes).min(HEADER_BYTES_MAX)
        }
        _ => 0,
    }
}

/// Describes the volume with this header; `None` if it has another version, or is damaged.
pub(in super::super) fn parse(header: &[u8]) -> Option<Lock> {
    match version(header) {
        1 => Some(first_version(header)),
        2 => second_version(header),
        _ => None,
    }
}

fn version(head: &[u8]) -> u16 {
    let is_luks = head.starts_with(b"LUKS\xba\xbe");
    head.get(6..8).and_then(|two| two.try_into().ok()).filter(|_| is_luks).map_or(0, u16::from_be_bytes)
}

fn first_version(header: &[u8]) -> Lock {
    let cipher = format!("{}-{}", text_at(header, 8, 32), text_at(header, 40, 32));
    let mut lock = Lock { id: text_at(header, 168, 40), cipher, ..Lock::default() };
    for slot in 0..SLOTS_V1 {
        let state = header.get(208 + SLOT_V1_BYTES * slot..).and_then(|slot| slot.first_chunk());
        if state.is_some_and(|state| u32::from_be_bytes(*state) == ENABLED_V1) {
            lock.protect("key slot", slot.to_string());
        }
    }
    lock
}

/// The description of a volume, as far as it is used here.
#[derive(Deserialize)]
struct Description {
    keyslots: BTreeMap<String, Slot>,
    segments: BTreeMap<String, Segment>,
    #[serde(default)]
    tokens: BTreeMap<String, Token>,
}

#[derive(Deserialize)]
struct Slot {
    #[serde(default)]
    kdf: Kdf,
}

#[derive(Default, Deserialize)]
struct Kdf {
    #[serde(rename = "type", default)]
    kind: String,
}

#[derive(Deserialize)]
struct Segment {
    #[serde(default)]
    encryption: String,
}

#[derive(Deserialize)]
struct Token {
    #[serde(rename = "type")]
    kind: String,
}

fn second_version(header: &[u8]) -> Option<Lock> {
    let json = header.get(BINARY_BYTES..)?;
    let end = json.iter().position(|byte| *byte == 0).unwrap_or(json.len());
    let described: Description = serde_json::from_slice(&json[..end]).ok()?;
    let cipher = described.segments.values().map(|segment| text(segment.encryption.chars())).next().unwrap_or_default();
    let is_converted = described.segments.len() > 1;
    let state = if is_converted { "being encrypted, decrypted or encrypted anew" } else { "" };
    let mut lock =
        Lock { id: text_at(header, 168, 40), label: text_at(header, 24, 48), cipher, state, ..Lock::default() };
    for (number, slot) in described.keyslots {
        lock.protect("key slot", text(format!("{number}, {}", slot.kdf.kind).chars()));
    }
    for (number, token) in described.tokens {
        lock.protect("token", text(format!("{number}, {}", token.kind).chars()));
    }
    Some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u16, places: &[(usize, &[u8])]) -> Vec<u8> {
        let mut header = vec![0; 16 << 10];
        header[..6].copy_from_slice(b"LUKS\xba\xbe");
        header[6..8].copy_from_slice(&version.to_be_bytes());
        for (at, content) in places {
            header[*at..at + content.len()].copy_from_slice(content);
        }
        header
    }

    #[test]
    fn enabled_slots_of_the_first_version_are_listed() {
        let enabled = ENABLED_V1.to_be_bytes();
        let header =
            header(1, &[(8, b"aes"), (40, b"xts-plain64"), (168, b"99b8"), (208, &enabled), (208 + 96, &enabled)]);
        let lock = parse(&header).unwrap();
        assert_eq!(lock.to_string(), "99b8, aes-xts-plain64; opened by: key slot (0), key slot (2)");
        assert_eq!(header_bytes(&header), 4096);
    }

    #[test]
    fn slots_and_tokens_of_the_second_version_are_listed() {
        let json = br#"{"keyslots":{"1":{"type":"luks2","kdf":{"type":"argon2id"}}},
            "tokens":{"0":{"type":"clevis","keyslots":["1"]}},"segments":{"0":{"encryption":"aes-xts-plain64"}}}"#;
        let bytes = (16u64 << 10).to_be_bytes();
        let header = header(2, &[(8, &bytes), (24, b"backup"), (168, b"76b0"), (4096, json)]);
        let words = "76b0, \"backup\", aes-xts-plain64; opened by: key slot (1, argon2id), token (0, clevis)";
        assert_eq!(parse(&header).unwrap().to_string(), words);
        assert_eq!(header_bytes(&header), 16 << 10);
    }

    #[test]
    fn damaged_headers_describe_nothing() {
        assert_eq!(parse(&header(3, &[])), None);
        assert_eq!(parse(&header(2, &[(4096, b"{\"keyslots\":[]}")])), None);
        assert_eq!(header_bytes(&header(2, &[(8, &[0xff; 8])])), HEADER_BYTES_MAX);
        assert_eq!((parse(b"LUKS"), header_bytes(b"LUKS\xba\xbe")), (None, 0));
    }
}
