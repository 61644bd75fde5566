//! The text of a map, as nodes store it: JSON.

use cheetah_redundancy::map::Member;
use cheetah_redundancy::{BadRanges, Map, MemberState, Regions};
use serde::{Deserialize, Serialize};

use super::lineage::{Ancestor, LINEAGE_MAX};
use crate::file::set::DriveSet;
use crate::file::{DriveFile, IncomingNode, SetNode};

/// The version of the text; another one is refused.
const VERSION: u32 = 2;
/// The longest name, address or URI in a map, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// The most former nodes that the entry of a set records: the last ones.
const FORMER_MAX: usize = 256;

/// A map, with the nodes that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DriveMap {
    pub map: Map,
    pub nodes: Vec<SetNode>,
    /// The nodes that moving members move to.
    pub incoming: Vec<Option<SetNode>>,
    /// The nodes of the map that was stored before, where members have other ones now.
    pub former: Vec<Option<SetNode>>,
    /// Lost ranges are being fetched again. The drive must not be read by this map.
    pub refetching: bool,
    /// The id of the writer that made the map; empty for the map of a new drive.
    pub writer: String,
    /// The writers before and this one, the last one last, in short: by these, a map that does not come from another one is
    /// recognised.
    pub lineage: Vec<Ancestor>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MapText {
    version: u32,
    drive: String,
    /// The index of the set.
    set: usize,
    epoch: u64,
    open: bool,
    #[serde(default)]
    writer: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lineage: Vec<Ancestor>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    refetching: bool,
    unsettled: String,
    /// Runs of bad pages. Absent if there are none, so that an older program refuses only a map that it would misread.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    bad: String,
    members: Vec<MemberText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberText {
    #[serde(flatten)]
    node: NodeText,
    state: StateText,
    missed: String,
    /// The node that it moves to. Absent if it does not move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incoming: Option<IncomingText>,
    /// The node that had its place in the map that was stored before. Absent if that is the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<NodeText>,
}

#[derive(Serialize, Deserialize)]
struct IncomingText {
    #[serde(flatten)]
    node: NodeText,
    missed: String,
}

#[derive(Serialize, Deserialize)]
struct NodeText {
    name: String,
    nbd: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    size: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StateText {
    Sync,
    Syncing,
    Stale,
}

/// Why the text of a map is refused; a clause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadMap {
    #[error("its map is not understood: {0}")]
    NotUnderstood(#[source] serde_json::Error),
    #[error("its map is that of another drive, or of another version of this program")]
    Other,
    #[error("its map names more writers than a map may")]
    TooManyWriters,
    #[error("its map names regions that do not exist")]
    NoSuchRegions,
    #[error("its map names pages that do not exist")]
    NoSuchPages,
    #[error("its map contradicts itself")]
    Contradiction,
    #[error("its map has a name that is too long")]
    LongName,
}

impl DriveMap {
    /// The map of a set, as the drive file records it.
    pub fn of_file(set: &DriveSet) -> Self {
        let (nodes, capacity) = (set.nodes().to_vec(), set.capacity());
        let mut map = Map::new(nodes.len(), capacity);
        map.epoch = set.entry().epoch;
        map.bad = set.entry().bad_ranges();
        for (entry, node) in map.members.iter_mut().zip(&nodes) {
            if let Some(state) = node.state {
                // The file does not record which writes the node missed.
                *entry = Member::new(state.into(), Regions::all(capacity));
            }
        }
        let mut incoming = vec![None; nodes.len()];
        for IncomingNode { member, node } in &set.entry().incoming {
            map.members[*member].incoming = Some(Regions::all(capacity));
            incoming[*member] = Some(node.clone());
        }
        let former = vec![None; nodes.len()];
        Self { map, nodes, incoming, former, refetching: false, writer: String::new(), lineage: Vec::new() }
    }

    /// Notes that no node has this map, which the drive file records. The file does not say where redundancy may disagree
    /// with the data.
    pub fn is_of_file_only(&mut self) {
        self.map.open = true;
        self.map.unsettled = self.map.unsettled.whole();
    }

    /// Whether both maps name the same node for each member.
    pub fn has_same_nodes(&self, other: &Self) -> bool {
        self.nodes.iter().zip(&other.nodes).all(|(node, other)| node.is_same(other))
    }

    /// Reads a map of this set.
    pub fn parse(text: &str, set: &DriveSet) -> Result<Self, BadMap> {
        let text: MapText = serde_json::from_str(text).map_err(BadMap::NotUnderstood)?;
        let (known, capacity) = (set.nodes().len(), set.capacity());
        let is_of_set = text.drive == set.drive.id && text.set == set.index && text.members.len() == known;
        if text.version != VERSION || !is_of_set {
            return Err(BadMap::Other);
        }
        if text.lineage.len() > LINEAGE_MAX {
            return Err(BadMap::TooManyWriters);
        }
        let regions = |text: &str| Regions::parse(text, capacity).ok_or(BadMap::NoSuchRegions);
        let mut map = Map::new(known, capacity);
        (map.epoch, map.open, map.unsettled) = (text.epoch, text.open, regions(&text.unsettled)?);
        map.bad = BadRanges::parse(&text.bad, capacity).ok_or(BadMap::NoSuchPages)?;
        let (mut nodes, mut incoming, mut former) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, member) in map.members.iter_mut().zip(text.members) {
            let state = match member.state {
                StateText::Sync => MemberState::InSync,
                StateText::Syncing => MemberState::Syncing,
                StateText::Stale => MemberState::Stale,
            };
            *entry = Member::new(state, regions(&member.missed)?);
            if state == MemberState::InSync && !entry.missed.is_empty() {
                return Err(BadMap::Contradiction);
            }
            nodes.push(SetNode { state: state.into_file(), ..member.node.parse()? });
            former.push(member.former.map(NodeText::parse).transpose()?);
            incoming.push(match member.incoming {
                Some(moving) => {
                    entry.incoming = Some(regions(&moving.missed)?);
                    Some(moving.node.parse()?)
                }
                None => None,
            });
        }
        let (refetching, writer, lineage) = (text.refetching, text.writer, text.lineage);
        Ok(Self { map, nodes, incoming, former, refetching, writer, lineage })
    }

    /// The text to store.
    pub fn text(&self, set: &DriveSet) -> String {
        let members = self.map.members.iter().zip(&self.nodes).zip(self.incoming.iter().zip(&self.former));
        let members = members.map(|((entry, node), (incoming, former))| MemberText {
            node: NodeText::of(node),
            former: former.as_ref().map(NodeText::of),
            incoming: entry
                .incoming
                .as_ref()
                .zip(incoming.as_ref())
                .map(|(missed, node)| IncomingText { node: NodeText::of(node), missed: missed.to_string() }),
            state: match entry.state {
                MemberState::InSync => StateText::Sync,
                MemberState::Syncing => StateText::Syncing,
                MemberState::Stale => StateText::Stale,
            },
            missed: entry.missed.to_string(),
        });
        let text = MapText {
            version: VERSION,
            drive: set.drive.id.clone(),
            set: set.index,
            epoch: self.map.epoch,
            open: self.map.open,
            writer: self.writer.clone(),
            lineage: self.lineage.clone(),
            refetching: self.refetching,
            unsettled: self.map.unsettled.to_string(),
            bad: self.map.bad.to_string(),
            members: members.collect(),
        };
        // Only strings, numbers and lists: serialization cannot fail.
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// Brings the entry of the set with this index in a drive file up to date with the map.
    pub fn update(&self, file: &mut DriveFile, index: usize) {
        let Some(set) = file.sets.get_mut(index) else { return };
        set.epoch = self.map.epoch;
        set.bad = self.map.bad.to_string();
        let entries = set.nodes.iter_mut();
        for ((entry, node), member) in entries.zip(&self.nodes).zip(&self.map.members) {
            let same = entry.is_same(node);
            let receipt = entry.receipt.take().filter(|_| same);
            let now = SetNode { receipt, state: member.state.into_file(), ..node.clone() };
            let former = std::mem::replace(entry, now);
            if !same && former.instance.is_some() {
                set.former.push(SetNode { state: None, ..former });
            }
        }
        // A node that a move did not reach after all may hold a part of the set.
        for IncomingNode { member, node } in std::mem::take(&mut set.incoming) {
            let is_known = |now: Option<&SetNode>| now.is_some_and(|now| now.is_same(&node));
            if !is_known(self.nodes.get(member)) && !is_known(self.incoming.get(member).and_then(Option::as_ref)) {
                set.former.push(node);
            }
        }
        let moving = self.incoming.iter().enumerate();
        set.incoming = moving.filter_map(|(member, node)| Some(IncomingNode { member, node: node.clone()? })).collect();
        let excess = set.former.len().saturating_sub(FORMER_MAX);
        set.former.drain(..excess);
    }
}

impl NodeText {
    fn of(node: &SetNode) -> Self {
        Self {
            name: node.name.clone(),
            nbd: node.nbd.clone(),
            http: node.http.clone(),
            instance: node.instance.clone(),
            size: node.size,
        }
    }

    fn parse(self) -> Result<SetNode, BadMap> {
        let Self { name, nbd, http, instance, size } = self;
        if name.len() > TEXT_BYTES_MAX || nbd.len() > TEXT_BYTES_MAX {
            return Err(BadMap::LongName);
        }
        Ok(SetNode { name, nbd, http, instance, size, receipt: None, state: None })
    }
}

/// The state as the drive file records it: absent if in sync.
pub(crate) trait IntoFile {
    fn into_file(self) -> Option<crate::file::NodeSync>;
}

impl IntoFile for MemberState {
    fn into_file(self) -> Option<crate::file::NodeSync> {
        match self {
            Self::InSync => None,
            Self::Syncing => Some(crate::file::NodeSync::Syncing),
            Self::Stale => Some(crate::file::NodeSync::Stale),
        }
    }
}

impl From<crate::file::NodeSync> for MemberState {
    fn from(state: crate::file::NodeSync) -> Self {
        match state {
            crate::file::NodeSync::Syncing => Self::Syncing,
            crate::file::NodeSync::Stale => Self::Stale,
        }
    }
}
