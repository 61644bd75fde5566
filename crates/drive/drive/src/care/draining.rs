//! A writer moves its drive's parts off nodes that are about to leave, or whose machines need the memory, and to other
//! nodes if `rebalance` asks for that.

use std::sync::Arc;
use std::time::Duration;

use cheetah_control::api::Draining;
use cheetah_error::{Next, next};
use cheetah_redundancy::{MemberState, Members};
use futures::future::join_all;
use tokio::time::Instant;

use super::moving;
use super::request::{Leaving, MoveRequest, Step};
use super::spare::{Unsuitable, available, check};
use crate::file::SetNode;
use crate::node::find::AvailableNode;
use crate::set::shared::Shared;
use crate::timing::{MOVE_RETRY, TARGET_TIMEOUT};

/// How long a node may take to say whether it is draining.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a part leaves its node, and where it may go.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mark {
    /// The node is draining, or its machine needs the memory: to one of these nodes, a spare or an announced node.
    Leave(Draining),
    /// `rebalance` asks for it: to this node only.
    Move(String),
}

impl Mark {
    /// The nodes that it names.
    fn to(&self) -> Vec<String> {
        match self {
            Self::Leave(draining) => draining.to.clone(),
            Self::Move(to) => vec![to.clone()],
        }
    }
}

/// An attempt to begin a move.
struct Failed {
    at: Instant,
    member: usize,
    mark: Mark,
    why: String,
    next: Vec<Next>,
    is_certain: bool,
}

/// Why a move could not begin.
struct Refusal {
    why: String,
    next: Vec<Next>,
    /// Whether every node answered, and none can take the part.
    is_certain: bool,
}

/// The state of this work between looks.
#[derive(Default)]
pub(super) struct Drainer {
    /// The last attempt that failed.
    failed: Option<Failed>,
    /// The last warning.
    told: String,
}

impl Drainer {
    /// One look: begins a move if a node is draining, one at a time, and leaves word of the progress at that node.
    pub async fn look(&mut self, shared: &Arc<Shared>, members: &Arc<Members>) {
        let nodes = shared.nodes();
        let asks = nodes.iter().map(|node| async {
            let export = shared.export(node, &shared.session().within(ASK_TIMEOUT))?;
            let status = export.control.status().await.ok()?;
            let has_to_go =
                || status.exports.iter().any(|found| found.name == export.name && found.leave_in_s.is_some());
            let leaves = status.draining.clone().or_else(|| has_to_go().then(Draining::default));
            match leaves {
                Some(draining) => Some(Mark::Leave(draining)),
                None => MoveRequest::at(node, shared.session()).await.map(|request| Mark::Move(request.to)),
            }
        });
        let marks = join_all(asks).await;
        let draining: Vec<usize> = (0..nodes.len()).filter(|member| marks[*member].is_some()).collect();
        if draining.is_empty() {
            self.failed = None;
            return;
        }
        let moving = members.moving();
        let Some(map) = members.map() else { return };
        let is_free =
            |member: &usize| map.members[*member].state == MemberState::InSync && !members.is_leaving(*member);
        let next = draining.iter().copied().find(is_free).filter(|_| moving.is_empty());
        let waits = |failed: &Failed, member: usize| {
            failed.member == member && marks[member].as_ref() == Some(&failed.mark) && failed.at.elapsed() < MOVE_RETRY
        };
        let due = |member: &usize| !self.failed.as_ref().is_some_and(|failed| waits(failed, *member));
        if let Some(member) = next.filter(due)
            && let Some(mark) = marks[member].clone()
        {
            let begun = self.begin(shared, members, member, &mark).await;
            let failed =
                |Refusal { why, next, is_certain }| Failed { at: Instant::now(), member, mark, why, next, is_certain };
            self.failed = begun.err().map(failed);
        }
        self.tell(shared, members, &draining, &marks).await;
    }

    /// Moves a member to the first suitable node. The error names the reason for each.
    async fn begin(
        &self,
        shared: &Arc<Shared>,
        members: &Arc<Members>,
        member: usize,
        mark: &Mark,
    ) -> Result<(), Refusal> {
        let (drive, nodes) = (shared.drive_name(), shared.nodes());
        let spares = if matches!(mark, Mark::Leave(_)) { shared.newest_spares() } else { Vec::new() };
        let named = [mark.to(), spares].concat();
        let (mut why, mut next, mut is_certain) = (Vec::new(), Vec::<Next>::new(), true);
        // Announced nodes are used only if none is named: looking for them takes seconds.
        for names in [named.clone(), vec!["auto".to_owned()]] {
            let targets = available(&names, &shared.session().within(TARGET_TIMEOUT)).await;
            // One that does not answer in time may only be slow.
            is_certain &= named.is_empty() || targets.len() >= distinct(&names);
            for target in targets {
                match suits(&target, &drive, &nodes, member) {
                    Ok(()) => {}
                    Err(unsuitable) => {
                        why.push(unsuitable.to_string());
                        continue;
                    }
                }
                match moving::begin(shared, members, member, &target, shared.session()).await {
                    Ok(()) => {
                        tracing::info!("the part of {} moves to {}", nodes[member].name, target.name);
                        return Ok(());
                    }
                    Err(error) => {
                        is_certain = false;
                        why.push(error.to_string());
                        next.extend_from_slice(error.steps());
                    }
                }
            }
            if !named.is_empty() {
                break;
            }
        }
        let needed = format!("{drive} needs {} of free memory elsewhere", cheetah_device::Size(nodes[member].size));
        let why = match &why[..] {
            [] if !is_certain => format!("{needed}, and the nodes that are named do not answer"),
            [] => {
                next.push(next::Node::NameDestination.into());
                format!("{needed}, and no node offers any")
            }
            why => format!("{needed}: {}", why.join("; ")),
        };
        Err(Refusal { why, next, is_certain })
    }

    /// Leaves word of the progress at the draining nodes.
    async fn tell(&mut self, shared: &Arc<Shared>, members: &Arc<Members>, draining: &[usize], marks: &[Option<Mark>]) {
        let nodes = shared.nodes();
        let moving = members.moving();
        let Some(map) = members.map() else { return };
        let regions = map.unsettled.whole().len();
        let failed = self.failed.as_ref();
        for member in draining {
            let own = moving.iter().find(|moving| moving.member == *member);
            let step = match (own, &failed) {
                (Some(moving), _) => Step::Moving { regions_left: moving.regions_left, regions },
                (None, Some(failed)) if failed.member == *member => {
                    Step::Stuck { why: failed.why.clone(), is_certain: failed.is_certain, next: failed.next.clone() }
                }
                (None, _) => Step::Waiting,
            };
            let to = marks[*member].as_ref().map(Mark::to).unwrap_or_default();
            Leaving::new(shared.drive_name(), to, step).leave(&nodes[*member], shared.session()).await;
        }
        let said = failed.map(|failed| failed.why.clone()).unwrap_or_default();
        if !said.is_empty() && said != self.told {
            tracing::warn!("a part of the drive cannot be moved: {said}");
        }
        self.told = said;
    }
}

/// The number of different names.
fn distinct(names: &[String]) -> usize {
    names.iter().enumerate().filter(|(index, name)| !names[..*index].contains(name)).count()
}

/// Refuses a node that cannot take a member's part.
fn suits(target: &AvailableNode, drive: &str, nodes: &[SetNode], member: usize) -> Result<(), Unsuitable> {
    if target.is_of(&nodes[member]) {
        return Err(Unsuitable::Same { node: target.name.clone() });
    }
    check(target, drive, nodes, member)
}
