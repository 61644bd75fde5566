//! `cheetah status`: shows a drive and its nodes.

use std::path::{Path, PathBuf};

use cheetah_device::Size;
use cheetah_drive::file::NodeSync;
use cheetah_drive::status::{
    Condition, Content, CoveredStatus, DriveStatus, ImageStatus, NodeState, NodeStatus, Recovery, status,
};
use cheetah_drive::{DriveFile, ImageState, LoadProgress};
use cheetah_error::Fact;
use cheetah_tls::CredentialSet;
use cheetah_tls::Transport;
use comfy_table::Table;

use super::compared::wrapped;
use super::options::TimeoutArgs;
use super::seal;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::ui::Ui;
use crate::ui::table::table;

/// The options of `status`.
#[derive(Debug, clap::Args)]
#[command(about = "Show a drive and the state of its nodes")]
#[command(long_about = "Shows a drive, its image, and the state of each of its nodes.

Shows how many more nodes the drive can lose without losing data. Exits with 3 if part of the drive is lost, or if its \
redundancy is reduced, because a node is lost, does not answer or lacks writes. Exits with 1 if nodes only refuse this \
member of the room or cannot be reached: that says nothing about the content.

  cheetah status case42.drive
  cheetah status case42.drive --json | jq .healthy")]
pub struct Args {
    /// The drive file
    pub drive: PathBuf,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs the command.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    let file = DriveFile::load(&args.drive)?;
    let found = in_words(status(&file, &desk.session(args.timeout.get())).await?);
    ui.answer(describe(&found, &args.drive, &desk.credentials), &found);
    let drive = args.drive.display();
    if let Some(divergence) = found.divergence {
        return Err(divergence.into());
    }
    if found.healthy {
        return Ok(());
    }
    let nodes = count_bad(&found.nodes);
    Err(match (found.content, found.is_about_access()) {
        (Content::Lost, _) => Failure::evidence(format!("part of {drive} is lost; see above")),
        (Content::Whole, true) => Failure::failed(format!("{drive} can be read in full, but {nodes}; see above")),
        (Content::Unknown, true) => Failure::failed(format!("{drive} cannot be read now: {nodes}; see above")),
        (Content::Whole, false) => Failure::evidence(format!(
            "{drive}: nothing is lost, but nodes are lost or behind; see above, then repair it (cheetah repair)"
        )),
        (Content::Unknown, false) => Failure::evidence(format!("{drive} cannot be read in full: {nodes}; see above")),
    })
}

/// Adds the next steps to the problems.
fn in_words(mut found: DriveStatus) -> DriveStatus {
    found.diverged = found.divergence.as_ref().map(cheetah_words::sentence);
    for node in &mut found.nodes {
        node.problem = node.problem.take().map(|problem| cheetah_words::with(problem, &node.next));
    }
    found
}

/// Which nodes are not of use, and why, as clauses.
fn count_bad(nodes: &[NodeStatus]) -> String {
    let counted = Fact::ALL.into_iter().filter_map(|fact| {
        let count = nodes.iter().filter(|node| node.state.fact() == Some(fact)).count();
        (count > 0).then(|| fact.clause(count, nodes.len()))
    });
    let behind = nodes.iter().filter(|node| node.state.is_healthy() && !node.is_whole()).count();
    let behind = (behind > 0).then(|| format!("{behind} of {} nodes behind", nodes.len()));
    counted.chain(behind).collect::<Vec<_>>().join(", ")
}

