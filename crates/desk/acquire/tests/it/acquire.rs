//! Acquisitions in process: every kind of failure, and the result always that of an undisturbed run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::source::{Disk, MIB, SECTOR, opener, opener_with_cuts};
use crate::common::{names, read_e01, request, run, run_telling};
use cheetah_acquire::acquire::Report;
use cheetah_acquire::order::{AcquireEvent, ErrorsMax, Opener, Request};
use cheetah_custody::{Known, SigningKey, verify_log};
use cheetah_device::Coverage;
use cheetah_device::coverage::State;
use cheetah_drive::recognise::{Cause, Comparison, Opening};
use cheetah_error::next::{Acquisition, Files};
use cheetah_image::HashChoice;
use cheetah_source::Evidence;
use futures::FutureExt as _;
use tempfile::tempdir;

/// The maximum number of bytes read for tables and superblocks, which may reach beyond the end, before the content is.
pub const LOOKS_BYTES_MAX: u64 = 128 << 10;

/// Checks the images in `dir` against the disk.
#[track_caller]
pub fn check(disk: &Disk, dir: &Path, report: &Report) {
    let (image, unreadable) = (disk.image(), disk.unreadable());
    assert!(std::fs::read(dir.join("x.raw")).unwrap() == image);
    let (e01, listed) = read_e01(&dir.join("x.E01"));
    assert!(e01 == image);
    assert_eq!(listed, unreadable);
    assert_eq!(report.unreadable.iter().map(|bad| bad.range()).collect::<Vec<_>>(), unreadable);
    assert_eq!(report.hashes.blake3.as_deref(), Some(blake3::hash(&image).to_hex().as_str()));
    assert_eq!(report.hashes.choice(), HashChoice::ALL);
    for name in ["x.raw.map", "x.E01.map"] {
        match std::fs::read_to_string(dir.join(name)) {
            Ok(map) => {
                let coverage: Coverage = map.parse().unwrap();
                assert_eq!(coverage.in_state(State::Unreadable).collect::<Vec<_>>(), unreadable);
                assert_eq!(coverage.bytes(State::Unread), 0);
            }
            Err(_) => assert!(unreadable.is_empty()),
        }
    }
    assert!(names(dir).iter().all(|name| !name.ends_with(".partial") && !name.ends_with(".acquire")));
}

#[test]
fn a_whole_disk_into_several_images_at_once() {
    let dir = tempdir().unwrap();
    let disk = Arc::new(Disk::noisy(5 * MIB + 512));
    let report = run(Request { verify: true, ..request(&disk, dir.path(), &["x.raw", "x.E01"]) }).unwrap();
    check(&disk, dir.path(), &report);
    assert!(disk.read_so_far() <= 5 * MIB + 512 + LOOKS_BYTES_MAX, "every byte is read once");
    assert!(report.is_whole());
    assert!(report.sinks.iter().all(|sink| sink.verified == Some(true) && sink.verified_hashes == report.hashes));
    let text = std::fs::read_to_string(dir.path().join("x.E01.report.txt")).unwrap();
    assert!(text.contains(report.hashes.md5.as_deref().unwrap()) && text.contains("/dev/sdx"), "{text}");
    assert_eq!(names(dir.path()), ["x.E01", "x.E01.report.txt", "x.raw", "x.raw.report.txt"]);
    // Existing files are replaced only on request.
    let again = run(request(&disk, dir.path(), &["x.raw", "x.E01"])).unwrap_err();
    assert!(again.is_misuse() && again.has_next(Files::Replace), "{again}");
    let forced = Request { force: true, ..request(&disk, dir.path(), &["x.raw", "x.E01"]) };
    check(&disk, dir.path(), &run(forced).unwrap());
}

#[test]
fn bad_sectors_stop_an_acquisition_unless_they_are_tolerated() {
    let dir = tempdir().unwrap();
    let mut disk = Disk::noisy(4 * MIB);
    disk.bad.extend([100, 101, 5000]);
    let disk = Arc::new(disk);
    let names_of = ["x.raw", "x.E01"];
    let first = run(Request { errors_max: ErrorsMax::Count(0), ..request(&disk, dir.path(), &names_of) }).unwrap_err();
    assert!(first.is_evidence() && first.has_next(Acquisition::SkipErrors), "{first}");
    assert!(first.to_string().contains("51200+1024"), "{first}");
    let second = run(Request { errors_max: ErrorsMax::Count(1), ..request(&disk, dir.path(), &names_of) }).unwrap_err();
    assert!(second.to_string().contains(&format!("{}+512", 5000 * SECTOR)), "{second}");
    let read = disk.read_so_far();
    let mut events = Vec::new();
    let request = Request { errors_max: ErrorsMax::Count(2), verify: true, ..request(&disk, dir.path(), &names_of) };
    let report = run_telling(request, |event| events.push(event)).unwrap();
    check(&disk, dir.path(), &report);
    assert!(!report.is_whole() && report.unreadable_bytes == 3 * SECTOR && report.interruptions == 2);
    assert!(report.sinks.iter().all(|sink| sink.verified == Some(true) && sink.map.is_some()), "{report}");
    let bad: Vec<_> = events.iter().filter(|event| matches!(event, AcquireEvent::Unreadable(_))).collect();
    assert_eq!(bad.len(), 1, "the first was dealt with before");
    assert!(disk.read_so_far() - read <= 4 * MIB, "durable data was not read again");
}

