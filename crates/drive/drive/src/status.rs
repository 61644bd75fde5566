//! The state of a drive: its image, and each of its nodes.

use cheetah_device::coverage::State;
use cheetah_image::Hashes;
use cheetah_redundancy::Regions;
use cheetah_redundancy::map::Member;
use cheetah_tls::Credential;
use futures::future::{join_all, try_join_all};
use serde::Serialize;

pub use crate::care::request::Recovery;
use crate::care::request::{Leaving, Step};
use crate::chart::{ChartRow, Known, chart};
use crate::file::coverage;
use crate::file::set::DriveSet;
use crate::file::{DigestsRef, DriveFile, Image, ImageState, SetNode};
use crate::image::LoadProgress;
pub use crate::node::health::{Moving, NodeState, NodeStatus};
use crate::node::health::{check_nbd, node_statuses};
use crate::session::Session;
use crate::set::newest::newest_of_any;
use cheetah_error::{Error, Fact, Next, Result, next};

/// The state of a drive.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DriveStatus {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The layouts of its sets, in words, as `create` says them.
    pub layout: String,
    /// The recipients that can open it, if it is sealed; empty if its key is destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed_for: Option<Vec<String>>,
    /// The image, if one was loaded.
    pub image: Option<ImageStatus>,
    /// How much of the image the drive has, if it is being filled or could not be read in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covered: Option<CoveredStatus>,
    /// How far the load of the image is, if it has not finished, as its process said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadProgress>,
    /// Whether the content is there, as far as the nodes tell this member.
    pub content: Content,
    /// Whether every node answers and holds its part of the drive.
    pub healthy: bool,
    /// Whether lost ranges are being fetched again from the source of the image; until all are there, the drive is not
    /// read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refetching: bool,
    /// Two writers wrote to the drive apart from each other, and it is not used until an examiner decides: a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diverged: Option<String>,
    /// The same as an error with the next step. In the answer, the sentence names it.
    #[serde(skip)]
    pub divergence: Option<Error>,
    /// Ranges whose content is lost for good, although the nodes answer. Reads of them fail; writes of whole pages make
    /// them good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bad: Vec<BadPart>,
    /// Faults that the process that last wrote the drive met, and their repairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// The number of further nodes, whichever they are, that may be lost now without losing a byte; `None` if part of
    /// the content is lost already, or cannot be read now.
    pub survives_losses: Option<usize>,
    /// The same if no node were lost.
    pub survives_losses_max: usize,
    /// The nodes, in file order.
    pub nodes: Vec<NodeStatus>,
    /// The member as which this process asked, if it is in a room.
    pub acting_as: Option<String>,
}

/// Whether the content of a drive is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// All of it can be read.
    Whole,
    /// Not known: nodes that it needs refuse this member, cannot be reached, or do not answer. None is known to be lost.
    Unknown,
    /// Part of it is lost.
    Lost,
}

/// A range of a drive whose content is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BadPart {
    /// The offset of its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// An image and its current condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImageStatus {
    /// Its source, as the user wrote it.
    pub source: String,
    /// Its size in bytes; it begins at the drive's start.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// Its condition.
    pub state: Condition,
    /// The file of chunk digests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digests: Option<DigestsRef>,
    /// Hashes of the whole.
    pub hashes: Hashes,
    /// A warning that the image may not have one source, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The condition of an image: as the drive file records it, unless a node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// More nodes are lost than the drive's layout survives, and with them the part that they held.
    Lost,
    /// As recorded.
    #[serde(untagged)]
    Recorded(ImageState),
}

impl ImageStatus {
    fn new(image: &Image, lost: bool) -> Self {
        let Image { source, size, state, digests, hashes, .. } = image.clone();
        let state = if lost { Condition::Lost } else { Condition::Recorded(state) };
        Self { source, size, state, digests, hashes, note: image.note().map(|note| note.to_string()) }
    }
}

/// How much of an image the drive has, as last recorded. A fill records it every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoveredStatus {
    /// Bytes that the drive has.
    pub read_bytes: u64,
    /// Bytes that were not read from the source yet.
    pub unread_bytes: u64,
    /// Bytes that the source could not read.
    pub unreadable_bytes: u64,
    /// The ranges that they are in.
    pub unreadable_ranges: usize,
    /// Whether the image is still being filled; if not, the rest could not be read.
    #[serde(skip)]
    pub filling: bool,
    /// The process that fills the drive now.
    pub filler: Option<String>,
}

