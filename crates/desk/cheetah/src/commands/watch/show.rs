//! The picture as text: for `--once`, and for the terminal view, which draws it again and again.

use std::fmt::Write as _;

use cheetah_device::Size;
use cheetah_device::visible::{OneLine, Visible};
use cheetah_drive::file::NodeSync;
use cheetah_drive::status::{Content, DriveStatus, NodeState};
use cheetah_kit::clock::now_ms;

use super::judge::missing;
use crate::answers::watch::{
    CapacityMethod, Health, Job, JobKind, Link, LogEnd, Machine, Picture, Verification, WatchedDrive,
};
use crate::commands::compared::wrapped;
use crate::ui::table::table;

/// The machines that fit on a terminal; those that do not answer come first.
const MACHINES_DRAWN: usize = 20;
/// Characters of a link's bar.
const LINK_CELLS: u64 = 20;
/// Puts the cursor into the first column of the first line.
const HOME: &str = "\u{1b}[H";
/// Clears the rest of the line, and the rest of the screen.
const CLEAR_LINE: &str = "\u{1b}[K\n";
const CLEAR_REST: &str = "\u{1b}[J";

/// What the letters of a drive's picture mean.
const LEGEND: &str =
    "█ read  ✓ verified  0 zeros  ░ unread  X unreadable  L lost  ? not known  S lacks writes  - no image  · elsewhere";

/// The picture, drawn over the one before.
pub fn frame(picture: &Picture, colours: bool) -> String {
    let text = Visible(text(picture, MACHINES_DRAWN)).to_string();
    if !colours {
        return text + "\n";
    }
    let colour = match picture.state {
        Health::Good => "32",
        Health::Attention => "33",
        Health::Bad => "31",
    };
    let lines: Vec<_> = text.lines().collect();
    // The sentence ends at the first empty line.
    let sentence = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
    let mut drawn = HOME.to_owned();
    for (index, line) in lines.iter().enumerate() {
        match index < sentence {
            true => drawn.push_str(&format!("\u{1b}[1;{colour}m{line}\u{1b}[0m")),
            false => drawn.push_str(line),
        }
        drawn.push_str(CLEAR_LINE);
    }
    drawn + CLEAR_REST
}

/// The picture with at most `machines_max` machines.
pub fn text(picture: &Picture, machines_max: usize) -> String {
    let mut text = wrapped(&picture.sentence, 0);
    let totals = &picture.totals;
    let room = picture.room.as_ref().map(|room| format!("room {room}: ")).unwrap_or_default();
    let _ = write!(
        text,
        "\n\n{room}{} of {} machines answer; {} lent, {} used, {} free\n",
        totals.answering,
        totals.machines,
        Size(totals.lent_bytes),
        Size(totals.used_bytes),
        Size(totals.free_bytes)
    );
    if !picture.machines.is_empty() {
        text.push_str(&machines(&picture.machines, machines_max));
    }
    text.push_str(&links(&picture.links, machines_max));
    picture.drives.iter().for_each(|drive| text.push_str(&describe_drive(drive)));
    if picture.drives.iter().any(|drive| !drive.chart.is_empty()) {
        let _ = writeln!(text, "\n{}", wrapped(LEGEND, 2));
    }
    picture.jobs.iter().for_each(|job| text.push_str(&describe_job(job)));
    picture.custody.iter().for_each(|log| text.push_str(&describe_log(log)));
    text.trim_end().to_owned()
}

fn machines(all: &[Machine], most: usize) -> String {
    let mut rows = table(&["machine", "state", ">lent", ">used", ">free", ">read/s", "memory"]);
    for machine in all.iter().take(most) {
        let lends = machine.lends.as_ref();
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| Size(bytes).to_string());
        let memory = match lends {
            None => seen(machine.last_seen_ms),
            Some(lends) if !lends.locked => "NOT LOCKED".to_owned(),
            Some(lends) if lends.boot_image => "locked, boot image".to_owned(),
            Some(_) => "locked".to_owned(),
        };
        rows.add_row([
            OneLine(&machine.name).to_string(),
            state_of(machine),
            size(lends.map(|lends| lends.lent_bytes)),
            size(lends.map(|lends| lends.used_bytes)),
            size(lends.map(|lends| lends.free_bytes)),
            size(lends.and_then(|lends| lends.read_bytes_per_s)),
            memory,
        ]);
    }
    let more = all.len().saturating_sub(most);
    let rest = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    let problems = all.iter().take(most).filter_map(|machine| machine.problem.as_deref());
    let problems: String = problems.map(|problem| format!("\n{}", wrapped(&OneLine(problem).to_string(), 1))).collect();
    format!("{rows}{rest}{problems}\n")
}

