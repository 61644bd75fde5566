//! The state of a room in one sentence: the worst first, and nothing averaged.

use cheetah_device::Size;
use cheetah_drive::ImageState;
use cheetah_drive::status::{Condition, Content, DriveStatus};
use cheetah_error::Fact;

use crate::answers::watch::{Health, LogEnd, Machine, Verification, WatchedDrive};

/// The names that a sentence has room for.
const NAMES: usize = 3;

/// The word and the sentence for what was seen, while `unasked` machines and drives were not asked yet.
pub fn judge(machines: &[Machine], drives: &[WatchedDrive], logs: &[LogEnd], unasked: usize) -> (Health, String) {
    let mut clauses: Vec<(Health, String)> = drives.iter().flat_map(of_drive).collect();
    let bad_logs = logs.iter().filter_map(|log| Some((log, log.problems.first()?)));
    clauses.extend(bad_logs.map(|(log, problem)| (Health::Bad, format!("the custody log {}: {problem}", log.log))));
    clauses.extend(of_machines(machines));
    // Nothing is called well before it was looked at.
    if unasked > 0 {
        let verb = if unasked == 1 { "has" } else { "have" };
        clauses.push((Health::Attention, format!("{unasked} of the machines and drives {verb} not answered yet")));
    }
    // Stable: drives before machines among clauses that are equally bad.
    clauses.sort_by_key(|(health, _)| std::cmp::Reverse(*health));
    match clauses.first() {
        Some((worst, _)) => {
            let texts: Vec<_> = clauses.iter().map(|(_, text)| text.as_str()).collect();
            (*worst, format!("{}.", texts.join("; ")))
        }
        None if machines.is_empty() && logs.is_empty() => (Health::Attention, "No machine is known yet.".to_owned()),
        None => (Health::Good, all_well(machines, drives)),
    }
}

/// The worst that is known of a drive.
pub fn health(drive: &WatchedDrive) -> Health {
    of_drive(drive).into_iter().map(|(health, _)| health).max().unwrap_or(Health::Good)
}

fn of_drive(drive: &WatchedDrive) -> Vec<(Health, String)> {
    let Some(status) = &drive.status else {
        return drive.problem.iter().map(|problem| (Health::Bad, problem.clone())).collect();
    };
    let name = &status.name;
    let mut clauses = Vec::new();
    if !drive.wiped.is_empty() {
        clauses.push((Health::Bad, format!("{name} is destroyed, wholly or in part: {}", names(&drive.wiped))));
    } else if let Some(clause) = of_content(status) {
        clauses.push(clause);
    }
    if let Some(failed) = failed_verification(drive) {
        clauses.push((Health::Bad, format!("the verification of {name} at {} found problems", failed.at)));
    }
    let unreadable = status.covered.as_ref().filter(|covered| covered.unreadable_bytes > 0);
    if let Some(covered) = unreadable {
        let (bytes, ranges) = (Size(covered.unreadable_bytes), covered.unreadable_ranges);
        let ranges = if ranges == 1 { "1 range".to_owned() } else { format!("{ranges} ranges") };
        let text = format!("{name} is PARTIAL: {bytes} of the source could not be read, in {ranges}");
        clauses.push((Health::Attention, text));
    }
    // That it is partial is said already.
    let is_said = |status: &DriveStatus| unreadable.is_some() && condition(status) == Some(ImageState::Incomplete);
    if let Some(missing) = missing(status).filter(|_| !is_said(status)) {
        clauses.push((Health::Attention, format!("{name} {missing}")));
    }
    let leaving = status.nodes.iter().filter(|node| node.leave_in_s.is_some()).map(|node| node.node.clone());
    let leaving: Vec<_> = leaving.collect();
    if !leaving.is_empty() {
        clauses.push((Health::Attention, format!("{name} has to leave {}", names(&leaving))));
    }
    clauses
}

/// The last verification of a drive, if it found problems. That an incomplete image is one is said already.
pub fn failed_verification(drive: &WatchedDrive) -> Option<&Verification> {
    let is_incomplete = drive.status.as_ref().and_then(condition) == Some(ImageState::Incomplete);
    drive.verification.as_ref().filter(|verification| !verification.ok && !is_incomplete)
}