/// Asks every node, waiting for each as long as the session allows. The result includes nodes that do not answer, as such. If the
/// drive has redundancy, the nodes are those of the newest map.
pub async fn status(file: &DriveFile, session: &Session) -> Result<DriveStatus> {
    status_and_chart(file, session, 0, &Known::default()).await.map(|(status, _)| status)
}

/// The same, with a [chart](crate::chart) of the drive in this number of slices, of which records say what is `known`.
pub async fn status_and_chart(
    file: &DriveFile,
    session: &Session,
    slices: usize,
    known: &Known,
) -> Result<(DriveStatus, Vec<ChartRow>)> {
    let NewestNodes { file, refetching, divergence, mut nodes } = newest_nodes(file, session).await?;
    let file = &file;
    join_all(file.nodes().zip(&mut nodes).map(|(node, status)| check_nbd(node, status, session.timeout))).await;
    let recorded = coverage::recorded(file)?;
    let chart = chart(file, &nodes, recorded.as_ref(), slices, known);
    let covered = recorded.map(|coverage| CoveredStatus {
        read_bytes: coverage.bytes(State::Read),
        unread_bytes: coverage.bytes(State::Unread),
        unreadable_bytes: coverage.bytes(State::Unreadable),
        unreadable_ranges: coverage.in_state(State::Unreadable).count(),
        filling: file.fill.is_some(),
        filler: nodes.iter().find_map(|node| node.writer.clone()).filter(|_| file.fill.is_some()),
    });
    let bad: Vec<_> =
        file.bad_ranges().into_iter().map(|range| BadPart { offset: range.offset, len: range.len }).collect();
    let survives = survives(file, &nodes, |node| !node.is_whole()).filter(|_| !refetching);
    let content = if refetching { Content::Lost } else { content(file, &nodes, survives.is_some()) };
    join_all(file.nodes().zip(&mut nodes).map(|(node, status)| explain_leaving(file, node, status, session))).await;
    let answering = file.nodes().zip(&nodes).filter(|(_, status)| status.state == NodeState::Ok);
    let answering: Vec<_> = answering.map(|(node, _)| node.clone()).collect();
    let load = loading(file, &nodes, &answering, session).await;
    let status = DriveStatus {
        name: file.name.clone(),
        id: file.id.clone(),
        size_bytes: file.size,
        layout: file.layouts().join(", then "),
        sealed_for: file.sealed.as_ref().map(|seal| seal.keys.iter().map(|key| key.recipient.clone()).collect()),
        image: file.image.as_ref().map(|image| ImageStatus::new(image, content == Content::Lost)),
        content: if bad.is_empty() { content } else { Content::Lost },
        covered,
        load,
        healthy: nodes.iter().all(NodeStatus::is_whole) && !refetching && bad.is_empty() && divergence.is_none(),
        diverged: divergence.as_ref().map(ToString::to_string),
        divergence,
        bad,
        recovery: Recovery::latest(&answering, session).await.filter(|_| file.is_redundant()),
        refetching,
        survives_losses: survives,
        survives_losses_max: file.losses_max(),
        nodes,
        acting_as: session.credentials.acting_as().and_then(Credential::identity).map(ToString::to_string),
    };
    Ok((status, chart))
}

/// Asks every node how its connections are protected, waiting for each as long as the session allows. Returns a sentence for each
/// node that answers, in file order.
pub async fn connections(file: &DriveFile, session: &Session) -> Result<Vec<String>> {
    let NewestNodes { nodes, .. } = newest_nodes(file, session).await?;
    let described = nodes.iter().filter_map(|node| Some(format!("node {}: {}", node.node, node.transport.as_ref()?)));
    Ok(described.collect())
}

/// The nodes of the newest maps, and their states.
struct NewestNodes {
    /// The drive file with these nodes.
    file: DriveFile,
    /// Whether lost ranges are being fetched again.
    refetching: bool,
    /// Two writers wrote apart from each other.
    divergence: Option<Error>,
    nodes: Vec<NodeStatus>,
}

