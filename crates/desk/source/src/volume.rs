//! A volume of a source, read in place of the source.

use std::sync::Arc;

use cheetah_device::{DynDevice, Size};
use cheetah_error::{Error, Result, next};
use cheetah_image::{CaseData, Evidence, Hashes, Identity, Kind, LinkCounters, Source};
use cheetah_kit::file::Status;
use cheetah_unlock::Keys;
use futures::future::BoxFuture;

use crate::apart::named_apart;
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

/// Opens another source that has parts of the same volumes; called again each time the link to one of them was lost.
pub type OpenOther = Arc<dyn Fn() -> BoxFuture<'static, Result<Evidence>> + Send + Sync>;

/// The volume of a source that is to be read in place of the source.
#[derive(Clone)]
pub struct VolumeChoice {
    /// The keys that are tried on encrypted volumes, if there are any.
    pub keys: Option<Arc<Keys>>,
    /// The volume.
    pub which: WhichVolume,
    /// Open the other sources that have parts of the same arrays and volume groups, in their order.
    pub others: Vec<OpenOther>,
}

impl VolumeChoice {
    /// Opens the other sources.
    ///
    /// # Errors
    ///
    /// The first error of one of them.
    pub async fn open_others(&self) -> Result<Vec<Evidence>> {
        let mut others = Vec::new();
        for open in &self.others {
            others.push(open().await?);
        }
        Ok(others)
    }

    /// Looks for the volumes of a source and of the others, tries the keys on them, and returns all of them, and the one that is meant.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if no key opens one, `Kind::Misuse` if several are open and none was chosen, if none has the name, or if a
    /// source is given twice.
    pub async fn find(&self, source: &Source, others: &[Evidence]) -> Result<(VolumeStack, InnerVolume)> {
        refuse_twice(source, others)?;
        let copies = match &self.which {
            WhichVolume::Named(name) => ShadowCopies::Unasked.and(name),
            WhichVolume::Opened | WhichVolume::OpenedPartition(_) => ShadowCopies::Unasked,
        };
        let (keys, sectors) = (self.keys.as_deref(), source.identity.sector_size.into());
        let named = named_apart(others.iter().map(|other| (other.source.name.as_str(), &other.source.device)));
        let how = How { keys, sectors, others: &named, copies };
        let stack = find(source.device.clone(), Start::Source, how).await;
        let volume = chosen(&stack, &source.identity.location, &self.which)?.clone();
        Ok((stack, volume))
    }

    /// Returns the volume as a source of its own, and all volumes.
    ///
    /// # Errors
    ///
    /// As [`open_others`](Self::open_others) and [`find`](Self::find).
    pub async fn open(&self, evidence: Evidence) -> Result<OpenedAlone> {
        let others = self.open_others().await?;
        let (stack, volume) = self.find(&evidence.source, &others).await?;
        Ok(OpenedAlone { evidence: alone(evidence, others, &stack, &volume)?, volume, stack })
    }
}

/// Fails if one of the sources is another one, too: its parts would be there twice.
fn refuse_twice(source: &Source, others: &[Evidence]) -> Result<()> {
    let others: Vec<_> = others.iter().map(|other| &other.source).collect();
    for (index, other) in others.iter().enumerate() {
        let mut earlier = std::iter::once(source).chain(others[..index].iter().copied());
        if earlier.any(|one| is_same(&one.identity, &other.identity)) {
            return Err(Error::misuse(format!("{} is given twice", other.identity.location)));
        }
    }
    Ok(())
}

/// Whether both are certainly one disk or image: one file, or one place.
fn is_same(one: &Identity, other: &Identity) -> bool {
    let file = |identity: &Identity| {
        let (path, _) = cheetah_image::spec::path_of(&identity.location)?;
        Status::at(&path).ok().map(|status| status.id)
    };
    let there = file(one);
    one.location == other.location || there.is_some() && there == file(other)
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

/// Returns a volume of a source and of the others, which may have been opened again since its volumes were looked for, as a source of
/// its own.
///
/// # Errors
///
/// If the volume lies beyond the source.
pub fn alone(evidence: Evidence, others: Vec<Evidence>, stack: &VolumeStack, volume: &InnerVolume) -> Result<Evidence> {
    let wire = wire_of_all(&evidence, &others);
    let Evidence { source, inbound, .. } = evidence;
    let devices: Vec<_> = others.iter().map(|other| DynDevice::clone(&other.source.device)).collect();
    let device = stack.device_again(DynDevice::clone(&source.device), &devices, volume)?;
    let name = format!("{}.{}", source.name, volume.name);
    let disks: Vec<_> = std::iter::once(source).chain(others.into_iter().map(|other| other.source)).collect();
    let identity = identity_on(&disks, volume).ok_or_else(|| Error::failed("a volume lies on no disk"))?;
    let notes = disks.iter().flat_map(|disk| disk.notes.iter().cloned()).collect();
    let source = Source { notes, ..Source::new(device, identity, name) };
    // An agent's digests are of what is on the disk.
    Ok(Evidence { source, wire, inbound, digests: None, disks })
}

/// Reads the sum of the counters of all links, if there are any.
fn wire_of_all(first: &Evidence, others: &[Evidence]) -> Option<Wire> {
    let wires: Vec<Wire> = std::iter::once(first).chain(others).filter_map(|one| one.wire.clone()).collect();
    if wires.is_empty() {
        return None;
    }
    Some(Arc::new(move || wires.iter().fold(LinkCounters::default(), |sum, wire| sum.plus(wire()))))
}

/// Reads the counters of a link.
type Wire = Arc<dyn Fn() -> LinkCounters + Send + Sync>;

/// The identity of a volume that lies on these disks. Of several, none describes all of it: each has an identity of its own.
fn identity_on(disks: &[Source], volume: &InnerVolume) -> Option<Identity> {
    let (first, others) = disks.split_first()?;
    let of_first = identity(first.identity.clone(), volume);
    if others.is_empty() {
        return Some(of_first);
    }
    let protection = |identity: &Identity| identity.write_protected;
    let write_protected = disks.iter().map(|disk| protection(&disk.identity)).reduce(|all, one| match (all, one) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    });
    let watched = disks.iter().map(|disk| disk.identity.watched.clone()).reduce(|all, one| {
        // What is not watched of one of them is not watched.
        all.zip(one).map(|(all, one)| if all == one { all } else { format!("{all}; {one}") })
    });
    Some(Identity {
        model: None,
        serial: None,
        aoe: None,
        server: None,
        write_protected: write_protected.flatten(),
        watched: watched.flatten(),
        ..of_first
    })
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
    reasons.extend(stack.not_opened.iter().map(ToString::to_string));
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
