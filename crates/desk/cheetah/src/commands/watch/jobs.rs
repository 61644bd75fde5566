//! The work in progress on a drive, with its rates.

use std::collections::BTreeMap;
use std::time::Instant;

use cheetah_drive::ImageState;
use cheetah_drive::file::NodeSync;
use cheetah_drive::status::{Condition, DriveStatus, NodeStatus};

use super::rate::Rate;
use crate::answers::watch::{Job, JobKind};

/// By what a job is recognised: its kind, and the export of the node, if it is the work on one.
type Key = (JobKind, String);

/// The jobs of a drive, and how their counts have grown.
#[derive(Debug, Default)]
pub struct Jobs {
    shown: Vec<Job>,
    rates: BTreeMap<Key, Rate>,
}

impl Jobs {
    /// The jobs, as they were noted last.
    pub fn shown(&self) -> &[Job] {
        &self.shown
    }

    /// Notes the state of the drive at a time.
    pub fn note(&mut self, status: &DriveStatus, now: Instant) {
        let mut before = std::mem::take(&mut self.rates);
        let mut jobs = Vec::new();
        for (key, job) in found(status) {
            let mut rate = before.remove(&key).unwrap_or_default();
            let bytes_per_s = job.done_bytes.and_then(|done| rate.note(now, done));
            let left_bytes = job.done_bytes.map(|done| job.total_bytes.saturating_sub(done));
            let left_s = left_bytes.and_then(|left| left.checked_div(bytes_per_s?));
            jobs.push(Job { bytes_per_s, left_s, ..job });
            self.rates.insert(key, rate);
        }
        self.shown = jobs;
    }
}

/// The jobs that a drive's state shows, without rates.
fn found(status: &DriveStatus) -> Vec<(Key, Job)> {
    let image = bringing(status).map(|job| ((job.kind, String::new()), job));
    let on_nodes = status.nodes.iter().flat_map(|node| {
        let jobs = [resynchronization(status, node), moving(status, node)];
        jobs.into_iter().flatten().map(|job| ((job.kind, node.nbd.clone()), job))
    });
    image.into_iter().chain(on_nodes).collect()
}

/// The fill or the load of a drive.
fn bringing(status: &DriveStatus) -> Option<Job> {
    let image = status.image.as_ref()?;
    match (image.state, &status.covered) {
        (Condition::Recorded(ImageState::Filling), Some(covered)) => Some(Job {
            done_bytes: Some(covered.read_bytes.saturating_add(covered.unreadable_bytes)),
            unreadable_bytes: Some(covered.unreadable_bytes),
            unreadable_ranges: Some(covered.unreadable_ranges),
            ..job(status, JobKind::Fill, image.size, covered.filler.clone())
        }),
        (Condition::Recorded(ImageState::Loading), _) => {
            let told = status.load.as_ref();
            Some(Job {
                done_bytes: told.map(|told| told.done_bytes),
                unreadable_bytes: told.and_then(|told| told.unreadable_bytes),
                unreadable_ranges: told.and_then(|told| told.unreadable_ranges),
                ..job(status, JobKind::Load, image.size, writer(status))
            })
        }
        _ => None,
    }
}

/// The work on a node that gets the writes it missed.
fn resynchronization(status: &DriveStatus, node: &NodeStatus) -> Option<Job> {
    let done_bytes = node.behind_bytes.map(|behind| node.size_bytes.saturating_sub(behind));
    let job = Job { done_bytes, ..on(node, job(status, JobKind::Resynchronize, node.size_bytes, writer(status))) };
    (node.sync == Some(NodeSync::Syncing)).then_some(job)
}

/// The move of a node's part.
fn moving(status: &DriveStatus, node: &NodeStatus) -> Option<Job> {
    let moving = node.moving.as_ref()?;
    let job = on(node, job(status, JobKind::Move, node.size_bytes, writer(status)));
    let done_bytes = Some(node.size_bytes.saturating_sub(moving.left_bytes));
    Some(Job { done_bytes, to: Some(moving.to.clone()), ..job })
}

fn on(node: &NodeStatus, job: Job) -> Job {
    Job { node: Some(node.node.clone()), ..job }
}

fn writer(status: &DriveStatus) -> Option<String> {
    status.nodes.iter().find_map(|node| node.writer.clone())
}