fn describe(found: &DriveStatus, drive: &Path, credentials: &CredentialSet) -> String {
    let layout = &found.layout;
    let mut lines =
        vec![wrapped(&format!("{}: {}, {layout}", found.name, Size(found.size_bytes)), 0), format!("id {}", found.id)];
    lines.extend(found.sealed_for.as_ref().map(|recipients| {
        let described = seal::describe_recipients(recipients, credentials);
        wrapped(&described, 0)
    }));
    if let Some(image) = &found.image {
        let is_written = found.nodes.iter().any(|node| node.writer.is_some());
        let state = image_state(image.state, found.covered.as_ref(), is_written);
        let state = match found.content {
            Content::Unknown => format!("recorded as: {state}"),
            _ => state.to_owned(),
        };
        lines.push(wrapped(&format!("image {}, {}, {state}", image.source, Size(image.size)), 0));
        lines.extend(image.note.iter().map(|note| wrapped(&format!("NOTE: {note}"), 2)));
        if let Some(covered) = &found.covered {
            lines.extend(describe_covered(covered, image, drive));
        }
        lines.extend(found.load.as_ref().map(|load| wrapped(&describe_load(load), 2)));
    }
    lines.push(wrapped(&describe_survival(found), 0));
    if !found.bad.is_empty() {
        let bytes = found.bad.iter().map(|bad| bad.len).sum();
        let (count, first) = (found.bad.len(), found.bad[0].offset);
        let ranges = if count == 1 { "range".to_owned() } else { format!("{count} ranges, the first") };
        lines.push(wrapped(&format!("BAD: {} are lost for good, in a {ranges} at offset {first}", Size(bytes)), 0));
    }
    lines.extend(found.recovery.as_ref().map(|recovery| wrapped(&describe_recovery(recovery), 0)));
    if found.nodes.iter().any(|node| node.state == NodeState::Foreign) && found.survives_losses_max > 0 {
        lines.push(wrapped("foreign servers hold no map: one that is lost, even for a moment, has to be replaced", 0));
    }
    lines.push(describe_nodes(&found.nodes).to_string());
    lines.extend(describe_transports(found).iter().map(|line| wrapped(line, 0)));
    let mut writers: Vec<_> = found.nodes.iter().filter_map(|node| node.writer.as_deref()).collect();
    writers.dedup();
    lines.extend(writers.into_iter().map(|writer| wrapped(&format!("written by {writer}"), 1)));
    lines.extend(found.nodes.iter().filter_map(|node| node.problem.as_deref()).map(|problem| wrapped(problem, 1)));
    lines.join("\n")
}

fn describe_recovery(recovery: &Recovery) -> String {
    let Recovery { writer, counts, .. } = recovery;
    format!(
        "made good by {writer}: {} nodes lost, {} late reads, {} computed from other nodes, {} damaged ranges ({} parts mended), \
         {} resynchronized",
        counts.members_lost,
        counts.late_reads,
        Size(counts.reconstructed_bytes),
        counts.damaged_ranges,
        counts.damage_healed,
        Size(counts.resynced_bytes)
    )
}

/// The losses that the drive survives now, and the data at risk.
fn describe_survival(found: &DriveStatus) -> String {
    let bad = count_bad(&found.nodes);
    if let Some(diverged) = &found.diverged {
        return format!("NOT READABLE: {diverged}");
    }
    if found.refetching {
        return "NOT READABLE: lost ranges are being fetched again from the source (cheetah repair --from-source)"
            .to_owned();
    }
    match (found.survives_losses, found.survives_losses_max) {
        (None, _) if found.content != Content::Lost => {
            format!("NOT READABLE NOW: {bad}; this says nothing about the content")
        }
        (None, 0) => format!("PARTS LOST: {bad}, and it survives no loss"),
        (None, _) => format!("PARTS LOST: {bad}, more than it survives"),
        (Some(0), 0) => "survives no loss".to_owned(),
        (Some(losses), _) if found.healthy => format!("survives {}", count_losses(losses)),
        (Some(0), _) => format!("AT RISK: {bad}; nothing is lost, but the loss of one more node may lose content"),
        (Some(losses), max) => {
            format!("DEGRADED: {bad}; nothing is lost; survives {} more, and {max} when whole", count_losses(losses))
        }
    }
}

fn count_losses(losses: usize) -> String {
    format!("{losses} loss{}", if losses == 1 { "" } else { "es" })
}

fn image_state(condition: Condition, covered: Option<&CoveredStatus>, is_written: bool) -> &'static str {
    match condition {
        Condition::Lost => "PARTS LOST with their nodes",
        Condition::Recorded(state) => match state {
            ImageState::Intact => "intact",
            ImageState::Loading if is_written => "being loaded: PARTIAL",
            ImageState::Loading => "load never finished: PARTIAL",
            ImageState::Modified => "opened for writing since it was loaded",
            ImageState::Filling if covered.is_some_and(|covered| covered.unread_bytes == 0) => {
                "filled, not checked yet"
            }
            ImageState::Filling => "NOT WHOLE YET",
            ImageState::Incomplete => "parts could not be read: PARTIAL",
        },
    }
}

