//! VeraCrypt and TrueCrypt: volumes that nothing tells from noise without their password.
//!
//! A volume has up to four headers: its own and that of a hidden volume in it at the start, and copies of both at the end. None says
//! how it is encrypted, so each function that makes keys and each cipher is tried, which takes seconds. So only keys that say that they
//! are of VeraCrypt are tried, on volumes that have no known format.

mod header;
mod methods;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use cheetah_device::memory::Memory;
use cheetah_device::supervise::spawn_blocking;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_kit::locked::{LockedBytes, with_stack_wiped};
use futures::future::try_join_all;
use zeroize::Zeroizing;

use self::header::{HEADER_BYTES, Header, SALT_BYTES, SEALED_BYTES, UNIT_BYTES};
use self::methods::{Derivation, ENCRYPTIONS, derivations, name};
use crate::cipher::{Algorithm, CIPHERS_MAX, Cascade, KEY_BYTES, Mode, Numbering, SectorCipher};
use crate::derive::Budget;
use crate::key::{Key, Keys, VeraCryptKey};
use crate::opened::{Content, Opened, Region};
use crate::piece::Piece;
use crate::refusal::{Refusal, Result, Untried};

/// The area of the headers at either end of a volume, and the place of the second in it.
const HEADERS_BYTES: u64 = 128 << 10;
const HIDDEN_AT: u64 = 64 << 10;
/// The smallest volume that has both areas and data.
const VOLUME_BYTES_MIN: u64 = 2 * HEADERS_BYTES + UNIT_BYTES;
/// The fewest values among the bytes of a header.
const VALUES_MIN: usize = 150;
/// Bytes of the keys of the longest cascade.
const KEYS_BYTES: usize = 2 * CIPHERS_MAX * KEY_BYTES;

/// The outer volume, or the hidden one in its free space: both have headers of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Outer,
    Hidden,
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outer => "outer volume",
            Self::Hidden => "hidden volume",
        })
    }
}

/// A place of a header.
#[derive(Clone, Copy)]
struct Place {
    at: u64,
    which: Which,
    /// What opens a volume there.
    name: &'static str,
}

/// The places of headers in a volume of `len` bytes.
fn places(len: u64) -> [Place; 4] {
    let copies = len - HEADERS_BYTES;
    [
        Place { at: 0, which: Which::Outer, name: "header" },
        Place { at: HIDDEN_AT, which: Which::Hidden, name: "header of the hidden volume" },
        Place { at: copies, which: Which::Outer, name: "copy of the header" },
        Place { at: copies + HIDDEN_AT, which: Which::Hidden, name: "copy of the header of the hidden volume" },
    ]
}

/// A volume that a key opened.
pub(crate) struct Open {
    pub volume: Opened,
    /// The other of the outer and the hidden volume, if one of the further keys opens it. Both cannot be shown in one place.
    pub other: Option<Which>,
}

/// Opens the volume with the first of the keys that fits; `None` if it has no header: nothing in its places is like noise.
pub(crate) async fn open(volume: &Piece, keys: &Keys) -> Result<Option<Open>> {
    let len = volume.range.len - volume.range.len % UNIT_BYTES;
    if len < VOLUME_BYTES_MIN {
        return Ok(None);
    }
    let (mut heads, mut untried) = (Vec::new(), Vec::new());
    for place in places(len) {
        match volume.read(place.at, HEADER_BYTES as u64).await {
            Ok(head) => {
                let head = head.first_chunk::<HEADER_BYTES>().filter(|head| is_like_noise(head));
                heads.extend(head.map(|head| (Arc::new(*head), place)));
            }
            Err(why) => untried.push(Untried::Way { what: place.name.to_owned(), why: Box::new(why) }),
        }
    }
    if heads.is_empty() && untried.is_empty() {
        return Ok(None);
    }
    let mut further = keys.veracrypt();
    while let Some(key) = further.next() {
        for (head, place) in &heads {
            match try_header(head, key).await {
                Ok(Some(found)) => {
                    let volume = with_stack_wiped(|| found.opened(volume, place.name))?;
                    return Ok(Some(Open { volume, other: find_other(&heads, place.which, further).await? }));
                }
                Ok(None) => {}
                Err(Refusal::GivenUp) => return Err(Refusal::GivenUp),
                // Another key may cost less.
                Err(why) => untried.push(Untried::Key { header: place.name, why: Box::new(why) }),
            }
        }
    }
    Err(Refusal::WrongKeys { untried })
}

/// A header as it lies on the volume, and its place.
type Head = (Arc<[u8; HEADER_BYTES]>, Place);

