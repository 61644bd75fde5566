//! Acquisitions that are interrupted, and resumed: killed, cut off, out of space, or with other files in the place of theirs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::acquire::{LOOKS_BYTES_MAX, check};
use crate::common::source::{Disk, MIB, SECTOR, opener_with_cuts};
use crate::common::{names, request, run, run_telling, run_until_it_hangs};
use cheetah_acquire::acquire::acquire;
use cheetah_acquire::order::{AcquireEvent, Request};
use cheetah_custody::{Known, SigningKey, verify_log};
use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage};
use cheetah_error::next::{Acquisition, Files};
use cheetah_error::{Error, Kind, Next};
use cheetah_image::{HashChoice, HashKind};
use proptest::prelude::*;
use tempfile::tempdir;

#[test]
fn an_acquisition_killed_anywhere_resumes_and_the_e01_is_the_same_file() {
    let undisturbed = tempdir().unwrap();
    let mut disk = Disk::noisy(40 * MIB + 1024);
    disk.bad.extend([7, 9000, 9001, 40_000]);
    let disk = Arc::new(disk);
    run(request(&disk, undisturbed.path(), &["x.raw", "x.E01"])).unwrap();
    let dir = tempdir().unwrap();
    let size = disk.bytes.len() as u64;
    let mut kills = 0;
    disk.read_bytes.store(0, Ordering::SeqCst);
    let report = loop {
        // Further each time, so that the acquisition ends although the acquired data is compared with the disk each
        // time; at no particular place.
        let hang_at = disk.read_so_far() + 13 * MIB + kills * 9_777_777;
        disk.hang_at.store(hang_at, Ordering::SeqCst);
        match run_until_it_hangs(&disk, request(&disk, dir.path(), &["x.raw", "x.E01"])) {
            Some(done) => break done.unwrap(),
            None => kills += 1,
        }
        assert!(names(dir.path()).iter().all(|name| name != "x.raw" && name != "x.E01"), "half an image has a name");
        assert!(kills < 20);
    };
    eprintln!("{kills} kills, {} bytes read again", disk.read_so_far() - size);
    assert!(kills >= 3, "{kills}");
    assert_eq!(report.interruptions, kills);
    check(&disk, dir.path(), &report);
    for name in ["x.raw", "x.E01"] {
        let read = |dir: &Path| std::fs::read(dir.join(name)).unwrap();
        assert!(read(dir.path()) == read(undisturbed.path()), "{name} is another file");
    }
    // The chunks in flight, those not yet durable, and those compared to recognise the source: all of them on so small
    // a disk.
    let again = disk.read_so_far() - size;
    assert!(again <= kills * (12 + 2 * 2 + 41) * MIB, "{again} bytes were read again after {kills} kills");
}

#[test]
fn without_a_retry_time_a_cut_ends_an_acquisition_and_the_same_command_resumes_it() {
    let dir = tempdir().unwrap();
    let disk = Arc::new(Disk::noisy(12 * MIB));
    let cut = opener_with_cuts(&disk, vec![6 * MIB]);
    let cut = Request { source: cut, ..request(&disk, dir.path(), &["x.raw", "x.E01"]) };
    let error = run(cut.clone()).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(error.has_next(Acquisition::Resume), "{error}");
    let map: Coverage = std::fs::read_to_string(dir.path().join("x.E01.map")).unwrap().parse().unwrap();
    // The order in which chunks arrive determines which were durable by then.
    assert!(map.bytes(State::Unread) >= MIB && map.bytes(State::Unreadable) == 0, "{map}");
    // A resumption with other options is refused.
    let other = Request { hashes: HashChoice::NONE.with(HashKind::Md5), ..cut.clone() };
    let refused = run(other).unwrap_err();
    assert!(refused.is_misuse() && refused.has_next(Acquisition::RepeatOrBeginAgain), "{refused}");
    let report = run(cut).unwrap();
    check(&disk, dir.path(), &report);
    assert_eq!(report.interruptions, 1);
}

