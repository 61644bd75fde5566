//! Encrypted volumes of APFS: the container is shown with those of its volumes decrypted that the keys open, and marked as not encrypted.
//!
//! The key of a volume is wrapped with that of a user, which a password wraps. Each wrapping confirms the key that opens it.

use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_device::supervise::spawn_blocking;
use cheetah_kit::locked::{Locked, LockedBytes, with_stack_wiped};
use cheetah_volume::apple::apfs::{
    self, AES_128, AES_256, AES_256_RECOVERY, Blob, Container, Run, Volume, encrypted_runs,
};
use zeroize::Zeroizing;

use crate::cipher::{Aes, Iv, Mode, Numbering, SectorCipher};
use crate::derive::{Budget, Hash, Kdf};
use crate::key::{Key, Keys};
use crate::key_wrap::unwrap;
use crate::opened::{Content, Opened, Region, Sealed};
use crate::piece::Piece;
use crate::refusal::{self, Refusal, Result, Untried};

const SECTOR_BYTES: u64 = 512;
/// Bytes of keys: those of AES-128, and twice as many.
const KEY_BYTES: usize = 16;
const KEYS_BYTES: usize = 2 * KEY_BYTES;
/// What wrapping adds to a key, in bytes.
const WRAPPING_BYTES: usize = 8;

/// Opens the container: each volume with the first of the keys that fits. Returns it with what is said of those that stay closed, a clause
/// each.
pub(crate) async fn open(place: &Piece, keys: &Keys) -> Result<(Opened, Vec<String>)> {
    let container = Arc::new(apfs::read(&*place.device, place.range).await?);
    let (mut opened, mut closed, mut untried, mut refused) = (Vec::new(), Vec::new(), Vec::new(), None);
    // For all volumes: a hostile container may have many.
    let mut budgets: Vec<_> = keys.iter().filter(|key| !key.is_file).map(|_| Budget::of_one_key()).collect();
    for (index, volume) in container.volumes.iter().enumerate().filter(|(_, volume)| volume.is_encrypted) {
        let name = &volume.name;
        if let Some(why) = volume.refused {
            untried.push(Untried::Volume { name: name.clone(), what: why });
            refused = Some(why);
            continue;
        }
        let mut clauses = Vec::new();
        match find_key(&container, index, (keys, &mut budgets[..]), &mut clauses).await? {
            Some((cipher, protector)) => opened.push((index, cipher, protector)),
            None => {
                closed.push(format!("none of the keys opens the volume \"{name}\""));
                untried.append(&mut clauses);
            }
        }
    }
    untried.extend(container.unread.iter().cloned().map(Untried::Unread));
    if opened.is_empty() {
        let has_locks = container.volumes.iter().any(|volume| volume.is_encrypted && volume.refused.is_none());
        return Err(match refused {
            Some(why) if !has_locks => Refusal::Unsupported(why.to_owned()),
            _ => Refusal::WrongKeys { untried },
        });
    }
    closed.extend(untried.iter().map(ToString::to_string));
    Ok((show(place, &container, opened).await?, closed))
}

/// The cipher of a volume, and what opened it.
type Found = (Locked<SectorCipher>, String);

/// Tries the keys on a volume, each with its budget. Adds why some users could not be tried.
async fn find_key(
    container: &Arc<Container>,
    index: usize,
    (keys, budgets): (&Keys, &mut [Budget]),
    untried: &mut Vec<Untried>,
) -> Result<Option<Found>> {
    for (key, budget) in keys.iter().filter(|key| !key.is_file).zip(budgets) {
        let (container, key, mut left) = (Arc::clone(container), Arc::clone(key), *budget);
        let trying = spawn_blocking(move || {
            let tried = with_stack_wiped(|| try_key(&container.volumes[index], &key, &mut left));
            (tried, left)
        });
        let (tried, left) = trying.await.map_err(|_| Refusal::GivenUp)?;
        *budget = left;
        let (found, clauses) = tried?;
        if found.is_some() {
            return Ok(found);
        }
        untried.extend(clauses);
    }
    refusal::sort(untried);
    Ok(None)
}

