//! An encrypted volume of a source that a key opens, read in place of the source: decrypted.

use std::sync::Arc;

use cheetah_device::window::Window;
use cheetah_device::{DynDevice, Size};
use cheetah_error::{Error, Result, next};
use cheetah_image::{CaseData, Evidence, Hashes, Identity, Kind, Source};
use cheetah_unlock::{Keys, OpenedVolume, Unlocked, unlock};

/// What is shown of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shown {
    /// What is on the disk.
    #[default]
    Source,
    /// The content of an opened volume.
    Volume {
        /// The number of its partition; `None` for the only one that is open.
        partition: Option<u32>,
    },
}

/// The encrypted volume of a source that is to be read in place of the source.
#[derive(Debug, Clone)]
pub struct VolumeChoice {
    /// The keys that are tried on it.
    pub keys: Arc<Keys>,
    /// The number of its partition; `None` for the only one that is open.
    pub partition: Option<u32>,
}

impl VolumeChoice {
    /// Tries the keys on the volumes of a source, and returns what they did, and the volume.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if no key opens it, `Kind::Misuse` if several are open and none was chosen.
    pub async fn find(&self, source: &Source) -> Result<(Unlocked, OpenedVolume)> {
        let unlocked = unlock(&source.device, source.identity.sector_size.into(), &self.keys).await;
        let volume = chosen(&unlocked, &source.identity.location, self.partition)?.clone();
        Ok((unlocked, volume))
    }

    /// Returns the volume as a source of its own, and what the keys did.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub async fn open(&self, evidence: Evidence) -> Result<OpenedAlone> {
        let (unlocked, volume) = self.find(&evidence.source).await?;
        Ok(OpenedAlone { evidence: alone(evidence, &unlocked, &volume)?, volume, unlocked })
    }
}

/// An opened volume, as a source of its own.
pub struct OpenedAlone {
    /// Its content.
    pub evidence: Evidence,
    /// The volume.
    pub volume: OpenedVolume,
    /// All volumes of the source.
    pub unlocked: Unlocked,
}

/// Returns an opened volume of a source, which may have been opened again since keys were tried on it, as a source of its own.
///
/// # Errors
///
/// If the volume lies beyond the source.
pub fn alone(evidence: Evidence, unlocked: &Unlocked, volume: &OpenedVolume) -> Result<Evidence> {
    let source = evidence.source;
    let device = decrypted(unlocked, source.device, volume)?;
    let name = format!("{}.{}", source.name, volume.suffix());
    let source = Source { notes: source.notes, ..Source::new(device, identity(source.identity, volume), name) };
    // An agent's digests are of what is on the disk.
    Ok(Evidence { source, digests: None, ..evidence })
}

/// The volume that is meant, of the source at `location`.
pub(crate) fn chosen<'a>(unlocked: &'a Unlocked, location: &str, partition: Option<u32>) -> Result<&'a OpenedVolume> {
    let is_meant = |volume: &&OpenedVolume| partition.is_none_or(|number| volume.partition == Some(number));
    let meant: Vec<_> = unlocked.opened.iter().filter(is_meant).collect();
    match (&meant[..], partition) {
        ([volume], _) => Ok(*volume),
        ([], Some(number)) if !unlocked.opened.is_empty() => {
            let open = cheetah_error::list(&shown(&unlocked.opened));
            Err(Error::misuse(format!("{location}: no key opened partition {number}; open is {open}")))
        }
        ([], _) => Err(Error::failed(format!("{location}: {}", unlocked.outcome().failures().join("; ")))),
        _ => {
            let open = cheetah_error::list(&shown(&unlocked.opened));
            Err(Error::misuse(format!("{location} has several volumes that are open: {open}"))
                .next(next::Source::ChooseVolume))
        }
    }
}

fn shown(volumes: &[OpenedVolume]) -> Vec<String> {
    let shown = |volume: &OpenedVolume| match volume.partition {
        Some(number) => format!("partition {number} ({})", Size(volume.size_bytes)),
        None => format!("the whole of it ({})", Size(volume.size_bytes)),
    };
    volumes.iter().map(shown).collect()
}

/// The content of an opened volume of the source that `below` shows.
pub(crate) fn decrypted(unlocked: &Unlocked, below: DynDevice, volume: &OpenedVolume) -> Result<DynDevice> {
    let window = Window::new(unlocked.over(below), volume.range());
    Ok(Arc::new(window.map_err(Error::device("showing an opened volume"))?))
}

/// The identity of an opened volume of a source. What describes the disk is kept; what is about its content is not.
fn identity(source: Identity, volume: &OpenedVolume) -> Identity {
    let which = volume.partition.map_or(String::new(), |number| format!(", partition {number}"));
    Identity {
        kind: Kind::Volume,
        location: format!("{}{which}, decrypted", source.location),
        size: volume.size_bytes,
        hashes: Hashes::default(),
        unreadable: Vec::new(),
        compressed_sha256: None,
        case: CaseData::default(),
        ..source
    }
}
