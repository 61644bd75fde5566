//! The picture as text: for `--once`, and again and again where no terminal can be drawn on. The terminal view has the same words.

use std::fmt::Write as _;

use cheetah_custody::LastRecord;
use cheetah_device::Size;
use cheetah_device::visible::OneLine;
use cheetah_drive::file::NodeSync;
use cheetah_drive::status::{Content, DriveStatus, NodeState, NodeStatus};

use super::judge::missing;
use crate::answers::watch::{CapacityMethod, Job, JobKind, Link, LogEnd, Machine, Picture, Verification, WatchedDrive};
use crate::commands::compared::wrapped;
use crate::ui::table::table;

/// Characters of a link's bar.
const LINK_CELLS: u64 = 20;
/// The letters of a drive's chart.
const LETTERS: &str = "rvzuxl?se.";

/// The picture.
pub fn text(picture: &Picture) -> String {
    let mut text = wrapped(&picture.sentence, 0);
    let _ = write!(text, "\n\n{}\n", totals(picture));
    if !picture.machines.is_empty() {
        text.push_str(&machines(&picture.machines, picture.at_ms));
    }
    text.push_str(&links(&picture.links));
    picture.drives.iter().for_each(|drive| text.push_str(&describe_drive(drive)));
    if picture.drives.iter().any(|drive| !drive.chart.is_empty()) {
        let legend: Vec<_> = LETTERS.chars().map(|letter| format!("{} {}", glyph(letter), meaning(letter))).collect();
        let _ = writeln!(text, "\n{}", wrapped(&legend.join(", "), 2));
    }
    picture.jobs.iter().for_each(|job| text.push_str(&format!("\n{}\n", wrapped(&describe_job(job), 0))));
    picture.custody.iter().for_each(|log| text.push_str(&describe_log(log)));
    text.trim_end().to_owned()
}

/// The sums over the machines that answer.
pub fn totals(picture: &Picture) -> String {
    let totals = &picture.totals;
    let room = picture.room.as_ref().map(|room| format!("room {}: ", OneLine(room))).unwrap_or_default();
    let (lent, used, free) = (Size(totals.lent_bytes), Size(totals.used_bytes), Size(totals.free_bytes));
    let (answering, machines) = (totals.answering, totals.machines);
    format!("{room}{answering} of {machines} machines answer; {lent} lent, {used} used, {free} free")
}

fn machines(all: &[Machine], now_ms: u64) -> String {
    let mut rows = table(&["machine", "state", ">lent", ">used", ">free", ">read/s", "memory"]);
    for machine in all {
        let lends = machine.lends.as_ref();
        rows.add_row([
            OneLine(&machine.name).to_string(),
            state_of(machine).to_owned(),
            size(lends.map(|lends| lends.lent_bytes)),
            size(lends.map(|lends| lends.used_bytes)),
            size(lends.map(|lends| lends.free_bytes)),
            size(lends.and_then(|lends| lends.read_bytes_per_s)),
            memory_of(machine, now_ms),
        ]);
    }
    let problems = all.iter().filter_map(|machine| machine.problem.as_deref());
    let problems: String = problems.map(|problem| format!("\n{}", wrapped(&OneLine(problem).to_string(), 1))).collect();
    format!("{rows}{problems}\n{}", what_they_are(all))
}

/// What the machines were started from, which disks their programs could read, and what they wiped: a table of its own, as the lines of
/// one would not have room for it.
fn what_they_are(all: &[Machine]) -> String {
    let mut rows = table(&["machine", "started from", ">disks visible", ">wiped"]);
    for machine in all.iter().filter(|machine| machine.lends.is_some()) {
        let wiped = size(machine.lends.as_ref().map(|lends| lends.wiped_bytes));
        rows.add_row([OneLine(&machine.name).to_string(), system_of(machine).to_owned(), disks_of(machine), wiped]);
    }
    if rows.is_empty() { String::new() } else { format!("{rows}\n") }
}

/// Bytes, if they are known.
pub fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| Size(bytes).to_string())
}

/// The disks that programs on a machine could read; `-` if that is not known.
pub fn disks_of(machine: &Machine) -> String {
    let disks = machine.lends.as_ref().and_then(|lends| lends.disks_visible);
    disks.map_or_else(|| "-".to_owned(), |disks| disks.to_string())
}

/// What a machine was started from.
pub fn system_of(machine: &Machine) -> &'static str {
    match &machine.lends {
        Some(lends) if lends.boot_image => "boot image",
        Some(_) => "own system",
        None => "-",
    }
}

/// How the memory of a machine is lent; of one that does not answer, when it was seen.
pub fn memory_of(machine: &Machine, now_ms: u64) -> String {
    match (&machine.lends, machine.last_seen_ms) {
        (None, None) => "not seen".to_owned(),
        (None, Some(at_ms)) => format!("seen {} s ago", now_ms.saturating_sub(at_ms) / 1000),
        (Some(lends), _) => if lends.locked { "locked" } else { "NOT LOCKED" }.to_owned(),
    }
}

