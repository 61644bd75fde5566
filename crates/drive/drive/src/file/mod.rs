//! The drive file: where a drive's bytes are, in TOML.
//!
//! ```toml
//! # A Cheetah drive. Do not edit: the seal below would no longer match.
//! seal = "…"                     # BLAKE3 of the rest in its canonical form
//! version = 2
//! name = "case42"
//! id = "…"                       # 32 hexadecimal digits, never used for another drive
//! size = 1048576                 # bytes, exactly
//! spares = ["lab-9"]             # nodes that may take the place of lost ones; absent if there are none
//!
//! [[set]]                        # the drive is its sets, one after the other; those of one bundle take turns
//! bundle = 0                     # sets with the same number take turns in units of 1 MiB; absent if it stands alone
//! epoch = 1                      # of the map of a set with redundancy; otherwise absent
//! bad = "0-3,7"                  # pages of 4096 bytes of the set whose content is lost; absent if there are none
//! layout = "stripe"              # or "linear", "mirror", "parity"
//! unit = 65536                   # bytes; not of linear
//! copies = 2                     # mirror only
//! parities = 1                   # parity only
//! size = 1048576                 # bytes of data: the sum of its nodes, unless there is redundancy
//!
//! [[set.node]]
//! name = "lab-7"                 # as the user wrote it
//! nbd = "nbd://10.0.0.7:10809/case42-0123abcd-0"
//! http = "10.0.0.7:10810"        # absent for a foreign server, like `instance`
//! instance = "…"                 # the instance of the node that holds the bytes
//! size = 1048576                 # bytes of its export that belong to the drive
//! state = "stale"                # or "syncing"; absent if it missed no write
//!
//! [[set.incoming]]               # a node to which a part of the set is moving
//! member = 2                     # the index of the [[set.node]] that moves
//! [set.incoming.node]            # entries as of [[set.node]]
//! …
//!
//! [[set.former]]                 # a node that was replaced or left; entries as of [[set.node]]
//! …
//!
//! [sealed]                       # if its nodes hold ciphertext only; its units are listed in NAME.drive.seal
//! suite = 1
//! unit = 65536                   # bytes of content in a unit
//! holes = false                  # whether holes are kept as holes
//!
//! [[sealed.key]]                 # the drive's key, wrapped; several can open it
//! recipient = "age1…"            # or "passphrase"
//! age = "…"                      # an age file, in base64
//!
//! [image]                        # once one has been loaded
//! …
//!
//! [fill]                         # while the image is being filled
//! …
//!
//! [map]                          # if parts of the image could not be read
//! …
//! ```
//!
//! * [`codec`]: text to file and back, the seal and the limits.
//! * [`check`]: checks of its content.
//! * [`disk`]: reading it, and writing it atomically.
//! * [`digests`] and `coverage`: the files beside it.
//! * `places`: where the bytes of the sets are in the drive.
//! * `set`: a set, together with the drive that it belongs to.
//! * `stack`: stacking the devices of its nodes.
//! * `units`: the units of a sealed drive.

pub mod check;
pub mod codec;
pub(crate) mod coverage;
pub mod digests;
pub mod disk;
pub(crate) mod places;
pub(crate) mod set;
pub mod side_space;
pub(crate) mod stack;
pub(crate) mod units;

use std::path::{Path, PathBuf};

use cheetah_control::receipt::Receipt;
use cheetah_device::path_text::{path_to_text, text_to_path};
use cheetah_device::{ByteRange, Size};
use cheetah_nbd::uri::NbdUri;
use cheetah_redundancy::{BadRanges, Redundancy, SetGeometry};
use serde::{Deserialize, Serialize};

use crate::layout::kind::{Layout, UNIT_BYTES_DEFAULT};
use cheetah_image::ServedBy;
use cheetah_image::hash::Hashes;

/// The version of the schema; a file with another one is refused.
pub const VERSION: u32 = 2;

/// The confidence of [`Image::differ_bytes_max`], in percent.
pub const CONFIDENCE_PERCENT: f64 = 99.9;

/// The content of a drive file, and its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveFile {
    /// The path of the file; not part of its content.
    #[serde(skip)]
    pub path: PathBuf,
    /// [`VERSION`].
    pub version: u32,
    /// The drive's name.
    pub name: String,
    /// The drive's id: 32 hexadecimal digits, never used for another drive.
    pub id: String,
    /// The drive's size in bytes. At most what the sets hold, and more than all but the last of them hold.
    pub size: u64,
    /// Nodes that may take the place of lost ones, as the user wrote them; of a drive with redundancy only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<String>,
    /// The sets, one after the other; at least one. Either all have redundancy or none.
    #[serde(rename = "set")]
    pub sets: Vec<Set>,
    /// The seal, if its nodes hold ciphertext only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed: Option<SealSection>,
    /// The image, if one was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// The source of a fill; only while the image is [`ImageState::Filling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
    /// The map of an image that is [`ImageState::Incomplete`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<MapRef>,
}

