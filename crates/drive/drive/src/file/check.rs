//! Checks of a drive file's content.

use cheetah_device::path_text::text_to_path;
use cheetah_kit::path::NOT_IN_NAMES;
use cheetah_nbd::uri::{Address, NbdUri};
use cheetah_redundancy::BadRanges;

use cheetah_seal::unit::SUITE;

use super::places::{self, BUNDLE_UNIT_BYTES};
use super::units::units_of;
use super::{DriveFile, Fill, Image, ImageState, LayoutName, MapRef, Set, SetNode, WrappedKey};
use crate::file::digests::CHUNK_BYTES;
use cheetah_image::hash::{HashChoice, is_hex};

/// The maximum number of nodes in all sets together.
pub const NODES_MAX: usize = 1024;
/// The maximum number of spares of a drive.
pub const SPARES_MAX: usize = 64;
/// The maximum number of sets in a drive.
pub const SETS_MAX: usize = 256;
/// The maximum number of recipients of a drive's key.
pub const KEYS_MAX: usize = 64;
/// The maximum size of a drive, in bytes: fits the signed integers of TOML and NBD, with room to add.
pub const SIZE_BYTES_MAX: u64 = 1 << 60;
/// The highest epoch: fits the signed integers of TOML.
const EPOCH_MAX: u64 = i64::MAX.unsigned_abs();
/// The maximum length of a name, an address or a URI, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

type Check = Result<(), Contradiction>;

/// Why the content of a drive file cannot be that of a drive: a clause without the path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Contradiction(String);

impl Contradiction {
    fn of(why: impl ToString) -> Self {
        Self(why.to_string())
    }
}

impl DriveFile {
    /// Checks sizes, units, ids, addresses and limits.
    pub(crate) fn check(&self) -> Check {
        ensure(!self.name.is_empty() && self.name.len() <= 255, || "the drive's name is empty or too long".into())?;
        ensure(is_hex(&self.id, 32), || format!("the drive's id '{}' is not 32 hexadecimal digits", self.id))?;
        ensure((1..=SETS_MAX).contains(&self.sets.len()), || {
            format!("it has {} sets; 1 to {SETS_MAX} are possible", self.sets.len())
        })?;
        let nodes = self.nodes().count();
        ensure(nodes <= NODES_MAX, || format!("it has {nodes} nodes; {NODES_MAX} are possible"))?;
        self.sets.iter().try_for_each(Set::check)?;
        self.check_bundles()?;
        let fits = places::last_start(&self.sets) < self.size
            && self.size <= self.capacity()
            && self.capacity() <= SIZE_BYTES_MAX;
        ensure(fits, || format!("its size {} and its sets' {} do not add up", self.size, self.capacity()))?;
        self.check_redundancy()?;
        self.check_seal()?;
        self.image.as_ref().map_or(Ok(()), |image| image.check(self.size))?;
        let state = self.image.as_ref().map(|image| image.state);
        ensure(self.fill.is_some() == (state == Some(ImageState::Filling)), || {
            "an image that is being filled has a source to fill it from, and no other image has".into()
        })?;
        ensure(self.map.is_some() == (state == Some(ImageState::Incomplete)), || {
            "an incomplete image has a map, and no other has".into()
        })?;
        let size = self.image.as_ref().map_or(0, |image| image.size);
        self.fill.as_ref().map_or(Ok(()), |fill| fill.check(size))?;
        self.map.as_ref().map_or(Ok(()), MapRef::check)
    }

    fn check_seal(&self) -> Check {
        let Some(seal) = &self.sealed else { return Ok(()) };
        ensure(seal.suite == SUITE, || format!("its suite {} is not known to this version", seal.suite))?;
        let units = units_of(seal.unit, self.size).map_err(Contradiction::of)?;
        ensure(units.sealed_bytes() <= self.capacity(), || "its sealed units do not fit into its sets".into())?;
        ensure(seal.keys.len() <= KEYS_MAX, || format!("its key is wrapped more than {KEYS_MAX} times"))?;
        let short = |key: &WrappedKey| key.recipient.len() <= TEXT_BYTES_MAX && key.age.len() <= 2 * TEXT_BYTES_MAX;
        ensure(seal.keys.iter().all(short), || "a wrapped key is too long".into())
    }