/// The recorded state of a drive's image; `None` without one, or if it is lost.
fn condition(status: &DriveStatus) -> Option<ImageState> {
    match status.image.as_ref()?.state {
        Condition::Recorded(state) => Some(state),
        Condition::Lost => None,
    }
}

/// What a drive does not have of its image: a part is never taken for the whole.
pub fn missing(status: &DriveStatus) -> Option<String> {
    let state = condition(status)?;
    let unread_bytes = status.covered.as_ref().map_or(0, |covered| covered.unread_bytes);
    match state {
        ImageState::Filling if unread_bytes > 0 => {
            Some(format!("is NOT WHOLE YET: {} of the source are not read", Size(unread_bytes)))
        }
        ImageState::Filling => Some("is filled, and not checked yet".to_owned()),
        ImageState::Loading => Some("is PARTIAL: its load has not finished".to_owned()),
        ImageState::Incomplete => Some("is PARTIAL: parts of the source could not be read".to_owned()),
        ImageState::Intact | ImageState::Modified => None,
    }
}

fn of_content(status: &DriveStatus) -> Option<(Health, String)> {
    let name = &status.name;
    if let Some(diverged) = &status.diverged {
        return Some((Health::Bad, format!("{name} is not read: {diverged}")));
    }
    match (status.content, status.survives_losses) {
        (Content::Lost, _) => Some((Health::Bad, format!("part of {name} is lost"))),
        (Content::Unknown, _) => {
            Some((Health::Bad, format!("{name} cannot be read now, and nothing of it is known to be lost")))
        }
        (Content::Whole, _) if status.healthy => None,
        (Content::Whole, Some(0) | None) => Some((
            Health::Attention,
            format!("{name} has lost nothing, and the loss of one more node may lose content"),
        )),
        (Content::Whole, Some(left)) => Some((
            Health::Attention,
            format!("{name} has lost nothing, and survives {left} of {} losses", status.survives_losses_max),
        )),
    }
}

fn of_machines(machines: &[Machine]) -> Vec<(Health, String)> {
    let named = |is_meant: &dyn Fn(&Machine) -> bool| -> Vec<String> {
        machines.iter().filter(|machine| is_meant(machine)).map(|machine| machine.name.clone()).collect()
    };
    let mut clauses = Vec::new();
    for fact in [Fact::Lost, Fact::Silent, Fact::Unreachable, Fact::Refused, Fact::Restarted] {
        let found = named(&|machine| machine.state.fact() == Some(fact));
        if !found.is_empty() {
            clauses.push((
                Health::Attention,
                format!("{} ({})", clause(fact, found.len(), machines.len()), names(&found)),
            ));
        }
    }
    let lends =
        |is_so: fn(&crate::answers::watch::Lends) -> bool| named(&|machine| machine.lends.as_ref().is_some_and(is_so));
    for (found, one, several) in [
        (lends(|lends| !lends.dropped.is_empty()), "dropped content", "dropped content"),
        (lends(|lends| !lends.locked), "has memory that is NOT LOCKED", "have memory that is NOT LOCKED"),
        (lends(|lends| lends.draining), "is about to leave", "are about to leave"),
        (
            named(&|machine| machine.restarts > 0),
            "was restarted, and came back empty",
            "were restarted, and came back empty",
        ),
    ] {
        if !found.is_empty() {
            let verb = if found.len() == 1 { one } else { several };
            clauses.push((Health::Attention, format!("{} {verb}", names(&found))));
        }
    }
    clauses
}

/// What machines do or are. That a process has ended says nothing about evidence here: the drives say what is lost.
fn clause(fact: Fact, count: usize, of: usize) -> String {
    let one = count == 1;
    let what = match fact {
        Fact::Lost if one => "runs no node any more",
        Fact::Lost => "run no node any more",
        Fact::Silent if one => "does not answer",
        Fact::Silent => "do not answer",
        Fact::Unreachable => "cannot be reached",
        Fact::Refused if one => "refuses this member",
        Fact::Refused => "refuse this member",
        Fact::Restarted => "came back empty",
    };
    format!("{count} of {of} machines {what}")
}