/// Acquires a part, up to a cut after 6 MiB, and returns the first durable range. The order of chunks before the cut
/// varies; if none is durable, continues to the next cut.
fn part(disk: &Arc<Disk>, dir: &Path) -> ByteRange {
    loop {
        let cut = opener_with_cuts(disk, vec![6 * MIB; 100]);
        run(Request { source: cut, ..request(disk, dir, &["x.raw", "x.E01"]) }).unwrap_err();
        let map: Coverage = std::fs::read_to_string(dir.join("x.raw.map")).unwrap().parse().unwrap();
        if let Some(safe) = map.in_state(State::Read).next() {
            return safe;
        }
    }
}

#[test]
fn another_source_in_place_of_the_first_is_refused() {
    let other_serial = Disk { serial: Some("S2".into()), ..Disk::noisy(12 * MIB) };
    let truncated = Disk::noisy(12 * MIB - 512);
    let mut content = Disk::noisy(12 * MIB);
    content.bytes.chunks_mut(MIB as usize).for_each(|chunk| chunk[4711] ^= 1);
    for (other, step) in [
        (other_serial, Acquisition::ConnectOrVouch),
        (truncated, Acquisition::ConnectOrBeginAgain),
        (content, Acquisition::ConnectOrBeginAgain),
    ] {
        let dir = tempdir().unwrap();
        part(&Arc::new(Disk::noisy(12 * MIB)), dir.path());
        let other = Arc::new(other);
        let changed = run(request(&other, dir.path(), &["x.raw", "x.E01"])).unwrap_err();
        assert!(changed.is_evidence() && changed.has_next(step), "{changed}");
        // With `restart`, the other source is acquired.
        let restarted = Request { restart: true, ..request(&other, dir.path(), &["x.raw", "x.E01"]) };
        check(&other, dir.path(), &run(restarted).unwrap());
    }
}

#[test]
fn a_missing_or_changed_partial_image_is_refused() {
    let disk = Arc::new(Disk::noisy(12 * MIB));
    let dir = tempdir().unwrap();
    let safe = part(&disk, dir.path());
    let partial = dir.path().join("x.raw.partial");
    let mut bytes = std::fs::read(&partial).unwrap();
    bytes[safe.offset as usize + 1_000_000] ^= 1;
    std::fs::write(&partial, &bytes).unwrap();
    let error = run(request(&disk, dir.path(), &["x.raw", "x.E01"])).unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().contains(&format!("{}+1048576", safe.offset)), "{error}");
    std::fs::remove_file(&partial).unwrap();
    let error = run(request(&disk, dir.path(), &["x.raw", "x.E01"])).unwrap_err();
    assert!(error.is_evidence() && error.has_next(Acquisition::PutBackOrBeginAgain), "{error}");
    // Without its journal, its origin is unknown.
    std::fs::write(&partial, b"").unwrap();
    std::fs::remove_file(dir.path().join("x.raw.acquire")).unwrap();
    let error = run(request(&disk, dir.path(), &["x.raw", "x.E01"])).unwrap_err();
    assert!(
        error.is_misuse() && matches!(error.steps(), [Next::Acquisition(Acquisition::RepeatOrAcquireAnew { .. })]),
        "{error}"
    );
}

#[test]
fn an_acquisition_killed_before_its_journal_is_removed_completes_on_resumption() {
    let disk = Arc::new(Disk::noisy(5 * MIB));
    let dir = tempdir().unwrap();
    // A cut after everything is durable: the journal is as it is just before the images get their names.
    let journal = dir.path().join("x.raw.acquire");
    let mut saved = None;
    let request = || request(&disk, dir.path(), &["x.raw", "x.E01"]);
    run_telling(request(), |event| {
        if matches!(event, AcquireEvent::Completing { .. }) {
            saved = Some(std::fs::read(&journal).unwrap());
        }
    })
    .unwrap();
    std::fs::write(&journal, saved.unwrap()).unwrap();
    let read = disk.read_so_far();
    let report = run(request()).unwrap();
    check(&disk, dir.path(), &report);
    assert!(disk.read_so_far() - read <= 5 * MIB + LOOKS_BYTES_MAX, "acquired data is compared once");
}