    fn check_bundles(&self) -> Check {
        for (index, set) in self.sets.iter().enumerate().filter(|(_, set)| set.bundle.is_some()) {
            let mut others =
                self.sets.iter().enumerate().filter(|(other, of)| *other != index && of.bundle == set.bundle);
            let is_beside = others.clone().any(|(other, _)| other.abs_diff(index) == 1);
            ensure(is_beside && others.all(|(_, other)| other.size == set.size), || {
                "sets that take turns do not follow each other, or have different sizes".into()
            })?;
            ensure(set.size >= BUNDLE_UNIT_BYTES, || "a set that takes turns is too small for that".into())?;
        }
        Ok(())
    }

    fn check_redundancy(&self) -> Check {
        let redundant = self.is_redundant();
        ensure(redundant || self.spares.is_empty(), || "it has spares, and no redundancy".into())?;
        ensure(self.spares.len() <= SPARES_MAX, || format!("it has more than {SPARES_MAX} spares"))?;
        let short = self.spares.iter().all(|spare| (1..=TEXT_BYTES_MAX).contains(&spare.len()));
        ensure(short, || format!("a spare's name is empty, or longer than {TEXT_BYTES_MAX} bytes"))?;
        let alike = self.sets.iter().all(|set| set.redundancy().is_some() == redundant);
        ensure(alike, || "some of its sets have redundancy, and others none".into())?;
        self.sets.iter().try_for_each(Set::check_redundancy)
    }
}

impl Set {
    fn check(&self) -> Check {
        ensure(self.unit.is_some() == (self.layout != LayoutName::Linear), || {
            "a stripe has a unit and linear has none".into()
        })?;
        ensure(self.copies.is_some() == (self.layout == LayoutName::Mirror), || {
            "a mirror has a number of copies, and no other layout has".into()
        })?;
        ensure(self.parities.is_some() == (self.layout == LayoutName::Parity), || {
            "parity has a number of parities, and no other layout has".into()
        })?;
        self.layout().check().map_err(Contradiction::of)?;
        ensure(!self.nodes.is_empty(), || "a set has no nodes".into())?;
        self.nodes.iter().try_for_each(SetNode::check)?;
        if self.redundancy().is_some() {
            let size = self.geometry().map_err(Contradiction::of)?.size();
            return ensure(size == self.size, || format!("a set's size is {}, and its nodes hold {size}", self.size));
        }
        if let Some(unit) = self.unit {
            let whole = self.nodes.iter().all(|node| node.size.is_multiple_of(unit));
            ensure(whole, || format!("a node's size is no multiple of the stripe unit {unit}"))?;
        }
        let sum = self.nodes.iter().try_fold(0u64, |sum, node| sum.checked_add(node.size));
        ensure(sum == Some(self.size), || format!("a set's size {} is not the sum of its nodes", self.size))
    }
}

impl Set {
    fn check_redundancy(&self) -> Check {
        let redundant = self.redundancy().is_some();
        ensure(redundant == (self.epoch > 0), || "a set with redundancy has an epoch, and no other has".into())?;
        if !redundant {
            let states = self.nodes.iter().any(|node| node.state.is_some()) || !self.bad.is_empty();
            return ensure(!states && self.incoming.is_empty() && self.former.is_empty(), || {
                "a node has a state or moves, or a set bad pages or former nodes, and the set no redundancy".into()
            });
        }
        let exist = self.incoming.iter().all(|incoming| incoming.member < self.nodes.len());
        ensure(exist && self.incoming.len() <= NODES_MAX, || "a node moves that does not exist".into())?;
        self.incoming.iter().try_for_each(|incoming| incoming.node.check())?;
        ensure(self.former.len() <= NODES_MAX, || format!("it has more than {NODES_MAX} former nodes"))?;
        self.former.iter().try_for_each(SetNode::check)?;
        ensure(self.epoch <= EPOCH_MAX, || format!("its epoch {} is impossible", self.epoch))?;
        ensure(BadRanges::parse(&self.bad, self.size).is_some(), || "its bad pages do not exist".into())?;
        match doubled(self.nodes.iter().filter_map(SetNode::uri).map(|uri| uri.address)) {
            Some(address) => Err(Contradiction(format!("two of the nodes of a set have one address, {address}"))),
            None => Ok(()),
        }
    }
}

