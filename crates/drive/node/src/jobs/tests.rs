use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::api::NewExport;
use cheetah_control::jobs::{LENT_KEY_DIGITS_MAX, SearchOrder, Stretch, UnitPlace};
use cheetah_seal::{DriveKey, Record, Stamp, lent};

use super::*;
use crate::search_memory::tests as search_memory;
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
    NewJob {
        instance: instance.to_string(),
        export: "e".into(),
        units,
        work: Work::Digest(Digest::default()),
        key: None,
    }
}

/// One thread, and little room.
fn narrow(abandoned: Duration) -> Jobs {
    Jobs::with(Some(Scan::with(NonZeroUsize::MIN)), false, Limits { jobs_max: 3, output_bytes_max: 100, abandoned })
        .unwrap()
}

/// Longer than a test takes.
const PATIENCE: Duration = Duration::from_secs(600);

#[test]
fn a_node_that_lends_no_processor_takes_no_job() {
    let (exports, instance) = exports();
    let jobs = Jobs::start(None, false).unwrap();
    assert_eq!((jobs.add(whole(instance), "desk", &exports, instance), jobs.status()), (Err(JobError::Off), None));
}

#[test]
fn a_job_for_another_run_another_export_or_beyond_the_limits_is_refused() {
    let (exports, instance) = exports();
    let jobs = narrow(PATIENCE);
    let add = |job| jobs.add(job, "desk", &exports, instance).unwrap_err();
    assert_eq!(add(whole(Instance::random().unwrap())), JobError::OtherInstance);
    assert_eq!(add(NewJob { export: "f".into(), ..whole(instance) }), ExportsError::NotFound("f".into()).into());
    let empty = Units { unit_bytes: 4 * KIB, ..Units::default() };
    assert!(matches!(add(NewJob { units: empty, ..whole(instance) }), JobError::Bad(_)));
    let other = SearchOrder { version: "0.0.0".into(), ..patterns::tests::words(&["x"]) };
    assert!(matches!(add(search(instance, other)), JobError::Bad(_)));
    let short = Work::Digest(Digest { text_bytes: Some(4 * KIB) });
    assert!(matches!(add(NewJob { work: short, ..whole(instance) }), JobError::Bad(_)));
    assert_eq!(jobs.status(), Some(ScanStatus { threads: 1, jobs: 0, recipient: None }));
}

#[test]
fn a_client_that_starts_jobs_and_takes_no_results_fills_its_places_only() {
    let (exports, instance) = exports();
    let jobs = narrow(PATIENCE);
    let ids: Vec<_> = (0..3).map(|_| jobs.add(whole(instance), "desk", &exports, instance).unwrap()).collect();
    assert_eq!(jobs.add(whole(instance), "desk", &exports, instance), Err(JobError::TooMany));
    jobs.cancel(&ids[1]).unwrap();
    assert_eq!(jobs.cancel(&ids[1]), Err(JobError::Unknown));
    jobs.add(whole(instance), "desk", &exports, instance).unwrap();
    assert_eq!(jobs.add(whole(instance), "desk", &exports, instance), Err(JobError::TooMany));
}

#[tokio::test]
async fn results_that_a_client_does_not_take_are_kept_within_the_room_and_stop_no_job_whose_results_are_taken() {
    const ROOM: u64 = 40 * KIB;
    let (exports, instance) = exports();
    let limits = Limits { abandoned: PATIENCE, ..Limits::default() };
    let outputs = Arc::new(OutputMemory::new(ROOM));
    let jobs = Jobs::with(NonZeroUsize::new(4).map(Scan::ordinary), false, limits).unwrap();
    let jobs = Jobs { outputs: Arc::clone(&outputs), ..jobs };
    let add = || jobs.add(whole(instance), "desk", &exports, instance).unwrap();
    // Each has four lines of about 2.8 KB, and a last one, which is short.
    let hostile = [(); 3].map(|()| add());
    while outputs.kept_bytes() < ROOM / 2 - 3 * KIB {
        thread::yield_now();
    }
    let id = add();
    let mut lines: Vec<JobLine> = Vec::new();
    while !lines.last().is_some_and(JobLine::is_last) {
        let more = jobs.lines(&id, lines.len() as u64, PATIENCE).await.unwrap();
        let more = more.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.extend(more.map(|line| serde_json::from_slice::<JobLine>(line).unwrap()));
        assert!(outputs.kept_bytes() < ROOM + KIB, "{}", outputs.kept_bytes());
    }
    assert_eq!(lines.len(), 5);
    jobs.lines(&id, 5, Duration::ZERO).await.unwrap();
    hostile.iter().for_each(|id| jobs.cancel(id).unwrap());
    assert_eq!(outputs.kept_bytes(), 0);
}

#[test]
fn jobs_that_are_cancelled_while_they_wait_leave_nothing_behind() {
    let (exports, instance) = exports();
    let jobs = narrow(PATIENCE);
    // It does not end, because nobody takes its results.
    jobs.add(whole(instance), "desk", &exports, instance).unwrap();
    for _ in 0..1000 {
        let id = jobs.add(whole(instance), "desk", &exports, instance).unwrap();
        jobs.cancel(&id).unwrap();
    }
    assert!(jobs.queue.state.lock().waiting.len() <= 1);
}