fn links(all: &[Link]) -> String {
    let lines = all.iter().filter(|link| is_drawn(link)).map(|link| format!("{}\n", wrapped(&describe_link(link), 2)));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\nlinks, by what clients read from the nodes:\n{lines}") }
}

/// Whether a link carried something, or its capacity was measured.
pub const fn is_drawn(link: &Link) -> bool {
    link.capacity.is_some() || link.most.is_some()
}

/// What a link carries, beside its capacity.
pub fn describe_link(link: &Link) -> String {
    let host = OneLine(&link.host);
    let rate = link.read_bytes_per_s.map_or_else(|| "rate not known".to_owned(), |rate| format!("{}/s", Size(rate)));
    let most = link.most.map(|most| format!("; most so far {}/s", Size(most.bytes_per_s))).unwrap_or_default();
    let Some(capacity) = &link.capacity else { return format!("{host}: {rate}; capacity not measured{most}") };
    let filled = link.read_bytes_per_s.map_or(0, |rate| share(rate, capacity.bytes_per_s, LINK_CELLS));
    let bar: String = (0..LINK_CELLS).map(|cell| if cell < filled { '█' } else { '░' }).collect();
    let over = link.read_bytes_per_s.is_some_and(|rate| rate > capacity.bytes_per_s);
    let over = if over { ", which is more than was measured" } else { "" };
    let how = match capacity.method {
        CapacityMethod::Trains => "trains that it sent",
        CapacityMethod::Echo => "trains that it answered",
        CapacityMethod::Transfer => "one TCP connection",
    };
    let bound = if capacity.at_least { "at least " } else { "" };
    let (size, at) = (Size(capacity.bytes_per_s), OneLine(&capacity.at));
    format!("{host}: {bar} {rate} of {bound}{size}/s{over}, measured {at} by {how}{most}")
}

/// How many of `cells` a rate fills; all if it is more than was measured.
fn share(rate: u64, capacity: u64, cells: u64) -> u64 {
    let filled = u128::from(rate) * u128::from(cells) / u128::from(capacity.max(1));
    u64::try_from(filled).unwrap_or(cells).min(cells)
}

/// The state of a machine; capitals are for what needs a look.
pub fn state_of(machine: &Machine) -> &'static str {
    match (machine.state, &machine.lends) {
        (NodeState::Ok | NodeState::Foreign, Some(lends)) if lends.draining => "LEAVING",
        (NodeState::Ok | NodeState::Foreign, Some(lends)) if !lends.dropped.is_empty() => "DROPPED PARTS",
        (NodeState::Ok | NodeState::Foreign, _) if machine.restarts > 0 => "RESTARTED",
        (NodeState::Ok | NodeState::Foreign, _) => "ok",
        (NodeState::Refused, _) => "REFUSES",
        (NodeState::Unreachable, _) => "UNREACHABLE",
        (NodeState::Silent, _) => "SILENT",
        (NodeState::Restarted, _) => "RESTARTED",
        (NodeState::Lost, _) => "NO NODE",
    }
}

fn describe_drive(drive: &WatchedDrive) -> String {
    let Some(status) = &drive.status else {
        return format!("\n{}\n", wrapped(drive.problem.as_deref().unwrap_or(&drive.file), 0));
    };
    let mut text = format!("\n{}\n", wrapped(&headline(status), 0));
    text.extend(figures(drive).iter().map(|line| format!("{}\n", wrapped(line, 2))));
    for (row, node) in drive.chart.iter().zip(&status.nodes) {
        let cells: String = row.cells.chars().map(glyph).collect();
        text.push_str(format!("  {} {}", OneLine(&row.node), state_of_part(node)).trim_end());
        text.push_str(&format!("\n    {cells}\n"));
    }
    let problems = status.nodes.iter().filter_map(|node| node.problem.as_deref());
    let problems = problems.map(|problem| format!("{}\n", wrapped(&OneLine(problem).to_string(), 2)));
    text.extend(writer(status).map(|writer| format!("{}\n", wrapped(&writer, 2))).into_iter().chain(problems));
    text
}

/// What was read of a drive's image, when it was verified, and where it was wiped.
pub fn figures(drive: &WatchedDrive) -> Vec<String> {
    let covered = drive.status.as_ref().and_then(|status| status.covered.as_ref()).map(|covered| {
        let (read, unread) = (Size(covered.read_bytes), Size(covered.unread_bytes));
        format!("read {read}, unread {unread}, unreadable {}", Size(covered.unreadable_bytes))
    });
    let verified = drive.verification.as_ref().map(describe_verification);
    let wiped = (!drive.wiped.is_empty()).then(|| format!("wiped at {}", OneLine(drive.wiped.join(", "))));
    covered.into_iter().chain(verified).chain(wiped).collect()
}

/// The process that writes a drive, if there is one.
pub fn writer(status: &DriveStatus) -> Option<String> {
    let writer = status.nodes.iter().find_map(|node| node.writer.as_deref());
    writer.map(|writer| format!("written by {}", OneLine(writer)))
}