/// How far a load is.
fn describe_load(load: &LoadProgress) -> String {
    let unreadable = load.unreadable_bytes.map(|bytes| format!(", unreadable {}", Size(bytes))).unwrap_or_default();
    format!("loaded {} of {}{unreadable}", Size(load.done_bytes), Size(load.total_bytes))
}

fn describe_nodes(nodes: &[NodeStatus]) -> Table {
    let mut table = table(&["node", ">size", ">used", ">connections", "state"]);
    for node in nodes {
        let state = match node.state {
            NodeState::Ok | NodeState::Foreign if node.sync == Some(NodeSync::Stale) => "STALE: it missed writes",
            NodeState::Ok | NodeState::Foreign if node.sync == Some(NodeSync::Syncing) => "SYNCING: not read yet",
            NodeState::Ok if node.leave_in_s.is_some() => "LEAVING: needs its memory",
            NodeState::Ok => "ok",
            NodeState::Refused => "REFUSES this member",
            NodeState::Unreachable => "UNREACHABLE",
            NodeState::Silent => "SILENT",
            NodeState::Restarted => "RESTARTED, empty",
            NodeState::Lost => "LOST",
            NodeState::Foreign => "answers (not a Cheetah node)",
        };
        table.add_row([
            node.node.clone(),
            Size(node.size_bytes).to_string(),
            node.used_bytes.map_or_else(|| "?".into(), |bytes| Size(bytes).to_string()),
            node.connections.map_or_else(|| "?".into(), |count| count.to_string()),
            state.to_owned(),
        ]);
    }
    table
}

/// The protection of the connections to the nodes, each kind once.
fn describe_transports(found: &DriveStatus) -> Vec<String> {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for node in &found.nodes {
        let Some(transport) = &node.transport else { continue };
        let kind = match transport {
            Transport::Tls { .. } => transport.protection(),
            Transport::Unix => transport.to_string(),
            Transport::Clear => "IN CLEAR: neither encrypted nor authenticated".to_owned(),
        };
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, nodes)) => nodes.push(&node.node),
            None => kinds.push((kind, vec![&node.node])),
        }
    }
    let acting_as = found.acting_as.as_ref().map(|member| format!(", as {member}")).unwrap_or_default();
    let some_nodes = |nodes: Vec<&str>| match nodes.len() == found.nodes.len() {
        true => String::new(),
        false => format!(" (to {})", nodes.join(", ")),
    };
    let lines = kinds.into_iter().map(|(kind, nodes)| format!("connections: {kind}{acting_as}{}", some_nodes(nodes)));
    lines.collect()
}

