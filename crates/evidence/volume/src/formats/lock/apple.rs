//! Volumes of Core Storage and containers of APFS, as [`apple`](crate::apple) reads them.

use cheetah_device::{ByteRange, Device};

use super::Lock;
use crate::apple::core_storage::{Log, User};
use crate::apple::{Flaw, apfs, core_storage};

const CIPHER: &str = "AES-XTS 128";
const CONVERTING: &str = "being encrypted or decrypted";

/// Describes a physical volume of Core Storage; `None` if it is damaged.
pub(in super::super) async fn describe_core_storage(
    device: &dyn Device,
    range: ByteRange,
) -> Result<Option<Lock>, Flaw> {
    let found = match core_storage::read(device, range, Log::Used).await {
        Ok(found) => found,
        Err(flaw) => return without(flaw),
    };
    let volume = found.volume;
    let mut lock = Lock { id: volume.id, label: volume.name, ..Lock::default() };
    match volume.context {
        Some(context) if context.is_encrypted() => {
            lock.cipher = CIPHER.to_owned();
            lock.state = if context.is_converting { CONVERTING } else { "" };
            for User { id, kind, name, .. } in context.users {
                let id = if name.is_empty() { id } else { format!("{id}, {name}") };
                lock.protect(kind, super::text(id.chars()));
            }
        }
        Some(_) => lock.state = "not encrypted",
        None => {
            lock.cipher = CIPHER.to_owned();
            lock.state = "its keys are in EncryptedRoot.plist.wipekey on the recovery partition";
        }
    }
    Ok(Some(lock))
}

/// Describes a container of APFS with encrypted volumes; `None` if it has none. Of one that is damaged or not supported, it is not known
/// whether it has some: that is an error.
pub(in super::super) async fn describe_apfs(device: &dyn Device, range: ByteRange) -> Result<Option<Lock>, Flaw> {
    let container = apfs::read(device, range).await?;
    let mut encrypted = container.volumes.iter().filter(|volume| volume.is_encrypted).peekable();
    if encrypted.peek().is_none() && container.unread.is_empty() {
        return Ok(None);
    }
    let mut lock = Lock { id: container.id.to_string(), cipher: CIPHER.to_owned(), ..Lock::default() };
    lock.unknown = container.unread.first().map(ToString::to_string).unwrap_or_default();
    for volume in encrypted {
        let name = super::text(volume.name.chars());
        lock.state = volume.refused.unwrap_or(lock.state);
        for opener in &volume.openers {
            lock.protect(format!("{} of \"{name}\"", volume.kind_of(opener)), opener.id.to_string());
        }
    }
    Ok(Some(lock))
}

/// What is damaged or unsupported has no description; what cannot be read is told.
fn without(flaw: Flaw) -> Result<Option<Lock>, Flaw> {
    match flaw {
        Flaw::Unread(_) => Err(flaw),
        Flaw::Damaged(_) | Flaw::Unsupported(_) => Ok(None),
    }
}
