//! BitLocker, as "BitLocker Drive Encryption (BDE) format specification" describes it (J. Metz, libbde).
//!
//! The boot sector names three copies of the metadata. In them lies the key of the volume (FVEK), encrypted with the volume master
//! key (VMK), which each protector holds once, encrypted with its own key. Both are encrypted with AES-CCM, whose MAC confirms
//! them, so a wrong key opens nothing.
//!
//! Windows Vista names one copy of the metadata in the boot sector of the file system, of which it leaves the rest as it was.

mod boot;
mod entry;
mod metadata;
mod protector;
mod regions;
mod volume_key;

use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_device::supervise::spawn_blocking;
use cheetah_kit::locked::with_stack_wiped;

use self::boot::Boot;
use self::metadata::{METADATA_BYTES, METADATA_BYTES_MAX, Metadata};
use self::regions::regions;
use self::volume_key::VolumeKey;
use crate::beside::beside;
use crate::key::Keys;
use crate::opened::Opened;
use crate::piece::Piece;
use crate::refusal::{Refusal, Result};

/// Bytes of a boot sector: a sector of any size has as many.
const BOOT_BYTES: u64 = 512;
/// The names of file systems in the boot sector of a volume that may be encrypted.
const FILE_SYSTEMS: [&[u8]; 5] = [b"NTFS    ", b"MSDOS5.0", b"MSWIN4.1", b"EXFAT   ", b"ReFS\0\0\0\0"];

/// Opens the volume with the first of the keys that fits; with none, if its protection is suspended, or it is not encrypted any
/// more.
pub(crate) async fn open(volume: &Piece, keys: &Keys) -> Result<Opened> {
    let boot = Boot::parse(&volume.read(0, BOOT_BYTES).await?)?;
    let metadata = Arc::new(read_metadata(volume, &boot).await?);
    metadata.check(&boot)?;
    let opened = |key: Option<&VolumeKey>, protector| {
        let regions = regions(&metadata, &boot, volume.range)?;
        with_stack_wiped(|| {
            let cipher = key.map(|key| key.cipher(boot.sector_bytes)).transpose()?;
            Opened::new(volume.range, regions, cipher, protector)
        })
    };
    if metadata.is_decrypted() {
        return opened(None, "no key, since it is not encrypted any more".to_owned());
    }
    if let Some((key, protector)) = with_stack_wiped(|| metadata.without_key())? {
        return opened(Some(&key), protector);
    }
    // The first sectors of the volume are fetched while a key is tried: trying it takes longer than a round trip.
    let first_sectors = volume.read_up_to(metadata.header_at, metadata.header_bytes.min(METADATA_BYTES_MAX));
    if let Some((key, protector)) = beside(fitting_key(&metadata, keys), first_sectors).await? {
        return opened(Some(&key), protector);
    }
    for key in keys.iter() {
        let Some(key) = with_stack_wiped(|| metadata.volume_key_given(key))? else { continue };
        let opened = opened(Some(&key), "the key of the volume".to_owned())?;
        if holds_file_system(volume, &opened).await? {
            return Ok(opened);
        }
    }
    Err(Refusal::WrongKeys { untried: Vec::new() })
}

/// The key of the volume, and the protector that the first of the keys that fits has opened.
async fn fitting_key(metadata: &Arc<Metadata>, keys: &Keys) -> Result<Option<(VolumeKey, String)>> {
    for key in keys.iter() {
        let (metadata, key) = (Arc::clone(metadata), Arc::clone(key));
        let tried = spawn_blocking(move || with_stack_wiped(|| metadata.with_key(&key)));
        if let Some(fitting) = tried.await.map_err(|_| Refusal::GivenUp)?? {
            return Ok(Some(fitting));
        }
    }
    Ok(None)
}

/// The volume in `range` of a device, whose boot sector and block of metadata are the beginning of `data` and the rest, opened with a
/// key of zeros, for fuzzing.
pub(crate) fn opened_with_zeros(data: &[u8], range: ByteRange) -> Result<Opened> {
    let (sector, block) = data.split_at_checked(BOOT_BYTES as usize).ok_or(Refusal::Damaged("it is cut short"))?;
    let (boot, metadata) = (Boot::parse(sector)?, Metadata::parse_whole(block)?);
    metadata.check(&boot)?;
    let key = [16, 32, 64].iter().find_map(|len| VolumeKey::of(metadata.method, &[0; 64][..*len]));
    let cipher = key.filter(|_| !metadata.is_decrypted()).map(|key| key.cipher(boot.sector_bytes)).transpose()?;
    Opened::new(range, regions(&metadata, &boot, range)?, cipher, String::new())
}

/// Reads the metadata: the first of the copies that is whole.
async fn read_metadata(volume: &Piece, boot: &Boot) -> Result<Metadata> {
    let mut found = Err(Refusal::Damaged("no copy of its metadata is named"));
    for at in &boot.metadata_at {
        let mut block = volume.read_up_to(*at, METADATA_BYTES).await;
        if block.as_ref().is_ok_and(|block| Metadata::is_longer(block)) {
            block = volume.read_up_to(*at, METADATA_BYTES_MAX).await;
        }
        found = match block {
            Ok(block) => Metadata::parse(&block),
            Err(why) => Err(why),
        };
        if found.is_ok() {
            break;
        }
    }
    found
}

/// Whether the volume begins like a file system: what confirms a key that nothing else confirms.
async fn holds_file_system(volume: &Piece, opened: &Opened) -> Result<bool> {
    let range = ByteRange::new(volume.range.offset, BOOT_BYTES);
    let sector = opened.read(&*volume.device, range).await?.into_bytes();
    let is_known = FILE_SYSTEMS.iter().any(|name| sector.get(3..11) == Some(name));
    Ok(is_known && (sector.ends_with(&[0x55, 0xaa]) || sector[3..].starts_with(b"ReFS")))
}