#[test]
fn a_source_behind_a_cut_link_is_awaited_and_recognised() {
    let dir = tempdir().unwrap();
    let disk = Arc::new(Disk::noisy(12 * MIB));
    let mut request = request(&disk, dir.path(), &["x.raw", "x.E01"]);
    request.source = opener_with_cuts(&disk, vec![3 * MIB, 5 * MIB]);
    request.retry_for = Duration::from_secs(30);
    let mut events = Vec::new();
    let report = run_telling(request, |event| events.push(event)).unwrap();
    check(&disk, dir.path(), &report);
    assert_eq!((report.reconnects, report.interruptions), (2, 2));
    let all = |opening: &Opening| {
        let compared = match opening.comparison {
            Comparison::Samples { differ_bytes_max: 0, compared_bytes, .. } => compared_bytes == opening.at,
            // The first cut may come before anything was acquired.
            Comparison::Nothing => opening.at == 0,
            _ => false,
        };
        opening.cause == Cause::Lost && compared
    };
    assert!(report.openings.iter().all(all) && report.notes.is_empty(), "{:?}", report.openings);
    assert_eq!(events.iter().filter(|event| matches!(event, AcquireEvent::Lost { .. })).count(), 2);
}

#[test]
fn everything_is_compared_on_request_where_a_sample_is_otherwise() {
    for compare_all in [false, true] {
        let dir = tempdir().unwrap();
        let disk = Arc::new(Disk::noisy(96 * MIB));
        let mut request = request(&disk, dir.path(), &["x.raw"]);
        request.source = opener_with_cuts(&disk, vec![90 * MIB]);
        request.retry_for = Duration::from_secs(30);
        request.compare_all = compare_all;
        let report = run(request).unwrap();
        let opening = report.openings.last().unwrap();
        let Comparison::Samples { compared_bytes, of_bytes, differ_bytes_max } = opening.comparison else {
            panic!("{opening:?}")
        };
        assert_eq!((compared_bytes == of_bytes, differ_bytes_max == 0), (compare_all, compare_all), "{opening:?}");
        assert_eq!(report.notes.is_empty(), compare_all, "{:?}", report.notes);
    }
}

#[test]
fn custody_logs_record_every_kind_of_event() {
    let dir = tempdir().unwrap();
    let key = SigningKey::load_or_make(&dir.path().join("key")).unwrap();
    let mut disk = Disk::noisy(12 * MIB);
    disk.bad.insert(3);
    let disk = Arc::new(disk);
    let wanted = Request { key: Some(key.clone()), verify: true, ..request(&disk, dir.path(), &["x.raw", "x.E01"]) };
    run(Request { source: opener_with_cuts(&disk, vec![6 * MIB]), ..wanted.clone() }).unwrap_err();
    let other = Arc::new(Disk::noisy(13 * MIB));
    run(Request { source: opener(&other), ..wanted.clone() }).unwrap_err();
    let report = run(wanted).unwrap();
    for (name, sink) in ["x.raw", "x.E01"].iter().zip(&report.sinks) {
        let path = dir.path().join(format!("{name}.custody"));
        assert_eq!(sink.custody.as_deref(), Some(&*path));
        assert!(verify_log(&path, &Known { keys: vec![key.public()], ..Known::default() }).unwrap().is_ok());
        let log = std::fs::read_to_string(&path).unwrap();
        for event in
            ["started", "error", "stopped", "source_changed", "resumed", "retry", "unreadable", "finished", "verified"]
        {
            assert!(log.contains(&format!("\"event\":\"{event}\"")), "no {event} in {log}");
        }
    }
}

