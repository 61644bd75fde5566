//! Core Storage, the volume manager of OS X 10.7 to macOS 10.15, and FileVault 2 in it, as "FileVault Drive Encryption (FVDE)"
//! describes them (O. Choudary, J. Metz, libfvde).
//!
//! A physical volume has a header, whose key decrypts the metadata: it hides nothing. The metadata are a log of blocks, each with the
//! identifier of an object and of the transaction that wrote it. The last version of each object counts. They say where the
//! logical volume lies, and hold the keys that its passwords seal ([`Context`]). The disk of a system has these in a file on another
//! partition instead ([`CoreStorage::context_in_file`]).

mod context;
mod header;
mod label;
mod logical;
mod objects;
#[cfg(test)]
mod tests;

use cheetah_device::{ByteRange, Device};

pub use self::context::{Context, SealedByPassphrase, User, VolumeKey};
use self::header::Header;
use self::label::Label;
pub use self::logical::{LogicalVolume, Segment};
use self::objects::Objects;
use super::part::Part;
use super::xts::Xts;
use super::{Flaw, Result, Uuid};
use crate::checks::Checks;

/// The longest file that holds keys, in bytes. They take some ten thousand.
const FILE_BYTES_MAX: usize = 4 << 20;

/// How much of the log of metadata is read. It has some ten MiB, of which mostly a small part was ever used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// Up to the first part that was never used: enough to name a volume.
    Used,
    /// All of it.
    Whole,
}

/// A physical volume, and the logical volume on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreStorage {
    /// The identifier of the physical volume.
    pub id: Uuid,
    /// The name of the group that it belongs to.
    pub group: String,
    /// The logical volume.
    pub volume: LogicalVolume,
    key: [u8; 16],
}

impl CoreStorage {
    /// The keys in the content of the file `EncryptedRoot.plist.wipekey`, which the disk of a system has on another partition; `None`
    /// if it is another file, or belongs to another volume.
    pub fn context_in_file(&self, file: &[u8]) -> Option<Context> {
        if !(16..=FILE_BYTES_MAX).contains(&file.len()) {
            return None;
        }
        // The description of the format names both keys.
        [self.key, self.id.0].iter().find_map(|key| {
            let mut list = file.to_vec();
            Xts::new(key, &[0; 16]).decrypt_unit(0, &mut list);
            Context::parse(&list)
        })
    }
}

/// Reads what a physical volume says of itself and the volume on it.
///
/// # Errors
///
/// If it is damaged or cannot be read, or uses something that is not supported.
pub async fn read(device: &dyn Device, range: ByteRange, log: Log) -> Result<CoreStorage> {
    read_with(device, range, log, Checks::Compared).await
}

/// The same. If checksums are ignored, the log is taken as if it were decrypted.
pub(crate) async fn read_with(device: &dyn Device, range: ByteRange, log: Log, checks: Checks) -> Result<CoreStorage> {
    let part = Part { device, range };
    let header = Header::read(&part, checks).await?;
    let label = Label::read(&part, &header, checks).await?;
    let mut found = Err(Flaw::Damaged("no copy of its metadata is named"));
    for copy in &label.copies {
        found = match Objects::read(&part, &header, *copy, log, checks).await {
            Ok(objects) => LogicalVolume::find(&objects, &header, label.disk),
            Err(why) => Err(why),
        };
        // Another copy says nothing else.
        if !matches!(found, Err(Flaw::Damaged(_) | Flaw::Unread(_))) {
            break;
        }
    }
    Ok(CoreStorage { id: header.id, group: label.group, volume: found?, key: header.key })
}