fn all_well(machines: &[Machine], drives: &[WatchedDrive]) -> String {
    let answering = match machines.len() {
        0 => "No machine is known".to_owned(),
        1 => "The only machine answers".to_owned(),
        count => format!("All {count} machines answer"),
    };
    let survive = drives.iter().filter_map(|drive| drive.status.as_ref()?.survives_losses).min();
    match (drives.len(), survive) {
        (0, _) | (_, None) => format!("{answering}."),
        (1, Some(losses)) => format!("{answering}; the drive is whole, and survives {}.", count_losses(losses)),
        (count, Some(0)) => format!("{answering}; {count} drives are whole, and not each survives a loss."),
        (count, Some(losses)) => {
            format!("{answering}; {count} drives are whole, and each survives {}.", count_losses(losses))
        }
    }
}

fn count_losses(losses: usize) -> String {
    match losses {
        0 => "no loss".to_owned(),
        1 => "1 loss".to_owned(),
        losses => format!("{losses} losses"),
    }
}

fn names(all: &[String]) -> String {
    match all.len().checked_sub(NAMES).filter(|more| *more > 0) {
        Some(more) => format!("{} and {more} more", all[..NAMES].join(", ")),
        None => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use cheetah_drive::status::NodeState;

    use super::*;
    use crate::answers::watch::Lends;

    fn machine(name: &str, state: NodeState) -> Machine {
        let lends = Lends {
            boot_image: false,
            disks_visible: None,
            draining: false,
            dropped: Vec::new(),
            exports: 0,
            free_bytes: 1,
            lent_bytes: 1,
            locked: true,
            read_bytes_per_s: None,
            uptime_s: 1,
            used_bytes: 0,
            version: String::new(),
            wiped_bytes: 0,
        };
        Machine {
            address: format!("{name}:10810"),
            last_seen_ms: None,
            lends: state.is_healthy().then_some(lends),
            name: name.into(),
            problem: None,
            restarts: 0,
            role: "node",
            state,
        }
    }

    #[test]
    fn one_bad_machine_among_many_is_named() {
        let mut machines: Vec<_> = (0..500).map(|index| machine(&format!("pc{index}"), NodeState::Ok)).collect();
        assert_eq!(judge(&machines, &[], &[], 0), (Health::Good, "All 500 machines answer.".into()));
        machines[250].state = NodeState::Silent;
        assert_eq!(
            judge(&machines, &[], &[], 0),
            (Health::Attention, "1 of 500 machines does not answer (pc250).".into())
        );
        machines[3].lends.as_mut().unwrap().locked = false;
        let (_, sentence) = judge(&machines, &[], &[], 0);
        assert_eq!(sentence, "1 of 500 machines does not answer (pc250); pc3 has memory that is NOT LOCKED.");
    }

    #[test]
    fn what_is_lost_comes_before_what_needs_a_look() {
        let machines = [machine("a", NodeState::Refused), machine("b", NodeState::Ok)];
        let unread = WatchedDrive {
            chart: Vec::new(),
            file: "x.drive".into(),
            problem: Some("x.drive: No such file or directory".into()),
            status: None,
            verification: None,
            wiped: Vec::new(),
        };
        let log = LogEnd { log: "x.custody".into(), problems: vec!["line 3: altered".into()], records: Vec::new() };
        let (health, sentence) = judge(&machines, &[unread], &[log], 0);
        assert_eq!(health, Health::Bad);
        let expected = "x.drive: No such file or directory; the custody log x.custody: line 3: altered; 1 of 2 machines refuses \
                        this member (a).";
        assert_eq!(sentence, expected);
    }

    #[test]
    fn nothing_is_well_before_it_was_looked_at() {
        assert_eq!(judge(&[], &[], &[], 0), (Health::Attention, "No machine is known yet.".into()));
        let (health, sentence) = judge(&[machine("a", NodeState::Ok)], &[], &[], 2);
        assert_eq!(health, Health::Attention);
        assert_eq!(sentence, "2 of the machines and drives have not answered yet.");
    }

    #[test]
    fn many_names_are_cut_and_the_count_is_said() {
        let all: Vec<_> = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
        assert_eq!((names(&all), names(&all[..3])), ("a, b, c and 2 more".into(), "a, b, c".into()));
    }
}
