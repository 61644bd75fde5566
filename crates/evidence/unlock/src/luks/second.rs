//! The header of LUKS 2 ("LUKS2 On-Disk Format Specification", version 1.1.3).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};

use super::BINARY_BYTES;
use super::header::{Header, KEY_BYTES_MAX, KeyDigest, Slot, text_at};
use crate::derive::{Hash, Kdf};
use crate::refusal::{Refusal, Result};

/// Where a header may be: the first one at the start, the second one behind it, which has one of these sizes.
pub(super) const PLACES: [u64; 10] =
    [0, 0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];
const MAGIC_FIRST: &[u8] = b"LUKS\xba\xbe\0\x02";
const MAGIC_SECOND: &[u8] = b"SKUL\xba\xbe\0\x02";
const CHECKSUM_AT: usize = 448;
const CHECKSUM_BYTES: usize = 64;
/// The most slots (the format allows 32), and the longest salt that is used.
const SLOTS_MAX: usize = 32;
const SALT_BYTES_MAX: usize = 1024;
/// A digest that is longer confirms no more.
const DIGEST_BYTES_MAX: usize = 64;
/// Characters of a name in a header that are repeated.
const NAME_CHARS_MAX: usize = 40;

/// The length of the header that begins with `head`, `at` bytes after the start of the volume; `None` if none begins there.
pub(super) fn header_bytes(head: &[u8], at: u64) -> Option<u64> {
    let magic = if at == 0 { MAGIC_FIRST } else { MAGIC_SECOND };
    let bytes = u64::from_be_bytes(*head.get(8..)?.first_chunk()?);
    (head.starts_with(magic) && PLACES[1..].contains(&bytes)).then_some(bytes)
}

/// Parses a whole header that lies `at` bytes after the start of the volume.
pub fn parse(header: &[u8], at: u64) -> Result<Header> {
    let bytes = header_bytes(header, at).ok_or(Refusal::Damaged("there is none of a known version"))?;
    let header = usize::try_from(bytes).ok().and_then(|bytes| header.get(..bytes));
    let header = header.ok_or(Refusal::Damaged("it is cut short"))?;
    check(header)?;
    parse_description(&header[BINARY_BYTES as usize..])
}

/// Parses the description of a volume: its text ends with a zero.
pub fn parse_description(json: &[u8]) -> Result<Header> {
    let end = json.iter().position(|byte| *byte == 0).unwrap_or(json.len());
    let description: Description =
        serde_json::from_slice(&json[..end]).map_err(|_| Refusal::Damaged("its description cannot be read"))?;
    description.header()
}

/// Fails if the checksum is wrong.
fn check(header: &[u8]) -> Result<()> {
    let hash = Hash::named(&text_at(header, 72, 32))?;
    let (before, rest) = header.split_at(CHECKSUM_AT);
    let (checksum, after) = rest.split_at(CHECKSUM_BYTES);
    let mut digest = [0; CHECKSUM_BYTES];
    hash.digest(&[before, &[0; CHECKSUM_BYTES], after], &mut digest);
    let len = hash.digest_bytes();
    if digest[..len] == checksum[..len] { Ok(()) } else { Err(Refusal::Damaged("its checksum is wrong")) }
}

/// The description of a volume, as far as it is used here.
#[derive(Deserialize)]
struct Description {
    keyslots: BTreeMap<String, KeySlot>,
    segments: BTreeMap<String, Segment>,
    digests: BTreeMap<String, Digest>,
    #[serde(default)]
    config: Config,
}

