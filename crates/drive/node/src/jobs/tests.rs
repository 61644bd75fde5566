use std::sync::Arc;

use cheetah_control::api::NewExport;
use cheetah_control::jobs::{SearchOrder, Stretch, UnitPlace};

use super::*;
use crate::store::Store;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A node's exports, with one of 1 MiB.
fn exports() -> (Arc<Exports>, Instance) {
    let instance = Instance::random().unwrap();
    let exports = Exports::new(Store::new(8 * MIB).unwrap(), instance);
    exports.create(&NewExport::thin("e", MIB)).unwrap();
    (exports, instance)
}

/// A job over the whole export, in units of 4 KiB.
fn whole(instance: Instance) -> NewJob {
    let units = vec![UnitPlace { export: 0, text: 0 }];
    let stretch = Stretch { rounds: MIB / (4 * KIB), units, export_step: 4 * KIB, text_step: 4 * KIB };
    let units = Units { unit_bytes: 4 * KIB, stretches: vec![stretch] };
    NewJob { instance: instance.to_string(), export: "e".into(), units, work: Work::Digest(Digest::default()) }
}

/// One thread, and little room.
fn narrow(abandoned: Duration) -> Jobs {
    Jobs::with(1, Limits { jobs_max: 3, output_bytes_max: 100, abandoned }).unwrap()
}

/// Longer than a test takes.
const PATIENCE: Duration = Duration::from_secs(600);

#[test]
fn a_node_that_lends_no_processor_takes_no_job() {
    let (exports, instance) = exports();
    let jobs = Jobs::start(None).unwrap();
    assert_eq!((jobs.add(whole(instance), &exports, instance), jobs.status()), (Err(JobError::Off), None));
}

#[test]
fn a_job_for_another_run_another_export_or_beyond_the_limits_is_refused() {
    let (exports, instance) = exports();
    let jobs = narrow(PATIENCE);
    let add = |job| jobs.add(job, &exports, instance).unwrap_err();
    assert_eq!(add(whole(Instance::random().unwrap())), JobError::OtherInstance);
    assert_eq!(add(NewJob { export: "f".into(), ..whole(instance) }), ExportsError::NotFound("f".into()).into());
    let empty = Units { unit_bytes: 4 * KIB, ..Units::default() };
    assert!(matches!(add(NewJob { units: empty, ..whole(instance) }), JobError::Bad(_)));
    let other = SearchOrder { version: "0.0.0".into(), ..patterns::tests::words(&["x"]) };
    assert!(matches!(add(search(instance, other)), JobError::Bad(_)));
    let short = Work::Digest(Digest { text_bytes: Some(4 * KIB) });
    assert!(matches!(add(NewJob { work: short, ..whole(instance) }), JobError::Bad(_)));
    assert_eq!(jobs.status(), Some(ScanStatus { threads: 1, jobs: 0 }));
}

#[test]
fn a_client_that_starts_jobs_and_takes_no_results_fills_its_places_only() {
    let (exports, instance) = exports();
    let jobs = narrow(PATIENCE);
    let ids: Vec<_> = (0..3).map(|_| jobs.add(whole(instance), &exports, instance).unwrap()).collect();
    assert_eq!(jobs.add(whole(instance), &exports, instance), Err(JobError::TooMany));
    jobs.cancel(&ids[1]).unwrap();
    assert_eq!(jobs.cancel(&ids[1]), Err(JobError::Unknown));
    jobs.add(whole(instance), &exports, instance).unwrap();
    assert_eq!(jobs.add(whole(instance), &exports, instance), Err(JobError::TooMany));
}

#[test]
fn jobs_that_are_cancelled_while_they_wait_leave_nothing_behind() {
    let (exports, instance) = exports();
    let jobs = narrow(PATIENCE);
    // It does not end, because nobody takes its results.
    jobs.add(whole(instance), &exports, instance).unwrap();
    for _ in 0..1000 {
        let id = jobs.add(whole(instance), &exports, instance).unwrap();
        jobs.cancel(&id).unwrap();
    }
    assert!(jobs.queue.state.lock().waiting.len() <= 1);
}

#[test]
fn a_job_whose_client_is_gone_makes_room_for_others() {
    let (exports, instance) = exports();
    let jobs = narrow(Duration::from_millis(1));
    for _ in 0..20 {
        while jobs.add(whole(instance), &exports, instance) == Err(JobError::TooMany) {
            thread::yield_now();
        }
    }
}

#[tokio::test]
async fn the_end_of_the_node_ends_every_job() {
    let (exports, instance) = exports();
    let jobs = narrow(PATIENCE);
    let id = jobs.add(whole(instance), &exports, instance).unwrap();
    jobs.end();
    assert_eq!(jobs.lines(&id, 0, PATIENCE).await, Err(JobError::Unknown));
    assert_eq!(jobs.add(whole(instance), &exports, instance), Err(JobError::Ending));
}

#[tokio::test]
async fn a_job_is_forgotten_once_its_last_line_has_arrived() {
    let (exports, instance) = exports();
    let jobs = Jobs::start(NonZeroUsize::new(1)).unwrap();
    let id = jobs.add(whole(instance), &exports, instance).unwrap();
    let mut lines = 0;
    while jobs.status().is_some_and(|status| status.jobs > 0) {
        lines += jobs.lines(&id, lines, PATIENCE).await.unwrap().split(|byte| *byte == b'\n').count() as u64 - 1;
    }
    assert_eq!(lines, MIB / (4 * KIB) / 64 + 1);
    assert_eq!(jobs.lines(&id, lines, PATIENCE).await, Err(JobError::Unknown));
}

/// A search of the whole export.
fn search(instance: Instance, order: SearchOrder) -> NewJob {
    NewJob { work: Work::Search(order), ..whole(instance) }
}

#[tokio::test]
async fn searches_with_other_patterns_than_those_of_four_others_wait_until_these_are_forgotten() {
    let (exports, instance) = exports();
    let limits = Limits { output_bytes_max: 100, abandoned: PATIENCE, ..Limits::default() };
    let jobs = Jobs::with(1, limits).unwrap();
    let add = |word: &str| jobs.add(search(instance, patterns::tests::words(&[word])), &exports, instance);
    let ids: Vec<_> = ["a", "b", "c", "d"].map(|word| add(word).unwrap()).into();
    assert_eq!(add("e"), Err(JobError::TooMany));
    add("a").unwrap();
    jobs.cancel(&ids[3]).unwrap();
    add("e").unwrap();
    jobs.end();
}

#[tokio::test]
async fn patterns_that_make_no_sense_end_the_job() {
    let (exports, instance) = exports();
    let jobs = Jobs::start(NonZeroUsize::new(1)).unwrap();
    let order = SearchOrder { expressions: vec!["a+".into()], ..patterns::tests::words(&[]) };
    let id = jobs.add(search(instance, order), &exports, instance).unwrap();
    let lines = jobs.lines(&id, 0, PATIENCE).await.unwrap();
    let line: JobLine = serde_json::from_slice(&lines).unwrap();
    assert!(matches!(&line, JobLine::Failed { .. }), "{line:?}");
}
