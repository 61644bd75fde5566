//! FileVault 2 in Core Storage: a key of the volume, which the key of a user wraps, which a passphrase wraps.
//!
//! Each wrapping confirms the key that opens it, so a wrong passphrase opens nothing. The volume is shown in the place of its first
//! piece; mostly it has one.

use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_device::supervise::spawn_blocking;
use cheetah_kit::locked::{LockedBytes, with_stack_wiped};
use cheetah_volume::apple::core_storage::{self, Context, CoreStorage, Log, LogicalVolume, SealedByPassphrase, User};
use zeroize::Zeroizing;

use crate::cipher::{Aes, Iv, Mode, Numbering, SectorCipher};
use crate::derive::{Budget, Hash, Kdf};
use crate::key::{Key, Keys};
use crate::key_wrap::unwrap;
use crate::opened::{Content, Opened, Region, Sealed};
use crate::piece::Piece;
use crate::refusal::{self, Refusal, Result, Untried};

const SECTOR_BYTES: u64 = 512;
/// Bytes of the keys of users and volumes: those of AES-128.
const KEY_BYTES: usize = 16;
/// The place of the header of HFS+, and how it begins, with its version.
const HEADER_AT: u64 = 1024;
const HEADERS: [&[u8]; 2] = [b"H+\0\x04", b"HX\0\x05"];

/// Opens the volume with the first of the keys that fits; with none, if it is not encrypted.
pub(crate) async fn open(volume: &Piece, keys: &Keys) -> Result<Opened> {
    let found = core_storage::read(&*volume.device, volume.range, Log::Whole).await?;
    let contexts = contexts(&found, keys);
    if contexts.is_empty() {
        return Err(Refusal::Unsupported(
            "the disk of a system, whose keys are in the file EncryptedRoot.plist.wipekey of its recovery partition, unless that file \
             is given as a key,"
                .to_owned(),
        ));
    }
    if contexts.iter().any(|context| context.is_converting) {
        return Err(Refusal::Unsupported("an encryption or decryption that is not finished".to_owned()));
    }
    let opened = if contexts.iter().all(|context| !context.is_encrypted()) {
        opened(volume.range, &found.volume, None, "no key, since it is not encrypted".to_owned())?
    } else {
        let (key, protector) = find_key(contexts, keys).await?;
        with_stack_wiped(|| {
            let cipher = cipher(&key, &found.volume)?;
            opened(volume.range, &found.volume, Some(cipher), protector)
        })?
    };
    match holds_file_system(volume, &opened).await? {
        true => Ok(opened),
        false => Err(Refusal::Unsupported("a volume whose content does not begin with HFS+".to_owned())),
    }
}

/// The keys in the metadata, or else in files that were given.
fn contexts(found: &CoreStorage, keys: &Keys) -> Vec<Context> {
    match &found.volume.context {
        Some(context) => vec![context.clone()],
        None => keys.iter().filter(|key| key.is_file).filter_map(|key| found.context_in_file(&key.bytes)).collect(),
    }
}

/// Returns the key of the volume, and what opened it.
async fn find_key(contexts: Vec<Context>, keys: &Keys) -> Result<(LockedBytes, String)> {
    let contexts = Arc::new(contexts);
    let mut untried = Vec::new();
    for key in keys.iter().filter(|key| !key.is_file) {
        let (contexts, key) = (Arc::clone(&contexts), Arc::clone(key));
        let tried = spawn_blocking(move || with_stack_wiped(|| try_key(&contexts, &key)));
        match tried.await.map_err(|_| Refusal::GivenUp)? {
            Ok((Some(found), _)) => return Ok(found),
            Ok((None, clauses)) => untried.extend(clauses),
            Err(why) => return Err(why),
        }
    }
    refusal::sort(&mut untried);
    Err(Refusal::WrongKeys { untried })
}

/// What a key opens, and why some users were not tried.
type Tried = (Option<(LockedBytes, String)>, Vec<Untried>);

/// Tries a passphrase on each user. Blocks.
fn try_key(contexts: &[Context], key: &Key) -> Result<Tried> {
    let (mut budget, mut untried) = (Budget::of_one_key(), Vec::new());
    for (context, user) in contexts.iter().flat_map(|context| context.users.iter().map(move |user| (context, user))) {
        let Some(sealed) = &user.sealed else { continue };
        match key_of_user(sealed, key, &mut budget) {
            Ok(None) => {}
            Ok(Some(user_key)) => {
                if let Some(master) = key_of_volume(context, &user_key)? {
                    return Ok((Some((master, name(user))), untried));
                }
            }
            Err(why @ (Refusal::TooCostly(_) | Refusal::Damaged(_))) => {
                untried.push(Untried::Way { what: name(user), why: Box::new(why) });
            }
            Err(why) => return Err(why),
        }
    }
    Ok((None, untried))
}