impl SetNode {
    fn check(&self) -> Check {
        let texts = [Some(&self.name), Some(&self.nbd), self.http.as_ref()];
        let short = texts.into_iter().flatten().all(|text| text.len() <= TEXT_BYTES_MAX);
        ensure(short, || format!("a node's name or address is longer than {TEXT_BYTES_MAX} bytes"))?;
        ensure(self.nbd.parse::<NbdUri>().is_ok(), || format!("node {}: '{}' is no NBD URI", self.name, self.nbd))?;
        ensure(self.size > 0, || format!("node {} holds nothing", self.name))?;
        ensure(self.http.is_some() == self.instance.is_some(), || {
            format!("node {}: a node has an instance and a control address, a foreign server neither", self.name)
        })?;
        let hex = self.instance.as_ref().is_none_or(|instance| is_hex(instance, 32));
        ensure(hex, || format!("node {}: its instance is not 32 hexadecimal digits", self.name))
    }
}

fn is_sector_size(size: Option<u32>) -> bool {
    size.is_none_or(|size| size.is_power_of_two() && (512..=65536).contains(&size))
}

impl Image {
    fn check(&self, drive: u64) -> Check {
        ensure(self.size <= drive, || format!("its image of {} bytes is larger than the drive", self.size))?;
        ensure(is_sector_size(self.sector_size), || "the sector size of the image's source is invalid".into())?;
        let hashes = self.hashes.iter().all(|(kind, digest)| is_hex(digest, kind.digits()));
        ensure(hashes, || "a hash of the image has the wrong length".into())?;
        ensure(self.state.is_loaded() == self.digests.is_some(), || {
            "a loaded image has chunk digests, an unfinished one none".into()
        })?;
        let Some(digests) = &self.digests else { return Ok(()) };
        ensure(is_plain(&digests.file), || "the file of digests must lie beside the drive file".into())?;
        ensure(digests.chunk == CHUNK_BYTES, || format!("the digests' chunk is {}, not {CHUNK_BYTES}", digests.chunk))?;
        ensure(is_hex(&digests.blake3, 64), || "the digest of the digests is not 64 hexadecimal digits".into())
    }
}

impl Fill {
    fn check(&self, size: u64) -> Check {
        let texts = [Some(&self.kind), Some(&self.location), self.serial.as_ref(), self.model.as_ref()];
        let texts = texts.into_iter().flatten().map(String::as_str);
        let mut texts = texts.chain(self.claimed.iter().map(|(_, digest)| digest));
        let short = texts.all(|text| text.len() <= TEXT_BYTES_MAX);
        ensure(short, || format!("a text about the source is longer than {TEXT_BYTES_MAX} bytes"))?;
        ensure(self.size == size, || format!("its source has {} bytes, its image {size}", self.size))?;
        ensure(is_sector_size(self.sector_size), || "the source's sector size is invalid".into())?;
        ensure(self.hashes.parse::<HashChoice>().is_ok(), || format!("'{}' names no hashes", self.hashes))
    }
}

impl MapRef {
    fn check(&self) -> Check {
        ensure(is_plain(&self.file), || "the map must lie beside the drive file".into())?;
        ensure(is_hex(&self.blake3, 64), || "the digest of the map is not 64 hexadecimal digits".into())
    }
}

/// Whether a name is that of a file in the drive file's directory.
fn is_plain(file: &str) -> bool {
    let name = text_to_path(file);
    // The decoded name is checked, because a name that is not UTF-8 is encoded.
    let bytes = name.as_os_str().as_encoded_bytes();
    !bytes.is_empty() && !bytes.iter().any(|byte| NOT_IN_NAMES.contains(byte)) && bytes != b".." && bytes != b"."
}

/// The first address that occurs twice: two members on one machine would be lost together.
pub(crate) fn doubled(addresses: impl IntoIterator<Item = Address>) -> Option<Address> {
    let mut known = Vec::new();
    for address in addresses {
        if known.contains(&address) {
            return Some(address);
        }
        known.push(address);
    }
    None
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(Contradiction(otherwise())) }
}