/// Tries a password on each user of a volume. Blocks.
fn try_key(volume: &Volume, key: &Key, budget: &mut Budget) -> Result<(Option<Found>, Vec<Untried>)> {
    let mut untried = Vec::new();
    let Some(sealed) = &volume.key else {
        return Ok((None, vec![Untried::NoKey(volume.name.clone())]));
    };
    for opener in &volume.openers {
        let name = format!("{} of \"{}\" ({})", volume.kind_of(opener), volume.name, opener.id);
        let found = match key_of_user(&opener.blob, key, budget) {
            Ok(Some(user_key)) => cipher(sealed, &user_key),
            Ok(None) => Ok(None),
            Err(why) => Err(why),
        };
        match found {
            Ok(Some(cipher)) => return Ok((Some((Locked::new(cipher)?, name)), untried)),
            Ok(None) => {}
            Err(why @ (Refusal::TooCostly(_) | Refusal::Damaged(_) | Refusal::Unsupported(_))) => {
                untried.push(Untried::Way { what: name, why: Box::new(why) });
            }
            Err(why) => return Err(why),
        }
    }
    Ok((None, untried))
}

/// The key of a user, if the password wraps it.
fn key_of_user(blob: &Blob, key: &Key, budget: &mut Budget) -> Result<Option<LockedBytes>> {
    // More than fit are more than may be spent.
    let iterations = u32::try_from(blob.iterations).unwrap_or(u32::MAX);
    let kdf = Kdf::Pbkdf2 { hash: Hash::Sha256, iterations };
    budget.spend(&kdf)?;
    let key_bytes = key_bytes(blob)?;
    let mut derived = Zeroizing::new([0; KEYS_BYTES]);
    kdf.derive(&key.bytes, &blob.salt, &mut derived[..key_bytes])?;
    unwrapped(blob, &derived[..key_bytes])
}

/// The length of the key in a blob, and of the key that wraps it.
fn key_bytes(blob: &Blob) -> Result<usize> {
    match blob.method {
        AES_256 | AES_256_RECOVERY => Ok(KEYS_BYTES),
        AES_128 => Ok(KEY_BYTES),
        other => Err(Refusal::Unsupported(format!("method {other} of wrapping a key"))),
    }
}

fn unwrapped(blob: &Blob, by: &[u8]) -> Result<Option<LockedBytes>> {
    let wrapped = blob.wrapped.get(..key_bytes(blob)? + WRAPPING_BYTES);
    let wrapped = wrapped.ok_or(Refusal::Damaged("a wrapped key is cut short"))?;
    Aes::new(by).map_or(Ok(None), |by| unwrap(&by, wrapped))
}

/// The cipher of a volume, whose key that of a user wraps. Where that is of Core Storage, the key of the tweaks is made of it.
fn cipher(sealed: &Blob, user_key: &[u8]) -> Result<Option<SectorCipher>> {
    let by = user_key.get(..key_bytes(sealed)?).ok_or(Refusal::Damaged("the length of a key is wrong"))?;
    let Some(key) = unwrapped(sealed, by)? else { return Ok(None) };
    let mut keys = Zeroizing::new([0; KEYS_BYTES]);
    keys[..key.len()].copy_from_slice(&key);
    if key.len() == KEY_BYTES {
        Hash::Sha256.digest(&[&*key, &sealed.id.0], &mut keys[KEY_BYTES..]);
    }
    Ok(sector_cipher(&keys))
}

fn sector_cipher(keys: &[u8; KEYS_BYTES]) -> Option<SectorCipher> {
    let (data, tweak) = (Aes::new(&keys[..KEY_BYTES])?, Aes::new(&keys[KEY_BYTES..])?);
    let numbering = Numbering { unit_bytes: SECTOR_BYTES, first: 0 };
    SectorCipher::new(Mode::Xts { data, tweak, iv: Iv::Plain64 }, numbering, SECTOR_BYTES)
}