/// The links that carried something, or whose capacity was measured.
fn links(all: &[Link], most: usize) -> String {
    let is_shown = |link: &&Link| link.capacity.is_some() || link.most.is_some();
    let lines = all.iter().filter(is_shown).take(most).map(|link| format!("{}\n", wrapped(&describe_link(link), 2)));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\nlinks, by what clients read from the nodes:\n{lines}") }
}

fn describe_link(link: &Link) -> String {
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

fn state_of(machine: &Machine) -> String {
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
    .to_owned()
}

fn seen(at_ms: Option<u64>) -> String {
    match at_ms {
        None => "not seen".to_owned(),
        Some(at) => format!("seen {} s ago", now_ms().saturating_sub(at) / 1000),
    }
}

fn describe_drive(drive: &WatchedDrive) -> String {
    let Some(status) = &drive.status else {
        return format!("\n{}\n", wrapped(drive.problem.as_deref().unwrap_or(&drive.file), 0));
    };
    let mut text = format!("\n{}\n", wrapped(&headline(status), 0));
    if let Some(covered) = &status.covered {
        let figures = format!(
            "read {}, unread {}, unreadable {}",
            Size(covered.read_bytes),
            Size(covered.unread_bytes),
            Size(covered.unreadable_bytes)
        );
        text.push_str(&format!("  {figures}\n"));
    }
    text.extend(drive.verification.iter().map(|found| format!("{}\n", wrapped(&describe_verification(found), 2))));
    for (row, node) in drive.chart.iter().zip(&status.nodes) {
        let cells: String = row.cells.chars().map(glyph).collect();
        let state = match (node.state, node.sync) {
            (NodeState::Ok | NodeState::Foreign, Some(NodeSync::Stale)) => "stale",
            (NodeState::Ok | NodeState::Foreign, Some(NodeSync::Syncing)) => "syncing",
            (state, _) => state.fact().map_or("", cheetah_error::Fact::name),
        };
        text.push_str(format!("  {} {state}", OneLine(&row.node)).trim_end());
        text.push_str(&format!("\n    {cells}\n"));
    }
    let writer = status.nodes.iter().find_map(|node| node.writer.as_deref());
    let writer = writer.map(|writer| format!("{}\n", wrapped(&format!("written by {}", OneLine(writer)), 2)));
    let problems = status.nodes.iter().filter_map(|node| node.problem.as_deref());
    let problems = problems.map(|problem| format!("{}\n", wrapped(&OneLine(problem).to_string(), 2)));
    text.extend(writer.into_iter().chain(problems));
    text
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

fn headline(status: &DriveStatus) -> String {
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

const fn glyph(cell: char) -> char {
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

fn describe_job(job: &Job) -> String {
    let kind = match job.kind {
        JobKind::Fill => "is being filled",
        JobKind::Load => "is being loaded",
        JobKind::Resynchronize => "is being resynchronized",
    };
    let done = job.done_bytes.map_or_else(
        || format!("{} in all", Size(job.total_bytes)),
        |done| format!("{} of {}", Size(done), Size(job.total_bytes)),
    );
    let rate = job.bytes_per_s.map(|rate| format!(", {}/s", Size(rate))).unwrap_or_default();
    let left = job.left_s.map(|left| format!(", {} min left", left.div_ceil(60))).unwrap_or_default();
    let bad = match job.unreadable_ranges {
        0 => String::new(),
        ranges => format!(", {} unreadable in {ranges} ranges", Size(job.unreadable_bytes)),
    };
    let by = match &job.writer {
        Some(writer) => format!("by {}", OneLine(writer)),
        None => "NO PROCESS does it".to_owned(),
    };
    format!("\n{}\n", wrapped(&format!("{} {kind}: {done}{rate}{left}{bad}; {by}", job.drive), 0))
}

fn describe_log(log: &LogEnd) -> String {
    let mut text = format!("\n{}\n", wrapped(&format!("custody log {}", OneLine(&log.log)), 0));
    log.problems.iter().for_each(|problem| text.push_str(&format!("{}\n", wrapped(&format!("PROBLEM: {problem}"), 2))));
    for record in &log.records {
        let said = record.text.as_deref().map(|said| format!(": {}", OneLine(said))).unwrap_or_default();
        let line = format!("{} {} {}{said}", record.seq, OneLine(&record.time), OneLine(&record.event));
        text.push_str(&format!("{}\n", wrapped(&line, 2)));
    }
    text
}