/// A set: nodes that joined the drive together, and the layout over them. A set with redundancy has a map of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// The number of its bundle: the sets that take turns with it. They follow each other, and have one size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<u32>,
    /// The epoch of the map that this entry agrees with, from 1; 0 of a set without redundancy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u64,
    /// Runs of pages of 4096 bytes whose content is lost, although the nodes answer: `0-3,7`. Of a set with redundancy
    /// only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bad: String,
    /// The layout.
    pub layout: LayoutName,
    /// Stripe unit in bytes; absent for linear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<u64>,
    /// Copies of each unit; of a mirror only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<usize>,
    /// Parity units of each group; of parity only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parities: Option<usize>,
    /// The bytes of data it holds: the sum of its nodes' sizes, or with redundancy what [`Set::geometry`] says.
    pub size: u64,
    /// The nodes, in order; at least one.
    #[serde(rename = "node")]
    pub nodes: Vec<SetNode>,
    /// Nodes to which parts of the set are moving; of a set with redundancy only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incoming: Vec<IncomingNode>,
    /// Nodes that were replaced or left, with the receipt once a node has wiped what it held; oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<SetNode>,
}

/// A node's part of a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetNode {
    /// The node's name, as the user wrote it.
    pub name: String,
    /// The NBD URI of the export.
    pub nbd: String,
    /// The address of the control API, as `host:port`; absent for a foreign server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// The instance of the node that holds the bytes, 32 hexadecimal digits; absent for a foreign server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Bytes of the export that belong to the drive, from its start.
    pub size: u64,
    /// Its state in a drive with redundancy; absent if it missed no write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeSync>,
    /// The node's receipt, once it has wiped its part; the drive is then destroyed in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<Receipt>>,
}

/// A node's part of a drive. Another part is another export, or on another instance of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePart {
    /// The NBD URI of the export.
    pub nbd: String,
    /// The instance of the node; absent for a foreign server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

impl From<&SetNode> for NodePart {
    fn from(node: &SetNode) -> Self {
        Self { nbd: node.nbd.clone(), instance: node.instance.clone() }
    }
}

/// A node to which a part of a set is moving.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IncomingNode {
    /// The index of the node entry of the set that moves.
    pub member: usize,
    /// The node.
    pub node: SetNode,
}

/// The state of a node that missed writes to a drive with redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum NodeSync {
    /// It is being resynchronized: written, but not read.
    Syncing,
    /// It missed writes: neither read nor written.
    Stale,
}

/// The seal of a drive whose nodes hold ciphertext only. [`DriveFile::size`] is that of the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealSection {
    /// The suite of algorithms, as the format numbers them.
    pub suite: u8,
    /// Bytes of content in a unit.
    pub unit: u64,
    /// Whether holes are kept as holes, so that nodes know where they are.
    pub holes: bool,
    /// The number of times that the drive was opened for writing, as the seal record counts them: a record that knows of
    /// fewer is an older one.
    #[serde(default)]
    pub epoch: u32,
    /// The drive's key, wrapped for each that can open it; none once it is destroyed.
    #[serde(default, rename = "key")]
    pub keys: Vec<WrappedKey>,
}

/// The key of a drive, wrapped for one recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrappedKey {
    /// The recipient, `age1…`, or `passphrase`.
    pub recipient: String,
    /// The `age` file, in base64.
    pub age: String,
}

/// The image on a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Its source, as the user wrote it.
    pub source: String,
    /// Its size in bytes; it begins at the drive's start.
    pub size: u64,
    /// The sector size of its source in bytes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector_size: Option<u32>,
    /// Its state.
    pub state: ImageState,
    /// The file of chunk digests; absent until the load has finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digests: Option<DigestsRef>,
    /// Hashes of the whole; empty until the load has finished.
    #[serde(default)]
    pub hashes: Hashes,
    /// The most bytes that may differ from the source, because it was opened again while it was read, and compared by a
    /// sample of the data it had sent before. With a confidence of [`CONFIDENCE_PERCENT`]; 0 if all of it was compared.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub differ_bytes_max: u64,
}

/// The state of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ImageState {
    /// A load has not finished: the drive holds part of the image.
    Loading,
    /// Loaded in full, and not opened for writing since.
    Intact,
    /// Opened for writing since it was loaded.
    Modified,
    /// Being filled: missing ranges are read from the source. A map beside the drive file lists the ranges that are
    /// there.
    Filling,
    /// Loaded, except for ranges that the source could not read; not opened for writing since.
    Incomplete,
}

