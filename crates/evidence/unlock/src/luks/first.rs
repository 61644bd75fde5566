//! The header of LUKS 1 ("LUKS On-Disk Format Specification", version 1.2.3).

use super::header::{Header, KeyDigest, Slot, text_at, u32_at};
use crate::derive::{Hash, Kdf};
use crate::refusal::Result;

const HEADER_BYTES: usize = 592;
const MAGIC: &[u8] = b"LUKS\xba\xbe\0\x01";
const SECTOR_BYTES: u64 = 512;
const SALT_BYTES: usize = 32;
const SLOTS: u32 = 8;
const SLOTS_AT: usize = 208;
const SLOT_BYTES: usize = 48;
const ENABLED: u32 = 0x00ac_71f3;

/// Parses a header; `None` if it is none of this version.
pub fn parse(header: &[u8]) -> Option<Result<Header>> {
    (header.len() >= HEADER_BYTES && header.starts_with(MAGIC)).then(|| parse_known(header))
}

fn parse_known(header: &[u8]) -> Result<Header> {
    let encryption = format!("{}-{}", text_at(header, 8, 32), text_at(header, 40, 32));
    let hash = Hash::named(&text_at(header, 72, 32))?;
    let key_bytes = u32_at(header, 108) as usize;
    let digest = KeyDigest {
        kdf: Kdf::Pbkdf2 { hash, iterations: u32_at(header, 164) },
        salt: header[132..132 + SALT_BYTES].to_vec(),
        value: header[112..132].to_vec(),
        slots: None,
    };
    let mut parsed = Header {
        encryption: encryption.clone(),
        key_bytes,
        sector_bytes: SECTOR_BYTES,
        first_number: 0,
        data_at: u64::from(u32_at(header, 104)) * SECTOR_BYTES,
        data_bytes: None,
        slots: Vec::new(),
        refused: Vec::new(),
        digests: vec![digest],
    }
    .checked()?;
    for number in 0..SLOTS {
        let slot = &header[SLOTS_AT + SLOT_BYTES * number as usize..][..SLOT_BYTES];
        if u32_at(slot, 0) != ENABLED {
            continue;
        }
        let at = u64::from(u32_at(slot, 40)) * SECTOR_BYTES;
        let (area, material_bytes) = Slot::place(at, u64::from(u32_at(slot, 44)), key_bytes);
        let slot = Slot {
            number,
            kdf: Kdf::Pbkdf2 { hash, iterations: u32_at(slot, 4) },
            salt: slot[8..8 + SALT_BYTES].to_vec(),
            area,
            material_bytes,
            encryption: encryption.clone(),
            cipher_key_bytes: key_bytes,
            split_hash: hash,
        };
        match slot.checked(key_bytes) {
            Ok(slot) => parsed.slots.push(slot),
            Err(why) => parsed.refused.push((number, why)),
        }
    }
    Ok(parsed)
}