#[test]
fn a_job_whose_client_is_gone_makes_room_for_others() {
    let (exports, instance) = exports();
    let jobs = narrow(Duration::from_millis(1));
    for _ in 0..20 {
        while jobs.add(whole(instance), "desk", &exports, instance) == Err(JobError::TooMany) {
            thread::yield_now();
        }
    }
}

#[tokio::test]
async fn the_end_of_the_node_ends_every_job() {
    let (exports, instance) = exports();
    let jobs = narrow(PATIENCE);
    let id = jobs.add(whole(instance), "desk", &exports, instance).unwrap();
    jobs.end();
    assert_eq!(jobs.lines(&id, 0, PATIENCE).await, Err(JobError::Unknown));
    assert_eq!(jobs.add(whole(instance), "desk", &exports, instance), Err(JobError::Ending));
}

#[tokio::test]
async fn a_job_is_forgotten_once_its_last_line_has_arrived() {
    let (exports, instance) = exports();
    let jobs = Jobs::start(NonZeroUsize::new(1).map(Scan::with), false).unwrap();
    let id = jobs.add(whole(instance), "desk", &exports, instance).unwrap();
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
    let jobs = Jobs::with(Some(Scan::with(NonZeroUsize::MIN)), false, limits).unwrap();
    let add = |word: &str| jobs.add(search(instance, patterns::tests::words(&[word])), "desk", &exports, instance);
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
    let jobs = Jobs::start(NonZeroUsize::new(1).map(Scan::with), false).unwrap();
    let order = SearchOrder { expressions: vec!["a+".into()], ..patterns::tests::words(&[]) };
    let id = jobs.add(search(instance, order), "desk", &exports, instance).unwrap();
    let lines = jobs.lines(&id, 0, PATIENCE).await.unwrap();
    let line: JobLine = serde_json::from_slice(&lines).unwrap();
    assert!(matches!(&line, JobLine::Failed { .. }), "{line:?}");
}

#[tokio::test]
async fn a_search_for_which_there_is_no_memory_is_refused_or_ends_and_other_jobs_are_taken() {
    let (exports, instance) = exports();
    let jobs = |mib: u64| {
        let jobs = Jobs::start(NonZeroUsize::new(1).map(Scan::with), false).unwrap();
        jobs.within(search_memory::of(mib * MIB))
    };
    let order = || SearchOrder { expressions: vec!["a{3}b".into()], ..patterns::tests::words(&[]) };
    let full = jobs(0);
    let refused = full.add(search(instance, order()), "desk", &exports, instance);
    assert_eq!(refused, Err(JobError::NoMemory(NoMemory { left_bytes: 0 })));
    full.add(whole(instance), "desk", &exports, instance).unwrap();
    // Less than the expression takes is known once it is compiled.
    let narrow = jobs(2);
    let id = narrow.add(search(instance, order()), "desk", &exports, instance).unwrap();
    let lines = narrow.lines(&id, 0, PATIENCE).await.unwrap();
    let line: JobLine = serde_json::from_slice(&lines).unwrap();
    assert!(matches!(&line, JobLine::Failed { .. }), "{line:?}");
}

#[test]
fn a_job_whose_client_is_gone_ends_while_its_thread_waits_for_a_place_and_frees_its_memory() {
    let (exports, instance) = exports();
    let memory = search_memory::of(64 * MIB);
    let jobs = narrow(Duration::from_millis(1)).within(Arc::clone(&memory));
    let order = || SearchOrder { expressions: vec!["a{3}b".into()], ..patterns::tests::words(&[]) };
    let held = jobs.patterns.of(order()).unwrap();
    let place = held.begin(|| false).unwrap();
    let id = jobs.add(search(instance, order()), "desk", &exports, instance).unwrap();
    while jobs.queue.state.lock().by_id.contains_key(&id) {
        thread::yield_now();
    }
    drop(place);
    drop(held);
    while memory.reserved_bytes() < 64 * MIB {
        thread::yield_now();
    }
}

/// A search for `x` of the whole export as units of a seal, with a key that is lent as this task. The export is all holes.
fn sealed(jobs: &Jobs, instance: Instance, task: char) -> NewJob {
    let unit = 4 * KIB;
    let (key, mut record) = (DriveKey::from_bytes(&[3; 32]).unwrap(), record(unit));
    record.stamps[0] = Stamp::new(record.begin_epoch([2; 32]).unwrap().number, 1).unwrap();
    let recipient = jobs.status().unwrap().recipient.unwrap().parse().unwrap();
    let wrapped = lent::lend(&key, &record, &recipient).unwrap().unwrap();
    let key = LentKey { task: task.to_string().repeat(32), age: STANDARD.encode(wrapped) };
    let units = vec![UnitPlace { export: 0, text: 0 }];
    let stretch = Stretch { rounds: record.units.count(), units, export_step: unit + 24, text_step: unit };
    let units = Units { unit_bytes: unit, stretches: vec![stretch] };
    NewJob { units, key: Some(key), ..search(instance, patterns::tests::words(&["x"])) }
}