#[derive(Deserialize)]
struct KeySlot {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    key_size: usize,
    kdf: Option<SlotKdf>,
    af: Option<Split>,
    area: Option<Area>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum SlotKdf {
    Pbkdf2 { salt: Bytes, hash: String, iterations: u32 },
    Argon2i { salt: Bytes, time: u32, memory: u32, cpus: u32 },
    Argon2id { salt: Bytes, time: u32, memory: u32, cpus: u32 },
}

#[derive(Deserialize)]
struct Split {
    #[serde(rename = "type")]
    kind: String,
    stripes: u64,
    hash: String,
}

#[derive(Deserialize)]
struct Area {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "number")]
    offset: u64,
    #[serde(default, deserialize_with = "number")]
    size: u64,
    #[serde(default)]
    encryption: String,
    #[serde(default)]
    key_size: usize,
}

#[derive(Deserialize)]
struct Segment {
    #[serde(rename = "type")]
    kind: String,
    #[serde(deserialize_with = "number")]
    offset: u64,
    #[serde(default)]
    size: String,
    #[serde(default, deserialize_with = "number")]
    iv_tweak: u64,
    #[serde(default)]
    encryption: String,
    #[serde(default)]
    sector_size: u64,
    integrity: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Digest {
    #[serde(rename = "type")]
    kind: String,
    keyslots: Vec<String>,
    segments: Vec<String>,
    salt: Bytes,
    digest: Bytes,
    hash: String,
    iterations: u32,
}

#[derive(Default, Deserialize)]
struct Config {
    #[serde(default)]
    requirements: Requirements,
}

#[derive(Default, Deserialize)]
struct Requirements {
    #[serde(default)]
    mandatory: Vec<String>,
}

/// Bytes in base64.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Bytes(Vec<u8>);

impl TryFrom<String> for Bytes {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        STANDARD.decode(text).map(Self)
    }
}

/// A number of 64 bits, which the format writes as a text.
fn number<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| serde::de::Error::custom("not a number"))
}

fn name(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).collect()
}

impl Description {
    fn header(self) -> Result<Header> {
        if self.keyslots.values().any(|slot| slot.kind == "reencrypt") {
            return Err(Refusal::Unsupported(
                "an encryption, decryption or new encryption that is not finished".to_owned(),
            ));
        }
        if let Some(requirement) = self.config.requirements.mandatory.first() {
            return Err(Refusal::Unsupported(format!("the requirement \"{}\"", name(requirement))));
        }
        let mut segments = self.segments.iter();
        let (Some((segment_number, segment)), None) = (segments.next(), segments.next()) else {
            return Err(Refusal::Unsupported(format!("a volume of {} segments", self.segments.len())));
        };
        let digests = digests(&self.digests, segment_number)?;
        let (data_bytes, key_bytes) = (segment.bytes()?, key_bytes(&self.keyslots, &digests));
        let mut header = Header {
            encryption: segment.encryption.clone(),
            key_bytes,
            sector_bytes: segment.sector_size,
            first_number: segment.iv_tweak,
            data_at: segment.offset,
            data_bytes,
            slots: Vec::new(),
            refused: Vec::new(),
            digests,
        }
        .checked()?;
        for (number, slot) in self.keyslots.into_iter().take(SLOTS_MAX) {
            let Ok(number) = number.parse() else { continue };
            if !header.digests.iter().any(|digest| digest.is_about(number)) {
                continue;
            }
            match slot.parsed(number, key_bytes) {
                Ok(slot) => header.slots.push(slot),
                Err(why) => header.refused.push((number, why)),
            }
        }
        header.slots.sort_by_key(|slot| slot.number);
        Ok(header)
    }
}

/// The digests of the segment.
fn digests(all: &BTreeMap<String, Digest>, segment: &str) -> Result<Vec<KeyDigest>> {
    let of_segment = all.values().filter(|digest| digest.segments.iter().any(|one| one == segment));
    let parsed = of_segment.map(|digest| {
        if digest.kind != "pbkdf2" {
            return Err(Refusal::Unsupported(format!("the digest \"{}\"", name(&digest.kind))));
        }
        let is_short = digest.salt.0.len() <= SALT_BYTES_MAX && digest.digest.0.len() <= DIGEST_BYTES_MAX;
        // Bytes that are too few would confirm another key by chance.
        if !is_short || digest.digest.0.len() < 16 {
            return Err(Refusal::Damaged("the length of a digest is wrong"));
        }
        Ok(KeyDigest {
            kdf: Kdf::Pbkdf2 { hash: Hash::named(&digest.hash)?, iterations: digest.iterations },
            salt: digest.salt.0.clone(),
            value: digest.digest.0.clone(),
            slots: Some(digest.keyslots.iter().filter_map(|slot| slot.parse().ok()).collect()),
        })
    });
    parsed.take(SLOTS_MAX).collect()
}