fn job(status: &DriveStatus, kind: JobKind, total_bytes: u64, writer: Option<String>) -> Job {
    Job {
        bytes_per_s: None,
        done_bytes: None,
        drive: status.name.clone(),
        kind,
        left_s: None,
        node: None,
        to: None,
        total_bytes,
        unreadable_bytes: None,
        unreadable_ranges: None,
        writer,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cheetah_drive::LoadProgress;
    use cheetah_drive::status::Moving;

    use super::*;
    use crate::commands::watch::terminal::tests::room;

    const MIB: u64 = 1 << 20;

    fn status() -> DriveStatus {
        room().drives.remove(0).status.unwrap()
    }

    fn loading(done_bytes: Option<u64>) -> DriveStatus {
        let mut status = status();
        let told = |done_bytes| LoadProgress {
            done_bytes,
            unreadable_bytes: Some(512),
            unreadable_ranges: Some(1),
            ..LoadProgress::default()
        };
        (status.covered, status.load) = (None, done_bytes.map(told));
        let image = status.image.as_mut().unwrap();
        (image.state, image.size) = (Condition::Recorded(ImageState::Loading), 100 * MIB);
        status.nodes[1].writer = Some("ann@lab, process 7".into());
        status
    }

    #[test]
    fn a_load_has_a_rate_and_a_time_left_once_it_was_told_twice_how_far_it_is() {
        let (mut jobs, begun) = (Jobs::default(), Instant::now());
        jobs.note(&loading(None), begun);
        let [job] = jobs.shown() else { panic!("one job") };
        assert_eq!((job.kind, job.total_bytes, job.done_bytes), (JobKind::Load, 100 * MIB, None));
        assert_eq!((job.bytes_per_s, job.left_s, job.unreadable_bytes), (None, None, None));
        jobs.note(&loading(Some(20 * MIB)), begun);
        assert_eq!(jobs.shown()[0].bytes_per_s, None);
        jobs.note(&loading(Some(40 * MIB)), begun + Duration::from_secs(10));
        let job = &jobs.shown()[0];
        assert_eq!((job.done_bytes, job.bytes_per_s, job.left_s), (Some(40 * MIB), Some(2 * MIB), Some(30)));
        assert_eq!((job.unreadable_bytes, job.unreadable_ranges), (Some(512), Some(1)));
        assert_eq!(job.writer.as_deref(), Some("ann@lab, process 7"));
    }

    #[test]
    fn each_node_that_is_resynchronized_has_a_rate_of_its_own() {
        let (mut jobs, begun) = (Jobs::default(), Instant::now());
        let behind = |first, second| {
            let mut status = status();
            for (node, bytes) in status.nodes.iter_mut().zip([first, second]) {
                (node.sync, node.behind_bytes, node.size_bytes) = (Some(NodeSync::Syncing), Some(bytes), 64 * MIB);
            }
            status
        };
        jobs.note(&behind(64 * MIB, 8 * MIB), begun);
        jobs.note(&behind(32 * MIB, 8 * MIB), begun + Duration::from_secs(8));
        let found: Vec<_> = jobs.shown().iter().filter(|job| job.kind == JobKind::Resynchronize).collect();
        let rates: Vec<_> = found.iter().map(|job| (job.node.as_deref(), job.bytes_per_s, job.left_s)).collect();
        assert_eq!(rates, [(Some("lab-1"), Some(4 * MIB), Some(8)), (Some("lab-2"), Some(0), None)]);
        assert_eq!(found[0].done_bytes, Some(32 * MIB));
    }

    #[test]
    fn a_part_that_moves_says_where_to_and_how_much_is_left() {
        let (mut jobs, begun) = (Jobs::default(), Instant::now());
        let left = |left_bytes| {
            let mut status = status();
            (status.image, status.nodes[2].size_bytes) = (None, 64 * MIB);
            status.nodes[2].moving = Some(Moving { left_bytes, to: "lab-9".into() });
            status
        };
        jobs.note(&left(64 * MIB), begun);
        jobs.note(&left(48 * MIB), begun + Duration::from_secs(2));
        let [job] = jobs.shown() else { panic!("one job") };
        assert_eq!((job.kind, job.node.as_deref(), job.to.as_deref()), (JobKind::Move, Some("lab-3"), Some("lab-9")));
        assert_eq!((job.done_bytes, job.bytes_per_s, job.left_s), (Some(16 * MIB), Some(8 * MIB), Some(6)));
    }

    #[test]
    fn a_job_that_begins_anew_does_not_go_on_at_the_rate_of_the_one_before() {
        let (mut jobs, begun) = (Jobs::default(), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        jobs.note(&loading(Some(10 * MIB)), begun);
        jobs.note(&loading(Some(20 * MIB)), after(1));
        // It ended meanwhile.
        let mut loaded = loading(None);
        loaded.image.as_mut().unwrap().state = Condition::Recorded(ImageState::Intact);
        jobs.note(&loaded, after(2));
        assert!(jobs.shown().is_empty() && jobs.rates.is_empty());
        jobs.note(&loading(Some(50 * MIB)), after(3));
        assert_eq!(jobs.shown()[0].bytes_per_s, None);
    }
}