#[test]
fn an_image_that_differs_when_read_back_is_not_recorded_with_the_hashes() {
    let dir = tempdir().unwrap();
    let key = SigningKey::load_or_make(&dir.path().join("key")).unwrap();
    let disk = Arc::new(Disk::noisy(3 * MIB));
    let (path, mut spoilt) = (dir.path().join("x.raw"), false);
    let wanted = Request { key: Some(key), verify: true, ..request(&disk, dir.path(), &["x.E01", "x.raw"]) };
    let report = run_telling(wanted, |event| {
        // While the one before it is read back.
        if matches!(event, AcquireEvent::Verifying { .. }) && !std::mem::replace(&mut spoilt, true) {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[MIB as usize] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    })
    .unwrap();
    assert_eq!(report.sinks.iter().map(|sink| sink.verified).collect::<Vec<_>>(), [Some(true), Some(false)]);
    assert_eq!(report.sinks[1].verified_hashes, Default::default());
    let log = std::fs::read_to_string(dir.path().join("x.raw.custody")).unwrap();
    let verified = log.lines().find(|line| line.contains("\"event\":\"verified\"")).unwrap();
    assert!(!verified.contains(report.hashes.md5.as_deref().unwrap()), "{verified}");
}

/// The source that `change` returns for the number of earlier openings; `None` never connects.
fn opener_changed(
    disk: &Arc<Disk>,
    cut: u64,
    change: impl Fn(usize, Evidence) -> Option<Evidence> + Send + Sync + 'static,
) -> Opener {
    let (inner, opened) = (opener_with_cuts(disk, vec![cut]), AtomicUsize::new(0));
    let change = Arc::new(change);
    Arc::new(move || {
        let (evidence, time, change) = (inner(), opened.fetch_add(1, Ordering::SeqCst), change.clone());
        async move {
            match change(time, evidence.await?) {
                Some(evidence) => Ok(evidence),
                None => std::future::pending().await,
            }
        }
        .boxed()
    })
}

#[test]
fn an_agent_that_never_calls_again_is_awaited_for_a_limited_time() {
    let dir = tempdir().unwrap();
    let disk = Arc::new(Disk::noisy(12 * MIB));
    let source = opener_changed(&disk, 6 * MIB, |time, evidence| (time == 0).then_some(evidence));
    let retry_for = Duration::from_millis(100);
    let error = run(Request { source, retry_for, ..request(&disk, dir.path(), &["x.raw"]) }).unwrap_err();
    assert!(error.exit_code() == 1 && error.has_next(Acquisition::Resume), "{error}");
}

#[test]
fn an_agent_with_another_source_is_refused_and_the_right_one_awaited() {
    let dir = tempdir().unwrap();
    let key = SigningKey::load_or_make(&dir.path().join("key")).unwrap();
    let (disk, stranger) = (Arc::new(Disk::noisy(12 * MIB)), Arc::new(Disk::noisy(2 * MIB)));
    let inbound = |strangers: std::ops::Range<usize>, cut| {
        let stranger = stranger.clone();
        opener_changed(&disk, cut, move |time, mut evidence| {
            evidence.inbound = true;
            if strangers.contains(&time) {
                evidence.source.device = stranger.clone();
                evidence.source.identity.size = 2 * MIB;
            }
            Some(evidence)
        })
    };
    let wanted = Request { key: Some(key), ..request(&disk, dir.path(), &["x.raw", "x.E01"]) };
    // No other source in time; then the right one after a foreign one, at first and after a cut.
    let retry_for = Duration::from_secs(1);
    run(Request { source: inbound(1..99, 4 * MIB), retry_for, ..wanted.clone() }).unwrap_err();
    let error = run(Request { source: inbound(0..99, u64::MAX), retry_for, ..wanted.clone() }).unwrap_err();
    assert!(error.exit_code() == 1 && error.has_next(Acquisition::GoOn), "{error}");
    let retry_for = Duration::from_secs(60);
    let report = run(Request { source: inbound(0..1, u64::MAX), retry_for, ..wanted }).unwrap();
    check(&disk, dir.path(), &report);
    let log = std::fs::read_to_string(dir.path().join("x.raw.custody")).unwrap();
    assert!(!log.contains("source_changed"), "{log}");
}

#[test]
fn write_protection_that_ended_is_not_claimed() {
    let dir = tempdir().unwrap();
    let key = SigningKey::load_or_make(&dir.path().join("key")).unwrap();
    let protected = |disk: &Arc<Disk>, protected: &'static [bool], cut| {
        opener_changed(disk, cut, move |time, mut evidence| {
            evidence.source.identity.write_protected = Some(protected[time]);
            Some(evidence)
        })
    };
    for name in ["x.raw", "x.E01"] {
        let disk = Arc::new(Disk::noisy(12 * MIB));
        let wanted = Request { key: Some(key.clone()), ..request(&disk, dir.path(), &[name]) };
        run(Request { source: protected(&disk, &[true], 6 * MIB), ..wanted.clone() }).unwrap_err();
        let second = run(Request { source: protected(&disk, &[false], u64::MAX), ..wanted.clone() });
        let log = std::fs::read_to_string(dir.path().join(format!("{name}.custody"))).unwrap();
        if name == "x.raw" {
            assert_eq!(second.unwrap().source.write_protected, Some(false));
            assert!(log.contains("it was write-protected in the beginning, and is not write-protected now"), "{log}");
        } else {
            // The image's own record cannot be revoked.
            assert!(second.unwrap_err().has_next(Acquisition::ProtectOrBeginAgain));
            assert!(run(Request { source: protected(&disk, &[true], u64::MAX), ..wanted }).unwrap().is_whole());
        }
    }
    // The change is recorded after a lost link, too.
    let disk = Arc::new(Disk::noisy(12 * MIB));
    let wanted = Request { key: Some(key), ..request(&disk, dir.path(), &["y.raw"]) };
    let retry_for = Duration::from_secs(60);
    let report = run(Request { source: protected(&disk, &[true, false], 6 * MIB), retry_for, ..wanted }).unwrap();
    assert_eq!(report.source.write_protected, Some(false));
    let log = std::fs::read_to_string(dir.path().join("y.raw.custody")).unwrap();
    let back = log.lines().find(|line| line.contains("\"event\":\"reconnected\"")).unwrap();
    assert!(back.contains("is not write-protected now"), "{back}");
}