/// The record of a drive with as many units as fit in the export.
fn record(unit: u64) -> Record {
    Record::new([1; 16], cheetah_seal::Units::new(unit, cheetah_seal::Units::fitting(unit, MIB)).unwrap(), false)
}

/// The tasks for which keys were lent for the export, and whether they are wiped.
fn lent_tasks(exports: &Exports) -> Vec<(char, bool)> {
    let lent = exports.export("e").unwrap().keys_lent().all();
    lent.iter().map(|lent| (lent.task.chars().next().unwrap(), lent.wiped)).collect()
}

fn until_wiped(exports: &Exports) {
    while lent_tasks(exports).iter().any(|(_, is_wiped)| !is_wiped) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_lent_key_is_wiped_before_the_last_line_of_its_job_is_there() {
    let (exports, instance) = exports();
    let jobs = Jobs::start(NonZeroUsize::new(1).map(Scan::with), true).unwrap();
    let id = jobs.add(sealed(&jobs, instance, 'a'), "desk", &exports, instance).unwrap();
    let mut lines: Vec<JobLine> = Vec::new();
    while !lines.last().is_some_and(JobLine::is_last) {
        let more = jobs.lines(&id, lines.len() as u64, PATIENCE).await.unwrap();
        let more = more.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.extend(more.map(|line| serde_json::from_slice::<JobLine>(line).unwrap()));
    }
    assert_eq!(lent_tasks(&exports), [('a', true)]);
    assert_eq!(lines.last(), Some(&JobLine::End { units: record(4 * KIB).units.count() }));
    let is_hole =
        |line: &JobLine| matches!(line, JobLine::Searched { stamp: Some(stamp), .. } if *stamp == "0".repeat(16));
    assert!(lines[..lines.len() - 1].iter().all(is_hole), "{:?}", lines[0]);
}

#[test]
fn a_lent_key_is_wiped_when_its_job_is_cancelled_given_up_or_ended_with_the_node() {
    let (exports, instance) = exports();
    let with = |abandoned| {
        Jobs::with(Some(Scan::with(NonZeroUsize::MIN)), true, Limits { jobs_max: 3, output_bytes_max: 100, abandoned })
            .unwrap()
    };
    let add = |jobs: &Jobs, task| jobs.add(sealed(jobs, instance, task), "desk", &exports, instance).unwrap();
    let jobs = with(PATIENCE);
    // No job ends by itself, because nobody takes its results.
    let [first, second] = ['a', 'b'].map(|task| add(&jobs, task));
    assert_eq!(lent_tasks(&exports), [('a', false), ('b', false)]);
    jobs.cancel(&second).unwrap();
    assert_eq!(lent_tasks(&exports), [('a', false), ('b', true)], "it was not worked on");
    jobs.cancel(&first).unwrap();
    until_wiped(&exports);
    add(&jobs, 'c');
    jobs.end();
    until_wiped(&exports);
    let jobs = with(Duration::from_millis(1));
    add(&jobs, 'd');
    until_wiped(&exports);
    assert_eq!(lent_tasks(&exports).len(), 4);
}

#[test]
fn a_lent_key_that_is_none_or_does_not_fit_the_job_is_refused() {
    let (exports, instance) = exports();
    let jobs = Jobs::start(NonZeroUsize::new(1).map(Scan::with), true).unwrap();
    let refused = |job: NewJob| jobs.add(job, "desk", &exports, instance).unwrap_err();
    let good = sealed(&jobs, instance, 'a');
    let key = good.key.clone().unwrap();
    for bad in [
        LentKey { task: "a".repeat(31), ..key.clone() },
        LentKey { task: "a".repeat(33), ..key.clone() },
        LentKey { task: "A".repeat(32), ..key.clone() },
        LentKey { task: "\n".repeat(32), ..key.clone() },
        LentKey { age: String::new(), ..key.clone() },
        LentKey { age: "?".into(), ..key.clone() },
        LentKey { age: "A".repeat(LENT_KEY_DIGITS_MAX), ..key.clone() },
        LentKey { age: "A".repeat(LENT_KEY_DIGITS_MAX + 4), ..key.clone() },
        // To another run.
        sealed(&Jobs::start(NonZeroUsize::new(1).map(Scan::with), true).unwrap(), instance, 'a').key.unwrap(),
    ] {
        assert!(matches!(refused(NewJob { key: Some(bad), ..good.clone() }), JobError::Bad(_)));
    }
    let stretches = vec![Stretch { rounds: 1, ..good.units.stretches[0].clone() }];
    let larger = Units { unit_bytes: 8 * KIB, stretches };
    assert!(matches!(refused(NewJob { units: larger, ..good.clone() }), JobError::Bad(_)));
    assert_eq!(lent_tasks(&exports), []);
    let untrusted = Jobs::start(NonZeroUsize::new(1).map(Scan::with), false).unwrap();
    assert_eq!(untrusted.add(good, "desk", &exports, instance), Err(JobError::NoKeys));
}
