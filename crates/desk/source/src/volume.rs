//! A volume of a source, read in place of the source.

use std::sync::Arc;

use cheetah_device::Size;
use cheetah_error::{Error, Result, next};
use cheetah_image::{CaseData, Evidence, Hashes, Identity, Kind, Source};
use cheetah_unlock::Keys;

use crate::stack::{How, InnerVolume, ShadowCopies, Start, VolumeStack, find};

/// What is shown of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Shown {
    /// What is on the disk.
    #[default]
    Source,
    /// The content of a volume in it.
    Volume(WhichVolume),
}

/// A volume of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichVolume {
    /// The only encrypted volume that a key opens.
    Opened,
    /// The encrypted volume in the partition with this number, which a key opens.
    OpenedPartition(u32),
    /// Any volume that was found, by the end of its name: `vg-home`, `md0`, `md0.p1.unlocked`.
    Named(String),
}

/// The volume of a source that is to be read in place of the source.
#[derive(Debug, Clone)]
pub struct VolumeChoice {
    /// The keys that are tried on encrypted volumes, if there are any.
    pub keys: Option<Arc<Keys>>,
    /// The volume.
    pub which: WhichVolume,
}

impl VolumeChoice {
    /// Looks for the volumes of a source, tries the keys on them, and returns all of them, and the one that is meant.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if no key opens one, `Kind::Misuse` if several are open and none was chosen, or none has the name.
    pub async fn find(&self, source: &Source) -> Result<(VolumeStack, InnerVolume)> {
        let copies = match &self.which {
            WhichVolume::Named(name) => ShadowCopies::Unasked.and(name),
            WhichVolume::Opened | WhichVolume::OpenedPartition(_) => ShadowCopies::Unasked,
        };
        let (keys, sectors) = (self.keys.as_deref(), source.identity.sector_size.into());
        let how = How { keys, sectors, others: &[], copies };
        let stack = find(source.device.clone(), Start::Source, how).await;
        let volume = chosen(&stack, &source.identity.location, &self.which)?.clone();
        Ok((stack, volume))
    }

    /// Returns the volume as a source of its own, and all volumes.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub async fn open(&self, evidence: Evidence) -> Result<OpenedAlone> {
        let (stack, volume) = self.find(&evidence.source).await?;
        Ok(OpenedAlone { evidence: alone(evidence, &stack, &volume)?, volume, stack })
    }
}

/// A volume of a source, as a source of its own.
pub struct OpenedAlone {
    /// Its content.
    pub evidence: Evidence,
    /// The volume.
    pub volume: InnerVolume,
    /// All volumes of the source.
    pub stack: VolumeStack,
}

/// Returns a volume of a source, which may have been opened again since its volumes were looked for, as a source of its own.
///
/// # Errors
///
/// If the volume lies beyond the source.
pub fn alone(evidence: Evidence, stack: &VolumeStack, volume: &InnerVolume) -> Result<Evidence> {
    let source = evidence.source;
    let device = stack.device(source.device, volume)?;
    let name = format!("{}.{}", source.name, volume.name);
    let source = Source { notes: source.notes, ..Source::new(device, identity(source.identity, volume), name) };
    // An agent's digests are of what is on the disk.
    Ok(Evidence { source, digests: None, ..evidence })
}

/// The volume that is meant, of the source at `location`.
pub(crate) fn chosen<'a>(stack: &'a VolumeStack, location: &str, which: &WhichVolume) -> Result<&'a InnerVolume> {
    match which {
        WhichVolume::Named(name) => named(stack, location, name),
        WhichVolume::Opened => opened(stack, location, None),
        WhichVolume::OpenedPartition(number) => opened(stack, location, Some(*number)),
    }
}

/// The volume with this name.
fn named<'a>(stack: &'a VolumeStack, location: &str, name: &str) -> Result<&'a InnerVolume> {
    if let Some(volume) = stack.volumes.iter().find(|volume| volume.name == name) {
        return Ok(volume);
    }
    let volumes = stack.volumes.iter().map(|one| format!("{} ({})", one.name, Size(one.range.len)));
    // Those that are not shown can be named as well.
    let copies = stack.copies.iter().filter(|copy| !copy.is_shown).map(|copy| copy.name.clone());
    let mut reasons = match &volumes.chain(copies).collect::<Vec<_>>()[..] {
        [] => vec!["none was found in it".to_owned()],
        names => vec![format!("it has {}", cheetah_error::list(names))],
    };
    reasons.extend(stack.not_opened.iter().cloned());
    reasons.extend(stack.unlocked.iter().flat_map(|unlocked| unlocked.outcome().failures()));
    Err(Error::misuse(format!("{location}: no volume is called {name}; {}", reasons.join("; "))))
}

/// The encrypted volume that a key opened, in this partition.
fn opened<'a>(stack: &'a VolumeStack, location: &str, partition: Option<u32>) -> Result<&'a InnerVolume> {
    let open = stack.volumes.iter().filter(|volume| volume.opened().is_some());
    let is_meant = |volume: &&InnerVolume| match (partition, volume.opened()) {
        (None, _) => true,
        (Some(number), Some(opened)) => opened.inside.is_empty() && opened.partition == Some(number),
        (Some(_), None) => false,
    };
    let meant: Vec<_> = open.clone().filter(is_meant).collect();
    let all = || cheetah_error::list(&open.clone().filter_map(shown).collect::<Vec<_>>());
    match (&meant[..], partition) {
        ([volume], _) => Ok(*volume),
        ([], Some(number)) if open.clone().next().is_some() => {
            Err(Error::misuse(format!("{location}: no key opened partition {number}; open is {}", all())))
        }
        ([], _) => {
            let outcome = stack.unlocked.as_ref().map(|unlocked| unlocked.outcome()).unwrap_or_default();
            Err(Error::failed(format!("{location}: {}", outcome.failures().join("; "))))
        }
        _ => Err(Error::misuse(format!("{location} has several volumes that are open: {}", all()))
            .next(next::Source::ChooseVolume)),
    }
}

fn shown(volume: &InnerVolume) -> Option<String> {
    let (opened, size) = (volume.opened()?, Size(volume.range.len));
    Some(match (opened.inside.as_str(), opened.partition) {
        ("", Some(number)) => format!("partition {number} ({size})"),
        ("", None) => format!("the whole of it ({size})"),
        _ => format!("{} ({size})", volume.name),
    })
}

/// The identity of a volume of a source. What describes the disk is kept; what is about its content is not.
fn identity(source: Identity, volume: &InnerVolume) -> Identity {
    let which = match volume.opened() {
        Some(opened) => match (opened.inside.as_str(), opened.partition) {
            ("", None) => ", decrypted".to_owned(),
            ("", Some(number)) => format!(", partition {number}, decrypted"),
            _ => format!(", {}, decrypted", volume.name.trim_end_matches(".unlocked")),
        },
        None => format!(", {}", volume.name),
    };
    Identity {
        kind: Kind::Volume,
        location: format!("{}{which}", source.location),
        size: volume.range.len,
        hashes: Hashes::default(),
        unreadable: Vec::new(),
        compressed_sha256: None,
        case: CaseData::default(),
        ..source
    }
}