fn name(user: &User) -> String {
    format!("{} {}", user.kind, user.id)
}

/// The key of a user, if the passphrase wraps it.
fn key_of_user(sealed: &SealedByPassphrase, key: &Key, budget: &mut Budget) -> Result<Option<LockedBytes>> {
    let kdf = Kdf::Pbkdf2 { hash: Hash::Sha256, iterations: sealed.iterations };
    budget.spend(&kdf)?;
    let mut derived = Zeroizing::new([0; KEY_BYTES]);
    kdf.derive(&key.bytes, &sealed.salt, &mut *derived)?;
    match Aes::new(&*derived) {
        Some(by) => unwrap(&by, &sealed.wrapped),
        None => Ok(None),
    }
}

/// The key of the volume, which that of a user wraps.
fn key_of_volume(context: &Context, user_key: &[u8]) -> Result<Option<LockedBytes>> {
    let Some(by) = Aes::new(user_key) else { return Ok(None) };
    for key in &context.keys {
        if let Some(master) = unwrap(&by, &key.0)? {
            return Ok(Some(master));
        }
    }
    Ok(None)
}

/// The cipher of the volume: the key of its tweaks is made of its key and the identifier of its family.
fn cipher(key: &[u8], volume: &LogicalVolume) -> Result<SectorCipher> {
    let wrong = || Refusal::Damaged("the length of a key is wrong");
    let mut tweak = Zeroizing::new([0; KEY_BYTES]);
    Hash::Sha256.digest(&[key, &volume.family.0], &mut *tweak);
    let (data, tweak) = Aes::new(key).zip(Aes::new(&*tweak)).ok_or_else(wrong)?;
    let numbering = Numbering { unit_bytes: SECTOR_BYTES, first: 0 };
    SectorCipher::new(Mode::Xts { data, tweak, iv: Iv::Plain64 }, numbering, SECTOR_BYTES).ok_or_else(wrong)
}

/// The logical volume, in the place of its first piece, on the physical volume in `range` of a device.
fn opened(range: ByteRange, volume: &LogicalVolume, cipher: Option<SectorCipher>, by: String) -> Result<Opened> {
    let outside = || Refusal::Damaged("its pieces reach beyond its end");
    let first = volume.segments.first().ok_or(Refusal::Damaged("it has no data"))?;
    let place = ByteRange::new(first.on_disk_at, volume.size_bytes);
    if !place.fits(range.len) {
        return Err(match volume.segments.len() {
            1 => outside(),
            _ => Refusal::Unsupported("a logical volume whose pieces do not fit behind its first one".to_owned()),
        });
    }
    let content = place.shifted(range.offset);
    let mut regions = Vec::new();
    for segment in &volume.segments {
        let on_disk = ByteRange::new(segment.on_disk_at, segment.len);
        if !on_disk.fits(range.len) {
            return Err(outside());
        }
        let below = range.offset + on_disk.offset;
        regions.push(Region {
            range: ByteRange::new(content.offset + segment.at, segment.len),
            content: match cipher {
                // Sectors are counted in the logical volume.
                Some(_) => Content::Encrypted(Sealed { below, counted: segment.at, cipher: 0 }),
                None => Content::Clear { below },
            },
        });
    }
    Opened::new(content, regions, cipher, by)
}

/// The volume on a disk in `range` of a device, whose log is taken as it is, opened with a key of zeros, for fuzzing.
pub(crate) fn opened_with_zeros(found: &CoreStorage, range: ByteRange) -> Result<Opened> {
    opened(range, &found.volume, Some(cipher(&[0; KEY_BYTES], &found.volume)?), String::new())
}

/// Whether the content begins like HFS+: where it does not, it is not where the metadata say, or still being converted.
async fn holds_file_system(volume: &Piece, opened: &Opened) -> Result<bool> {
    let start = opened.range();
    let header = ByteRange::new(start.offset.saturating_add(HEADER_AT), SECTOR_BYTES);
    if !start.contains(header) {
        return Ok(false);
    }
    let header = opened.read(&*volume.device, header).await?.into_bytes();
    Ok(HEADERS.iter().any(|known| header.starts_with(known)))
}