#[test]
fn restart_does_not_discard_an_acquisition_in_progress() {
    let dir = tempdir().unwrap();
    let (slow, disk) = (Arc::new(Disk::noisy(12 * MIB)), Arc::new(Disk::noisy(5 * MIB)));
    slow.hang_at.store(6 * MIB, Ordering::SeqCst);
    let under_way = request(&slow, dir.path(), &["x.raw", "x.E01"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let acquisition = tokio::spawn(acquire(under_way, std::future::pending(), |_| {}));
        slow.hanging.notified().await;
        let before = names(dir.path());
        // The journal is beside the first destination.
        for mine in [vec!["x.raw"], vec!["y.raw", "x.E01"]] {
            let again = Request { restart: true, ..request(&disk, dir.path(), &mine) };
            let error = acquire(again, std::future::pending(), |_| {}).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Failed, "{error}");
            assert_eq!(names(dir.path()), before);
        }
        acquisition.abort();
    });
    drop(runtime);
    let again = Request { restart: true, ..request(&disk, dir.path(), &["x.raw", "x.E01"]) };
    check(&disk, dir.path(), &run(again).unwrap());
}

#[test]
fn a_full_disk_is_reported_and_the_acquisition_can_be_resumed() {
    // A file system that is always full, also for root: /dev/full under another name.
    let dir = tempdir().unwrap();
    let disk = Arc::new(Disk::noisy(5 * MIB));
    let limited = dir.path().join("limited");
    std::fs::create_dir(&limited).unwrap();
    if !rustix::process::geteuid().is_root() || !mount_tmpfs(&limited, "size=3m") {
        cheetah_testing::skip("needs root and tmpfs");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let error = run(request(&disk, &limited, &["x.raw"])).unwrap_err();
        assert!(error.exit_code() == 1 && error.to_string().contains("x.raw.partial"), "{error}");
        assert!(error.has_next(Acquisition::FreeSpaceAndResume), "{error}");
        assert!(mount_tmpfs(&limited, "remount,size=30m"));
        let report = run(request(&disk, &limited, &["x.raw"])).unwrap();
        assert!(std::fs::read(limited.join("x.raw")).unwrap() == disk.bytes && report.is_whole());
    });
    std::process::Command::new("umount").arg(&limited).status().unwrap();
    result.unwrap();
}

#[test]
fn a_forged_journal_and_partial_image_are_not_resumed() {
    let home = tempdir().unwrap();
    let key = SigningKey::load_or_make(&home.path().join("key")).unwrap();
    let disk = Arc::new(Disk::noisy(12 * MIB));
    let wanted_in = |dir: &Path, cuts| Request {
        key: Some(key.clone()),
        source: opener_with_cuts(&disk, cuts),
        ..request(&disk, dir, &["x.raw"])
    };
    // If nothing was stored before the cut, the source need not be recognised, and a run goes on to its end.
    let stored_in_part = || {
        let dir = tempdir().unwrap();
        // The link is cut at the first opening only.
        disk.opened.store(0, Ordering::SeqCst);
        let _ = run(wanted_in(dir.path(), vec![6 * MIB]));
        let journal = std::fs::read_to_string(dir.path().join("x.raw.acquire"));
        journal.is_ok_and(|text| text.contains("{\"checkpoint\"")).then_some(dir)
    };
    let dir = (0..100).find_map(|_| stored_in_part()).expect("a run that was stored in part");
    let wanted = |cuts| wanted_in(dir.path(), cuts);
    let journal = dir.path().join("x.raw.acquire");
    // A byte of the image is altered, and the journal says what the image holds now, with a check that fits.
    let partial = dir.path().join("x.raw.partial");
    let (image, honest) = (std::fs::read(&partial).unwrap(), std::fs::read_to_string(&journal).unwrap());
    let mut forged = image.clone();
    forged[100] ^= 1;
    let digest = |image: &[u8]| *blake3::hash(&image[..MIB as usize]).as_bytes();
    let engine = base64::engine::general_purpose::STANDARD_NO_PAD;
    // Of whole groups of digits only: 30 of the 32 bytes.
    let digits = |image: &[u8]| base64::Engine::encode(&engine, &digest(image)[..30]);
    let altered: String = honest
        .lines()
        .map(|line| {
            let record = line[17..].replace(&digits(&image), &digits(&forged));
            format!("{} {record}\n", &blake3::hash(record.as_bytes()).to_hex()[..16])
        })
        .collect();
    assert_ne!(altered, honest);
    std::fs::write(&partial, &forged).unwrap();
    std::fs::write(&journal, altered).unwrap();
    let error = run(wanted(Vec::new())).unwrap_err();
    assert!(error.is_evidence() && error.has_next(Acquisition::DistrustJournal), "{error}");
    assert!(std::fs::read(&partial).unwrap() == forged, "nothing was changed");
    let log = dir.path().join("x.raw.custody");
    assert!(std::fs::read_to_string(&log).unwrap().contains("is not the one that the custody log vouches for"));
    // Without the log, nothing vouches for the journal; with it, the honest one is resumed.
    std::fs::write(&partial, &image).unwrap();
    std::fs::write(&journal, honest).unwrap();
    std::fs::rename(&log, dir.path().join("aside")).unwrap();
    assert_eq!(run(wanted(Vec::new())).unwrap_err().exit_code(), 3);
    std::fs::rename(dir.path().join("aside"), &log).unwrap();
    let report = run(wanted(Vec::new())).unwrap();
    assert!(report.is_whole() && std::fs::read(dir.path().join("x.raw")).unwrap() == disk.bytes);
    let log = verify_log(&log, &Known { keys: vec![key.public()], ..Known::default() }).unwrap();
    assert!(log.is_ok() && log.events["checkpoint"] > 1, "{:?}", log.problems());
}