impl Image {
    /// A warning that the image may not have one source.
    pub fn note(&self) -> Option<MayDiffer> {
        (self.differ_bytes_max > 0).then_some(MayDiffer { bytes_max: self.differ_bytes_max })
    }
}

/// An image may not have one source: only a sample of what the source had sent was compared when it was opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the source was opened again while it was read; a sample of what it had sent before was compared, and no difference was \
     found; had more than {} of that changed, a difference would have been found with {CONFIDENCE_PERCENT} % probability",
    Size(*.bytes_max)
)]
pub struct MayDiffer {
    /// The most bytes that can differ, with a confidence of [`CONFIDENCE_PERCENT`].
    pub bytes_max: u64,
}

impl ImageState {
    /// Whether the load or fill has finished, so that there are digests.
    pub const fn is_loaded(self) -> bool {
        !matches!(self, Self::Loading | Self::Filling)
    }
}

/// The source of a fill, with the properties by which it is recognised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fill {
    /// The kind of source: `raw`, `e01`, `nbd` …
    pub kind: String,
    /// Its absolute path, or its URI.
    pub location: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its sector size in bytes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sector_size: Option<u32>,
    /// The disk's manufacturer and model, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The disk's serial number, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The modification time of its (first) file, in nanoseconds since 1970; of files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<i64>,
    /// The hashes to compute once it is complete, as [`HashChoice`](cheetah_image::HashChoice) prints them.
    pub hashes: String,
    /// The hashes that the source itself stores.
    #[serde(default)]
    pub claimed: Hashes,
    /// The NBD server it is read from, in that server's words. The instance is that of the agent's process that served
    /// it last, and is known to hold what was sent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServedBy>,
}

/// A reference to the coverage map beside the drive file, in the format of GNU ddrescue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapRef {
    /// The file name, in the drive file's directory, as text ([`path_text`](cheetah_device::path_text)).
    pub file: String,
    /// BLAKE3 of the file.
    pub blake3: String,
}

/// A reference to the file of chunk digests beside the drive file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DigestsRef {
    /// The file name, in the drive file's directory, as text ([`path_text`](cheetah_device::path_text)).
    pub file: String,
    /// Bytes covered by a digest; the last one covers the rest.
    pub chunk: u64,
    /// BLAKE3 of the file of digests.
    pub blake3: String,
}

/// The name of a layout in the drive file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayoutName {
    /// One node after the other.
    Linear,
    /// Units dealt to the nodes in turn.
    Stripe,
    /// The same, and each unit on several nodes.
    Mirror,
    /// The same, with parity.
    Parity,
}

impl SetNode {
    /// The URI of its export; `None` only if the entry was never checked.
    pub fn uri(&self) -> Option<NbdUri> {
        self.nbd.parse().ok()
    }

    /// Whether it is the same export on the same instance of a node.
    pub fn is_same(&self, other: &Self) -> bool {
        self.nbd == other.nbd && self.instance == other.instance
    }
}

impl Set {
    /// Makes a set of these nodes.
    pub fn new(layout: Layout, nodes: Vec<SetNode>) -> Self {
        let (name, copies, parities) = match layout {
            Layout::Linear => (LayoutName::Linear, None, None),
            Layout::Stripe { .. } => (LayoutName::Stripe, None, None),
            Layout::Mirror { copies, .. } => (LayoutName::Mirror, Some(copies), None),
            Layout::Parity { parities, .. } => (LayoutName::Parity, None, Some(parities)),
        };
        let mut set = Self {
            bundle: None,
            epoch: u64::from(layout.redundancy().is_some()),
            bad: String::new(),
            layout: name,
            unit: layout.unit(),
            copies,
            parities,
            size: 0,
            nodes,
            incoming: Vec::new(),
            former: Vec::new(),
        };
        set.size = match set.redundancy() {
            Some(_) => set.geometry().map_or(0, |geometry| geometry.size()),
            None => set.node_bytes(),
        };
        set
    }

    /// The layout over its nodes.
    pub fn layout(&self) -> Layout {
        let unit = self.unit.unwrap_or(UNIT_BYTES_DEFAULT);
        match self.layout {
            LayoutName::Linear => Layout::Linear,
            LayoutName::Stripe => Layout::Stripe { unit },
            LayoutName::Mirror => Layout::Mirror { unit, copies: self.copies.unwrap_or_default() },
            LayoutName::Parity => Layout::Parity { unit, parities: self.parities.unwrap_or_default() },
        }
    }