/// The length of the volume's key: its slots say so.
fn key_bytes(slots: &BTreeMap<String, KeySlot>, digests: &[KeyDigest]) -> usize {
    let is_used =
        |number: &str| number.parse().is_ok_and(|number| digests.iter().any(|digest| digest.is_about(number)));
    slots.iter().find(|(number, _)| is_used(number)).map_or(KEY_BYTES_MAX, |(_, slot)| slot.key_size)
}

impl KeyDigest {
    fn is_about(&self, slot: u32) -> bool {
        self.slots.as_ref().is_none_or(|slots| slots.contains(&slot))
    }
}

impl Segment {
    /// The length of its data; `None` if they reach to the end of the volume.
    fn bytes(&self) -> Result<Option<u64>> {
        if self.kind != "crypt" {
            return Err(Refusal::Unsupported(format!("a segment of the kind \"{}\"", name(&self.kind))));
        }
        if self.integrity.is_some() {
            return Err(Refusal::Unsupported("data with integrity tags".to_owned()));
        }
        match &*self.size {
            "dynamic" => Ok(None),
            size => size.parse().map(Some).map_err(|_| Refusal::Damaged("the length of its data is no number")),
        }
    }
}

impl KeySlot {
    fn parsed(self, number: u32, key_bytes: usize) -> Result<Slot> {
        let missing = || Refusal::Damaged("a part of its description is missing");
        let (kdf, split, area) =
            (self.kdf.ok_or_else(missing)?, self.af.ok_or_else(missing)?, self.area.ok_or_else(missing)?);
        if self.kind != "luks2" || split.kind != "luks1" || area.kind != "raw" {
            let kinds = [&*self.kind, &split.kind, &area.kind].map(name).join("\", \"");
            return Err(Refusal::Unsupported(format!("a slot of the kinds \"{kinds}\"")));
        }
        if self.key_size != key_bytes {
            return Err(Refusal::Damaged("the length of its key is not that of the others"));
        }
        let (place, material_bytes) = Slot::place(area.offset, split.stripes, key_bytes);
        if place.len > area.size {
            return Err(Refusal::Damaged("its material is longer than its place"));
        }
        let (kdf, salt) = kdf.parsed()?;
        let slot = Slot {
            number,
            kdf,
            salt,
            area: place,
            material_bytes,
            encryption: area.encryption,
            cipher_key_bytes: area.key_size,
            split_hash: Hash::named(&split.hash)?,
        };
        slot.checked(key_bytes)
    }
}

impl SlotKdf {
    /// The function and its salt.
    fn parsed(self) -> Result<(Kdf, Vec<u8>)> {
        let (kdf, salt) = match self {
            Self::Pbkdf2 { salt, hash, iterations } => (Kdf::Pbkdf2 { hash: Hash::named(&hash)?, iterations }, salt),
            Self::Argon2i { salt, time, memory, cpus } => {
                (Kdf::Argon2 { is_hybrid: false, passes: time, memory_kib: memory, lanes: cpus }, salt)
            }
            Self::Argon2id { salt, time, memory, cpus } => {
                (Kdf::Argon2 { is_hybrid: true, passes: time, memory_kib: memory, lanes: cpus }, salt)
            }
        };
        if salt.0.len() > SALT_BYTES_MAX {
            return Err(Refusal::Damaged("the length of its salt is wrong"));
        }
        Ok((kdf, salt.0))
    }
}