/// Asks the nodes for the newest maps and for their states, concurrently, so that a node that does not answer costs one
/// time-out.
async fn newest_nodes(file: &DriveFile, session: &Session) -> Result<NewestNodes> {
    let mut now = file.clone();
    if !file.is_redundant() {
        let nodes = node_statuses(file, session).await;
        return Ok(NewestNodes { file: now, refetching: false, divergence: None, nodes });
    }
    let sets: Vec<DriveSet> = DriveSet::all(file).collect();
    let looks = sets.iter().map(|set| newest_of_any(set, session));
    let (found, mut nodes) = tokio::join!(try_join_all(looks), node_statuses(file, session));
    let found = found?;
    found.iter().enumerate().for_each(|(index, found)| found.map.update(&mut now, index));
    match now.nodes().zip(file.nodes()).all(|(now, known)| now.is_same(known)) {
        true => nodes.iter_mut().zip(now.nodes()).for_each(|(status, node)| status.sync = node.state),
        false => nodes = node_statuses(&now, session).await,
    }
    let members = found.iter().flat_map(|found| found.map.map.members.iter().zip(&found.map.incoming));
    for (status, (member, incoming)) in nodes.iter_mut().zip(members) {
        status.behind_bytes = status.sync.map(|_| part_of(status, &member.missed));
        status.moving = moving(status, member, incoming.as_ref());
    }
    let refetching = found.iter().any(|found| found.map.refetching);
    let divergence = sets.iter().zip(&found).find_map(|(set, found)| Some(found.diverged.as_ref()?.refusal(set)));
    Ok(NewestNodes { file: now, refetching, divergence, nodes })
}

/// The bytes that a node's part has of these regions of its set.
fn part_of(node: &NodeStatus, regions: &Regions) -> u64 {
    let all = regions.whole().len().max(1);
    let bytes = u128::from(node.size_bytes) * u128::from(regions.len()) / u128::from(all);
    u64::try_from(bytes).unwrap_or(node.size_bytes)
}

/// The move of a node's part, if it moves.
fn moving(node: &NodeStatus, member: &Member, to: Option<&SetNode>) -> Option<Moving> {
    Some(Moving { left_bytes: part_of(node, member.incoming.as_ref()?), to: to?.name.clone() })
}

/// How far the load of a drive's image is, if it has not finished.
async fn loading(
    file: &DriveFile,
    statuses: &[NodeStatus],
    nodes: &[SetNode],
    session: &Session,
) -> Option<LoadProgress> {
    let image = file.image.as_ref().filter(|image| image.state == ImageState::Loading)?;
    let writer = statuses.iter().find_map(|node| node.writer.as_deref());
    LoadProgress::latest(nodes, (image.size, writer), session).await
}

/// Says what becomes of the part of a node whose machine needs the memory.
async fn explain_leaving(file: &DriveFile, node: &SetNode, status: &mut NodeStatus, session: &Session) {
    let Some(seconds) = status.leave_in_s else { return };
    let name = &node.name;
    let wants = format!("node {name} needs its memory back, and may drop its part of the drive in {seconds} s");
    let (problem, next): (String, Vec<Next>) = match (file.is_redundant(), &status.writer) {
        (false, _) => {
            (format!("{wants}: a drive without redundancy cannot be moved"), vec![next::Drive::SaveImage.into()])
        }
        (true, None) => {
            let drain = next::Drive::DrainDrive { node: name.clone(), drive: file.path.display().to_string() };
            let problem = format!("{wants}: no process has the drive open for writing, so nobody moves it");
            (problem, vec![drain.into()])
        }
        (true, Some(writer)) => match Leaving::at(node, session).await.map(|leaving| leaving.step) {
            Some(Step::Stuck { why, next, .. }) => (format!("{wants}: {writer} cannot move it: {why}"), next),
            _ => (format!("{wants}: {writer} moves it"), Vec::new()),
        },
    };
    (status.problem, status.next) = (Some(problem), next);
}

impl DriveStatus {
    /// Whether all that is wrong is that nodes refuse this member or cannot be reached: that is no statement about the
    /// evidence.
    pub fn is_about_access(&self) -> bool {
        let mut bad = self.nodes.iter().filter(|node| !node.is_whole()).peekable();
        let is_about_access = |node: &NodeStatus| node.state.fact().is_some_and(Fact::is_about_access);
        bad.peek().is_some() && bad.all(is_about_access) && self.bad.is_empty() && !self.refetching
    }
}

/// Whether the content is there. Nodes of which nothing is known may have all of it.
fn content(file: &DriveFile, nodes: &[NodeStatus], is_readable: bool) -> Content {
    let is_lost = |node: &NodeStatus| match node.state.fact() {
        Some(fact) => fact.is_loss(),
        None => node.sync.is_some(),
    };
    match is_readable {
        true => Content::Whole,
        false if survives(file, nodes, is_lost).is_none() => Content::Lost,
        false => Content::Unknown,
    }
}