#[test]
fn a_file_with_the_name_of_a_partial_image_is_left_alone() {
    let disk = Arc::new(Disk::noisy(12 * MIB));
    let (raw, e01) = ("x.raw.partial", "x.E01.partial");
    let foreign: Vec<u8> = (0..20 * MIB as u32).map(|at| (at % 251) as u8).collect();
    // The last one begins as the image does.
    let longer = [&disk.bytes[..], b"and notes"].concat();
    for (name, content) in [(raw, &foreign), (e01, &foreign), (raw, &longer)] {
        for linked in [false, true] {
            let dir = tempdir().unwrap();
            part(&disk, dir.path());
            let (partial, aside, precious) =
                (dir.path().join(name), dir.path().join("aside"), dir.path().join("precious"));
            std::fs::rename(&partial, &aside).unwrap();
            std::fs::write(&precious, content).unwrap();
            if linked {
                std::fs::hard_link(&precious, &partial).unwrap()
            } else {
                std::fs::copy(&precious, &partial).map(drop).unwrap()
            }
            let error = run(request(&disk, dir.path(), &["x.raw", "x.E01"])).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            assert!(std::fs::read(&partial).unwrap() == *content && std::fs::read(&precious).unwrap() == *content);
            std::fs::rename(&aside, &partial).unwrap();
            check(&disk, dir.path(), &run(request(&disk, dir.path(), &["x.raw", "x.E01"])).unwrap());
        }
    }
}

#[test]
fn a_hard_link_of_a_partial_image_is_not_cut() {
    for name in ["x.raw.partial", "x.E01.partial"] {
        let disk = Arc::new(Disk::noisy(12 * MIB));
        let dir = tempdir().unwrap();
        part(&disk, dir.path());
        let copy = dir.path().join("copy");
        std::fs::hard_link(dir.path().join(name), &copy).unwrap();
        let before = std::fs::read(&copy).unwrap();
        let error = run(request(&disk, dir.path(), &["x.raw", "x.E01"])).unwrap_err();
        let left_alone = [Next::from(Acquisition::MoveAwayOrBeginAgain), Files::MoveAway.into()];
        assert!(error.is_misuse() && error.steps().iter().any(|step| left_alone.contains(step)), "{error}");
        assert!(std::fs::read(&copy).unwrap() == before, "{name}");
        std::fs::remove_file(&copy).unwrap();
        check(&disk, dir.path(), &run(request(&disk, dir.path(), &["x.raw", "x.E01"])).unwrap());
    }
}

#[test]
fn a_partial_image_that_was_moved_to_another_file_is_resumed() {
    let disk = Arc::new(Disk::noisy(12 * MIB));
    let dir = tempdir().unwrap();
    part(&disk, dir.path());
    for name in ["x.raw.partial", "x.E01.partial"] {
        std::fs::copy(dir.path().join(name), dir.path().join("copy")).unwrap();
        std::fs::rename(dir.path().join("copy"), dir.path().join(name)).unwrap();
    }
    check(&disk, dir.path(), &run(request(&disk, dir.path(), &["x.raw", "x.E01"])).unwrap());
}