/// Returns which volume is opened by one of the further keys, if it is another than the open one.
async fn find_other(heads: &[Head], open: Which, keys: impl Iterator<Item = &Arc<Key>>) -> Result<Option<Which>> {
    for key in keys {
        for (head, place) in heads {
            if place.which == open {
                continue;
            }
            match try_header(head, key).await {
                Ok(Some(_)) => return Ok(Some(place.which)),
                Err(Refusal::GivenUp) => return Err(Refusal::GivenUp),
                // One volume is open: what cannot be tried takes nothing from it.
                Ok(None) | Err(_) => {}
            }
        }
    }
    Ok(None)
}

/// Whether bytes may be random. Of 512 random ones, about 222 values differ, and never so few.
fn is_like_noise(bytes: &[u8; HEADER_BYTES]) -> bool {
    let mut seen = [false; 256];
    bytes.iter().for_each(|byte| seen[usize::from(*byte)] = true);
    seen.iter().filter(|seen| **seen).count() >= VALUES_MIN
}

/// The volume in `range` of a device, whose decrypted header is the beginning of `data`, its checksums aside, opened with its keys,
/// for fuzzing.
pub(crate) fn opened_with_header(data: &[u8], range: ByteRange) -> Result<Opened> {
    let sealed = data.first_chunk().ok_or(Refusal::Damaged("it is cut short"))?;
    let (header, keys) = (Header::of(sealed)?, LockedBytes::copy_of(Header::keys(sealed))?);
    let encryption = ENCRYPTIONS[usize::from(sealed[0]) % ENCRYPTIONS.len()];
    let device: DynDevice = Arc::new(Memory::new(Vec::new()));
    Found { derivation: derivations(None)[0], encryption, header, keys }.opened(&Piece { device, range }, "header")
}

/// Tries every way to decrypt a header, as many at once as there are processors.
async fn try_header(head: &Arc<[u8; HEADER_BYTES]>, key: &Arc<Key>) -> Result<Option<Found>> {
    let Some(VeraCryptKey { pim, .. }) = key.veracrypt() else { return Ok(None) };
    let mut budget = Budget::of_one_key();
    let derivations = derivations(pim);
    derivations.iter().try_for_each(|one| budget.spend(&one.kdf))?;
    for some in derivations.chunks(available_parallelism().map_or(1, NonZeroUsize::get)) {
        let tries = some.iter().map(|derivation| {
            let (derivation, head, key) = (*derivation, Arc::clone(head), Arc::clone(key));
            let tried = spawn_blocking(move || match key.veracrypt() {
                Some(VeraCryptKey { password, .. }) => with_stack_wiped(|| try_derivation(derivation, &head, password)),
                None => Ok(None),
            });
            async move { tried.await.map_err(|_| Refusal::GivenUp)? }
        });
        if let Some(found) = try_join_all(tries).await?.into_iter().flatten().next() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Derives the key of a header in one way, and tries every cipher with it. Blocks.
fn try_derivation(derivation: Derivation, head: &[u8; HEADER_BYTES], password: &[u8]) -> Result<Option<Found>> {
    let (salt, sealed) = head.split_at(SALT_BYTES);
    let mut keys = LockedBytes::zeroed(KEYS_BYTES)?;
    derivation.kdf.derive(password, salt, &mut keys)?;
    for encryption in ENCRYPTIONS {
        let mut opened = Zeroizing::new([0; SEALED_BYTES]);
        opened.copy_from_slice(sealed);
        let Some(cascade) = Cascade::new(encryption, &keys) else { continue };
        cascade.decrypt_header(&mut opened);
        if let Some(header) = Header::parse(&opened, derivation.program) {
            let keys = LockedBytes::copy_of(Header::keys(&opened))?;
            return Ok(Some(Found { derivation, encryption, header: header?, keys }));
        }
    }
    Ok(None)
}

/// A header that a password opened.
struct Found {
    derivation: Derivation,
    encryption: &'static [Algorithm],
    header: Header,
    keys: LockedBytes,
}

impl Found {
    /// The volume whose header it is.
    fn opened(&self, volume: &Piece, place: &str) -> Result<Opened> {
        let data = self.header.data;
        if !data.fits(volume.range.len) {
            return Err(Refusal::Damaged("its data reach beyond its end"));
        }
        let wrong = Refusal::Damaged("it has too few keys");
        let mode = Mode::Cascade(Cascade::new(self.encryption, &self.keys).ok_or(wrong.clone())?);
        let numbering = Numbering { unit_bytes: UNIT_BYTES, first: 0 };
        let cipher = SectorCipher::new(mode, numbering, UNIT_BYTES).ok_or(wrong)?;
        let range: ByteRange = data.shifted(volume.range.offset);
        // Units are numbered from the start of the volume.
        let content = Content::encrypted(range.offset, volume.range.offset);
        let Derivation { program, hash, .. } = self.derivation;
        let protector = format!("password, {place} of {} ({}, {hash})", program.name(), name(self.encryption));
        Opened::new(range, vec![Region { range, content }], Some(cipher), protector)
    }
}