    /// Its redundancy, if it has any.
    pub fn redundancy(&self) -> Option<Redundancy> {
        self.layout().redundancy().map(|(redundancy, _)| redundancy)
    }

    /// Where its data and redundancy lie on its nodes. Fails if it has no redundancy, or was never checked.
    pub fn geometry(&self) -> cheetah_device::Result<SetGeometry> {
        let Some((redundancy, unit)) = self.layout().redundancy() else {
            return Err(cheetah_device::Error::Invalid("a set without redundancy has no geometry".into()));
        };
        let sizes: Vec<u64> = self.nodes.iter().map(|node| node.size).collect();
        Ok(SetGeometry::new(redundancy, unit, &sizes)?)
    }

    /// The bad ranges that it records.
    pub fn bad_ranges(&self) -> BadRanges {
        // It was checked when it was read.
        BadRanges::parse(&self.bad, self.size).unwrap_or_default()
    }

    /// The bytes that it takes of its nodes.
    pub fn node_bytes(&self) -> u64 {
        self.nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(node.size))
    }

    /// Describes the layout in words: `stripe of 64KiB over 3 nodes`.
    pub fn describe(&self) -> String {
        let nodes = self.nodes.len();
        format!("{} over {nodes} node{}", self.layout().describe(), if nodes == 1 { "" } else { "s" })
    }
}

impl DriveFile {
    /// The node entries, in file order.
    pub fn nodes(&self) -> impl Iterator<Item = &SetNode> {
        self.sets.iter().flat_map(|set| &set.nodes)
    }

    /// Whether it has redundancy, and so maps.
    pub fn is_redundant(&self) -> bool {
        self.sets.iter().any(|set| set.redundancy().is_some())
    }

    /// The number of nodes that may be lost without losing a byte, if all of them are in sync.
    pub fn losses_max(&self) -> usize {
        self.sets.iter().map(|set| set.layout().losses_max()).min().unwrap_or(0)
    }

    /// The number of parts of the drive on each node that it was created with.
    pub fn parts(&self) -> usize {
        self.sets.iter().take_while(|set| set.bundle.is_some() && set.bundle == self.sets[0].bundle).count().max(1)
    }

    /// Describes the layouts of its sets in words, in order.
    pub fn layouts(&self) -> Vec<String> {
        let described = places::turns(&self.sets).map(|sets| match (self.sets[sets.start].describe(), sets.len()) {
            (layout, 1) => layout,
            (layout, parts) => format!("{layout}, in {parts} parts"),
        });
        described.collect()
    }

    /// The bytes that all sets hold; at least [`DriveFile::size`].
    pub fn capacity(&self) -> u64 {
        places::capacity(&self.sets)
    }

    /// The bad ranges that its sets record, as ranges of the drive.
    pub fn bad_ranges(&self) -> Vec<ByteRange> {
        let of_set = |(index, set): (usize, &Set)| {
            let in_drive = |range| places::in_drive(&self.sets, index, range);
            set.bad_ranges().iter().flat_map(in_drive).collect::<Vec<_>>()
        };
        self.sets.iter().enumerate().flat_map(of_set).collect()
    }

    /// The path of the file beside the drive file that it records by this name.
    pub(crate) fn recorded(&self, name: &str) -> PathBuf {
        self.path.with_file_name(text_to_path(name))
    }

    /// The drive file, and the files that are or may be kept beside it. None of them may be overwritten with other content.
    pub fn own_files(&self) -> Vec<PathBuf> {
        let extensions = ["seal", "digests", "custody", "map", "acquire", "report.txt"];
        let beside = extensions.map(|extension| beside(&self.path, extension));
        let fill = [coverage::path(self), grains_path(self), self.digests_path()];
        [self.path.clone()].into_iter().chain(beside).chain(fill).collect()
    }

    /// The path of the file of chunk digests.
    pub fn digests_path(&self) -> PathBuf {
        let recorded = self.image.as_ref().and_then(|image| image.digests.as_ref());
        recorded.map_or_else(|| beside(&self.path, "digests"), |digests| self.recorded(&digests.file))
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Returns the path `dir/case42.drive.EXTENSION` for `dir/case42.drive`.
pub(crate) fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// The path of the file of a drive's grains: the digests of what the source of a fill sent.
pub(crate) fn grains_path(file: &DriveFile) -> PathBuf {
    beside(&file.path, "grains")
}

/// Returns how a drive file records the name of the file at `path`, which lies beside it.
pub(crate) fn recorded_name(path: &Path) -> String {
    path_to_text(path.file_name().unwrap_or_default()).into_owned()
}

#[cfg(test)]
pub(crate) mod tests;