fn describe_covered(covered: &CoveredStatus, image: &ImageStatus, drive: &Path) -> Vec<String> {
    let share = |bytes: u64| {
        // In tenths of a percent, rounded down, so that 100.0% means everything.
        let tenths = u128::from(bytes) * 1000 / u128::from(image.size.max(1));
        format!("{} ({}.{}%)", Size(bytes), tenths / 10, tenths % 10)
    };
    let mut lines = vec![format!(
        "  read {}, unread {}, unreadable {}",
        share(covered.read_bytes),
        share(covered.unread_bytes),
        share(covered.unreadable_bytes)
    )];
    let drive = drive.display();
    match &covered.filler {
        _ if !covered.filling => {}
        Some(filler) => lines.push(wrapped(&format!("being filled by {filler}"), 2)),
        None if covered.unread_bytes == 0 => {
            lines.push(format!("  no process is checking it; to finish it:\n    cheetah load {drive}"));
        }
        None => lines.push(format!(
            "  no process is filling it; it fills while mounted or exported. To fill it now:\n    cheetah load {drive}"
        )),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_drive::Hashes;

    fn example() -> DriveStatus {
        let problem = "node 10.20.30.40:10809: cannot connect: Connection refused (control port 10810)";
        let node = |node: &str, problem: Option<&str>| NodeStatus {
            node: node.into(),
            set: 0,
            nbd: format!("nbd://{node}/case42-01234567-0"),
            size_bytes: 1 << 30,
            sync: None,
            behind_bytes: None,
            moving: None,
            state: if problem.is_some() { NodeState::Lost } else { NodeState::Ok },
            problem: problem.map(str::to_owned),
            next: Vec::new(),
            used_bytes: None,
            reserved: None,
            connections: None,
            leave_in_s: None,
            transport: problem.is_none().then_some(Transport::Clear),
            writer: Some("a-long-name@a-long-host-name.example.org, process 1234567".into()),
        };
        DriveStatus {
            name: "case42".into(),
            id: "0123456789abcdef".repeat(2),
            size_bytes: 2 << 30,
            layout: "stripe of 64KiB over 2 nodes".into(),
            sealed_for: None,
            image: Some(ImageStatus {
                source: "/evidence/case42/disk.raw".into(),
                size: 100 << 20,
                state: Condition::Lost,
                digests: None,
                hashes: Hashes::default(),
                note: None,
            }),
            covered: None,
            load: None,
            refetching: false,
            diverged: None,
            divergence: None,
            bad: Vec::new(),
            recovery: None,
            healthy: false,
            content: Content::Lost,
            survives_losses: None,
            survives_losses_max: 0,
            acting_as: None,
            nodes: vec![node("10.20.30.40:10809", Some(problem)), node(&"x".repeat(70), None)],
        }
    }

    #[test]
    fn a_drive_with_a_lost_node_is_shown_in_80_columns_and_never_as_intact() {
        let text = describe(&example(), Path::new("case42.drive"), &CredentialSet::default());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("PARTS LOST") && !text.contains("intact"), "{text}");
        assert_eq!(text.matches("written by").count(), 1, "{text}");
        assert!(text.contains("Connection refused") && text.contains("IN CLEAR"), "{text}");
        let json = serde_json::to_value(example()).unwrap();
        assert_eq!(json["image"]["state"], "lost");
    }

    #[test]
    fn a_drive_over_a_bad_node_is_never_shown_as_healthy() {
        let whole = DriveStatus { healthy: true, survives_losses: Some(2), survives_losses_max: 2, ..example() };
        assert_eq!(describe_survival(&whole), "survives 2 losses");
        for (left, word) in [(Some(1), "DEGRADED"), (Some(0), "AT RISK"), (None, "PARTS LOST")] {
            let content = if left.is_some() { Content::Whole } else { Content::Lost };
            let mut found = DriveStatus { healthy: false, survives_losses: left, content, ..whole.clone() };
            found.nodes[1].sync = Some(NodeSync::Stale);
            let text = describe(&found, Path::new("case42.drive"), &CredentialSet::default());
            assert!(text.contains(word) && text.contains("STALE"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }

    #[test]
    fn a_drive_whose_nodes_refuse_this_member_is_not_shown_as_lost() {
        let mut found = DriveStatus { content: Content::Unknown, ..example() };
        for node in &mut found.nodes {
            node.state = NodeState::Refused;
        }
        if let Some(image) = &mut found.image {
            image.state = Condition::Recorded(ImageState::Intact);
        }
        let text = describe(&found, Path::new("case42.drive"), &CredentialSet::default());
        assert!(text.contains("2 of 2 nodes refuse this member") && text.contains("REFUSES"), "{text}");
        assert!(!text.to_lowercase().contains("lost"), "{text}");
        assert!(found.is_about_access());
    }

    #[test]
    fn a_drive_that_only_lacks_its_check_is_not_called_partial() {
        let covered = CoveredStatus {
            read_bytes: 100 << 20,
            unread_bytes: 0,
            unreadable_bytes: 0,
            unreadable_ranges: 0,
            filling: true,
            filler: None,
        };
        let mut found = DriveStatus { covered: Some(covered), healthy: true, survives_losses: Some(0), ..example() };
        if let Some(image) = &mut found.image {
            image.state = Condition::Recorded(ImageState::Filling);
        }
        let text = describe(&found, Path::new("case42.drive"), &CredentialSet::default());
        assert!(text.contains("not checked yet") && !text.contains("NOT WHOLE"), "{text}");
        assert!(text.contains("\n    cheetah load case42.drive\n") && !text.contains("by nobody"), "{text}");
        if let Some(covered) = &mut found.covered {
            (covered.read_bytes, covered.unread_bytes) = (99 << 20, 1 << 20);
        }
        let text = describe(&found, Path::new("case42.drive"), &CredentialSet::default());
        assert!(text.contains("NOT WHOLE YET") && text.contains("no process is filling it"), "{text}");
    }
}