/// How many losses the drive survives while these of its nodes are of no use.
fn survives(file: &DriveFile, nodes: &[NodeStatus], is_bad: impl Fn(&NodeStatus) -> bool) -> Option<usize> {
    let mut first = 0;
    let mut fewest = usize::MAX;
    for set in &file.sets {
        let nodes = nodes.get(first..first + set.nodes.len())?;
        first += set.nodes.len();
        let lost = |node: usize| nodes.get(node).is_none_or(&is_bad);
        let of_set = match set.redundancy() {
            Some(_) => set.geometry().ok()?.survives(lost)?,
            None if (0..nodes.len()).any(lost) => return None,
            None => 0,
        };
        fewest = fewest.min(of_set);
    }
    Some(fewest)
}

#[cfg(test)]
pub(crate) mod tests {
    use cheetah_redundancy::MemberState;

    use super::*;
    use crate::file::NodeSync;
    use crate::file::tests::{example, redundant};

    /// The states of a drive's nodes while these of them do not answer.
    pub(crate) fn statuses(file: &DriveFile, unreachable: &[usize]) -> Vec<NodeStatus> {
        let status = |(index, node): (usize, &SetNode)| NodeStatus {
            node: node.name.clone(),
            set: 0,
            nbd: node.nbd.clone(),
            size_bytes: node.size,
            state: if unreachable.contains(&index) { NodeState::Unreachable } else { NodeState::Ok },
            sync: node.state,
            behind_bytes: None,
            moving: None,
            problem: None,
            next: Vec::new(),
            used_bytes: None,
            reserved: None,
            connections: None,
            writer: None,
            leave_in_s: None,
            transport: None,
        };
        file.nodes().enumerate().map(status).collect()
    }

    /// How many losses a drive survives while these of its nodes do not answer.
    fn survives_without(file: &DriveFile, unreachable: &[usize]) -> Option<usize> {
        survives(file, &statuses(file, unreachable), |node| !node.is_whole())
    }

    #[test]
    fn a_drive_survives_as_many_losses_as_its_nodes_in_sync_allow() {
        let mut file = redundant();
        file.sets[0].nodes[1].state = None;
        assert_eq!(survives_without(&file, &[]), Some(1));
        assert_eq!(survives_without(&file, &[2]), Some(0));
        assert_eq!(survives_without(&file, &[0, 2]), None);
        for state in [NodeSync::Stale, NodeSync::Syncing] {
            file.sets[0].nodes[1].state = Some(state);
            assert_eq!(survives_without(&file, &[]), Some(0));
            assert_eq!(survives_without(&file, &[1]), Some(0), "lost once");
            assert_eq!(survives_without(&file, &[0]), None);
        }
    }

    #[test]
    fn a_node_has_its_share_of_regions_that_it_lacks_or_that_move() {
        let file = redundant();
        let mut node = statuses(&file, &[]).remove(0);
        node.size_bytes = 64 << 20;
        // 32 regions of 4 MiB, of each of which the node has a half.
        let mut regions = Regions::new(128 << 20);
        assert_eq!(part_of(&node, &regions), 0);
        regions.insert(0);
        regions.insert(7);
        assert_eq!(part_of(&node, &regions), 4 << 20);
        let mut member = Member::new(MemberState::InSync, Regions::new(128 << 20));
        let to = file.nodes().next();
        assert_eq!(moving(&node, &member, to), None);
        member.incoming = Some(regions);
        let found = moving(&node, &member, to).unwrap();
        assert_eq!((found.left_bytes, &found.to), (4 << 20, &to.unwrap().name));
    }

    #[test]
    fn only_restarted_and_lost_nodes_make_content_lost() {
        let file = redundant();
        let of = |facts: &[Option<Fact>]| {
            let mut nodes = statuses(&file, &[]);
            for (node, fact) in nodes.iter_mut().zip(facts.iter().chain(std::iter::repeat(&None))) {
                node.state = fact.map_or(NodeState::Ok, NodeState::from);
                node.sync = None;
            }
            let readable = survives(&file, &nodes, |node| !node.is_whole()).is_some();
            content(&file, &nodes, readable)
        };
        for fact in Fact::ALL {
            let [one, two] = [vec![Some(fact)], vec![Some(fact); 2]].map(|facts| of(&facts));
            assert_eq!(one, Content::Whole, "{fact:?}");
            assert_eq!(two, if fact.is_loss() { Content::Lost } else { Content::Unknown }, "{fact:?}");
        }
    }

    #[test]
    fn a_drive_without_redundancy_survives_no_loss() {
        assert_eq!(survives_without(&example(), &[]), Some(0));
        assert_eq!(survives_without(&example(), &[2]), None);
    }
}