/// The state of a node's part of a drive; empty if it is well.
pub const fn state_of_part(node: &NodeStatus) -> &'static str {
    match (node.state.fact(), node.sync) {
        (Some(fact), _) => fact.name(),
        (None, Some(NodeSync::Stale)) => "stale",
        (None, Some(NodeSync::Syncing)) => "syncing",
        (None, None) => "",
    }
}

fn describe_verification(found: &Verification) -> String {
    let at = OneLine(&found.at);
    match (found.ok, found.holds, found.at_nodes_bytes) {
        (false, ..) => format!("VERIFIED {at}, WITH PROBLEMS: see the custody log"),
        (true, false, _) => format!("verified {at}, but not as it is now"),
        (true, true, 0) => format!("content verified {at}"),
        (true, true, bytes) => format!("content verified {at}, {} of it by its nodes", Size(bytes)),
    }
}

/// A drive in one line: its size, its layout, and what is left of it.
pub fn headline(status: &DriveStatus) -> String {
    let content = match (status.content, status.survives_losses) {
        _ if status.diverged.is_some() => "NOT READABLE: two writers".to_owned(),
        (Content::Lost, _) => "PARTS LOST".to_owned(),
        (Content::Unknown, _) => "NOT READABLE NOW".to_owned(),
        (Content::Whole, losses) => {
            let left = losses.unwrap_or(0);
            let word = match (missing(status), status.healthy) {
                (Some(missing), _) => missing,
                (None, true) => "whole".to_owned(),
                (None, false) => "nothing lost".to_owned(),
            };
            let degraded = if status.healthy { "" } else { "DEGRADED: " };
            format!("{word}; {degraded}survives {left} of {} losses", status.survives_losses_max)
        }
    };
    let sealed = if status.sealed_for.is_some() { ", sealed" } else { "" };
    format!("{}: {}, {}{sealed}; {content}", status.name, Size(status.size_bytes), status.layout)
}

/// The sign for a letter of a drive's chart.
pub const fn glyph(cell: char) -> char {
    match cell {
        '.' => '·',
        'r' => '█',
        'v' => '✓',
        'z' => '0',
        'u' => '░',
        'x' => 'X',
        'l' => 'L',
        's' => 'S',
        'e' => '-',
        _ => '?',
    }
}

/// What a letter of a drive's chart means.
pub const fn meaning(cell: char) -> &'static str {
    match cell {
        '.' => "elsewhere",
        'r' => "read",
        'v' => "verified",
        'z' => "zeros",
        'u' => "unread",
        'x' => "unreadable",
        'l' => "lost",
        's' => "lacks writes",
        'e' => "no image",
        _ => "not known",
    }
}

/// Work in progress, in one sentence.
pub fn describe_job(job: &Job) -> String {
    let kind = match job.kind {
        JobKind::Fill => "is being filled",
        JobKind::Load => "is being loaded",
        JobKind::Move => "is being moved to",
        JobKind::Resynchronize => "is being resynchronized",
    };
    let done = job.done_bytes.map_or_else(
        || format!("{} in all", Size(job.total_bytes)),
        |done| format!("{} of {}", Size(done), Size(job.total_bytes)),
    );
    let rate = job.bytes_per_s.map(|rate| format!(", {}/s", Size(rate))).unwrap_or_default();
    let left = job.left_s.map(|left| format!(", {} min left", left.div_ceil(60))).unwrap_or_default();
    let unreadable = Size(job.unreadable_bytes.unwrap_or(0));
    let bad = match job.unreadable_ranges {
        None | Some(0) => String::new(),
        Some(1) => format!(", {unreadable} unreadable in 1 range"),
        Some(ranges) => format!(", {unreadable} unreadable in {ranges} ranges"),
    };
    let by = match &job.writer {
        Some(writer) => format!("by {}", OneLine(writer)),
        None => "NO PROCESS does it".to_owned(),
    };
    let node = job.node.as_ref().map(|node| format!(" on {}", OneLine(node))).unwrap_or_default();
    let to = job.to.as_ref().map(|to| format!(" {}", OneLine(to))).unwrap_or_default();
    format!("{}{node} {kind}{to}: {done}{rate}{left}{bad}; {by}", job.drive)
}

fn describe_log(log: &LogEnd) -> String {
    let mut text = format!("\n{}\n", wrapped(&format!("custody log {}", OneLine(&log.log)), 0));
    text.extend(log.problems.iter().map(|problem| format!("{}\n", wrapped(&format!("PROBLEM: {problem}"), 2))));
    text.extend(log.records.iter().map(|record| format!("{}\n", wrapped(&describe_record(record), 2))));
    text
}

/// A record of a custody log in one line.
pub fn describe_record(record: &LastRecord) -> String {
    let said = record.text.as_deref().map(|said| format!(": {}", OneLine(said))).unwrap_or_default();
    format!("{} {} {}{said}", record.seq, OneLine(&record.time), OneLine(&record.event))
}