/// Shows the container with the volumes that are open.
async fn show(
    place: &Piece,
    container: &Container,
    found: Vec<(usize, Locked<SectorCipher>, String)>,
) -> Result<Opened> {
    let (mut parts, mut ciphers, mut protectors) = (Vec::new(), Vec::new(), Vec::new());
    for (index, cipher, protector) in found {
        let volume = &container.volumes[index];
        let decrypt = |counted: u64, bytes: &mut [u8]| cipher.decrypt(counted, bytes);
        let runs = encrypted_runs(&*place.device, place.range, container, volume, &decrypt).await?;
        parts.extend(shown(container, volume, runs, ciphers.len()));
        ciphers.push(cipher);
        protectors.push(protector);
    }
    let regions = regions(place.range, parts)?;
    Opened::with_ciphers(place.range, regions, ciphers, protectors.join(" and "))
}

/// A part of a container that is not shown as it is: its place, and what is shown there, whose places are in the container.
type Part = (ByteRange, Content);

/// The parts of a volume.
fn shown(container: &Container, volume: &Volume, runs: Vec<Run>, cipher: usize) -> Vec<Part> {
    let sealed = |run: Run| {
        let (below, counted) = (run.range.offset, run.counted);
        (run.range, Content::Encrypted(Sealed { below, counted, cipher }))
    };
    let superblock = Content::Stated(volume.unencrypted_superblock().into());
    runs.into_iter().map(sealed).chain([(container.superblock_place(volume), superblock)]).collect()
}

/// Puts the parts of a container in `range` of a device in order. What is between them is shown as it is.
fn regions(range: ByteRange, mut parts: Vec<Part>) -> Result<Vec<Region>> {
    parts.sort_unstable_by_key(|(place, _)| *place);
    let (mut regions, mut at) = (Vec::new(), 0);
    let clear = |regions: &mut Vec<Region>, gap: ByteRange| {
        let gap = gap.shifted(range.offset);
        let content = Content::Clear { below: gap.offset };
        regions.extend((!gap.is_empty()).then_some(Region { range: gap, content }));
    };
    for (place, content) in parts {
        if place.offset < at || !place.fits(range.len) {
            return Err(Refusal::Damaged("the places of its blocks overlap, or reach beyond its end"));
        }
        clear(&mut regions, ByteRange::between(at, place.offset));
        at = place.end();
        let content = match content {
            Content::Encrypted(sealed) => Content::Encrypted(Sealed { below: range.offset + sealed.below, ..sealed }),
            other => other,
        };
        regions.push(Region { range: place.shifted(range.offset), content });
    }
    clear(&mut regions, ByteRange::between(at, range.len));
    Ok(regions)
}

/// The container in `range` of a device, whose volumes have these encrypted blocks, opened with keys of zeros, for fuzzing.
pub(crate) fn opened_with_zeros(container: &Container, runs: Vec<Vec<Run>>, range: ByteRange) -> Result<Opened> {
    let (mut parts, mut ciphers) = (Vec::new(), Vec::new());
    for (volume, runs) in container.volumes.iter().zip(runs) {
        parts.extend(shown(container, volume, runs, ciphers.len()));
        ciphers.push(Locked::new(sector_cipher(&[0; KEYS_BYTES]).ok_or(Refusal::Damaged("no cipher"))?)?);
    }
    Opened::with_ciphers(range, regions(range, parts)?, ciphers, String::new())
}

#[cfg(test)]
mod tests {
    use cheetah_testing::apple::apfs::{blob, container};
    use cheetah_volume::offline;

    use super::*;

    #[tokio::test]
    async fn what_a_key_may_cost_is_for_all_volumes_of_a_container() {
        let blob = blob(0, &[9; 40], 1000, b"s");
        let container = Arc::new(offline::apfs(container(64, &blob, &blob, &[])).unwrap().0);
        let keys = Keys::parse(b"password\n").unwrap();
        let (mut budgets, mut untried) = ([Budget::of_iterations(1500)], Vec::new());
        for clauses in [0, 1] {
            let found = find_key(&container, 0, (&keys, &mut budgets[..]), &mut untried).await.unwrap();
            assert!(found.is_none() && untried.len() == clauses, "{untried:?}");
        }
        let [Untried::Way { why, .. }] = &untried[..] else { panic!("{untried:?}") };
        assert!(matches!(**why, Refusal::TooCostly(_)), "{why}");
    }
}