#[test]
fn a_disk_that_is_full_from_the_beginning_gets_no_empty_files() {
    let (dir, disk) = (tempdir().unwrap(), Arc::new(Disk::noisy(5 * MIB)));
    let limited = dir.path().join("limited");
    std::fs::create_dir(&limited).unwrap();
    if !rustix::process::geteuid().is_root() || !mount_tmpfs(&limited, "size=64k") {
        cheetah_testing::skip("needs root and tmpfs");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let key = SigningKey::load_or_make(&dir.path().join("key")).unwrap();
        // No block is left; then one, for the journal; then a few, for the log.
        for (free, name) in
            [0, 4096, 8192, 12288, 16384].into_iter().flat_map(|free| [(free, "x.raw"), (free, "x.E01")])
        {
            assert!(mount_tmpfs(&limited, "remount,size=64k"));
            std::fs::write(limited.join("ballast"), vec![1; (64 << 10) - free]).unwrap();
            let wanted = || Request { key: Some(key.clone()), ..request(&disk, &limited, &[name]) };
            let error = run(wanted()).unwrap_err();
            assert_eq!(error.exit_code(), 1, "{error}");
            let is_empty = |name: &String| limited.join(name).metadata().unwrap().len() == 0;
            let empty: Vec<_> = names(&limited).into_iter().filter(is_empty).collect();
            assert!(empty.is_empty(), "{free} {name}: {empty:?}");
            // The same command goes on when there is space.
            assert!(mount_tmpfs(&limited, "remount,size=30m"));
            assert!(run(wanted()).unwrap().is_whole());
            for left in names(&limited) {
                std::fs::remove_file(limited.join(left)).unwrap();
            }
        }
    });
    std::process::Command::new("umount").arg(&limited).status().unwrap();
    result.unwrap();
}

fn mount_tmpfs(dir: &Path, options: &str) -> bool {
    let mount = std::process::Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir).status();
    mount.is_ok_and(|status| status.success())
}

/// Whether a source that was lost ended an acquisition, which can go on.
fn is_lost(error: &Error) -> bool {
    error.has_next(Acquisition::Resume) || error.has_next(Acquisition::GoOn)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn after_any_failures_the_images_equal_those_of_an_undisturbed_run(
        // Large enough to be partly readable: a source without any readable range counts as lost.
        size in MIB / 8..10 * MIB,
        bad in prop::collection::vec((0u64..20_480, 1u64..20), 0..5),
        cuts in prop::collection::vec(0u64..6 * MIB, 0..3),
        kills in prop::collection::vec(0u64..12 * MIB, 0..4),
    ) {
        let dir = tempdir().unwrap();
        let mut disk = Disk::noisy(size);
        let sectors = size.div_ceil(SECTOR);
        disk.bad = bad.iter().flat_map(|(from, len)| *from..from + len).map(|sector| sector % sectors).collect();
        let disk = Arc::new(disk);
        let wanted = Request {
            source: opener_with_cuts(&disk, cuts.clone()),
            ..request(&disk, dir.path(), &["x.raw", "x.E01"])
        };
        let mut done = None;
        for kill in kills {
            disk.hang_at.store(disk.read_so_far() + kill, Ordering::SeqCst);
            match run_until_it_hangs(&disk, wanted.clone()) {
                Some(Ok(report)) => {
                    done = Some(report);
                    break;
                }
                Some(Err(error)) => prop_assert!(is_lost(&error), "{}", error),
                None => {}
            }
        }
        disk.hang_at.store(u64::MAX, Ordering::SeqCst);
        let mut tries = 0;
        let report = loop {
            if let Some(report) = done.take() {
                break report;
            }
            tries += 1;
            prop_assert!(tries <= cuts.len() + 2);
            match run(wanted.clone()) {
                Ok(report) => break report,
                Err(error) => prop_assert!(is_lost(&error), "{}", error),
            }
        };
        check(&disk, dir.path(), &report);
        let whole: Vec<ByteRange> = disk.unreadable();
        prop_assert_eq!(report.is_whole(), whole.is_empty());
    }
}
