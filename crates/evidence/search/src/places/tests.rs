//! Places of hostile and of usual files.

use super::*;

const CLUSTER: u64 = 100;

fn file(path: &str, valid_bytes: u64) -> NewFile<'_> {
    NewFile { path, is_deleted: false, is_metadata: false, is_resident: false, is_mapped: true, valid_bytes }
}

fn run(file_offset: u64, offset: u64, len: u64) -> FileRun {
    FileRun { file_offset, range: ByteRange::new(offset, len) }
}

/// A volume of 10 clusters behind 1000 bytes of a source of 3000, of which the ones from 1800 on are free.
fn volume() -> PlacesBuilder {
    let mut builder = PlacesBuilder::new(3000, PlaceLimits::default());
    builder.volume(1, ByteRange::new(1000, 1050));
    builder.clusters(1, ByteRange::new(1100, 9 * CLUSTER));
    builder.free(1, ByteRange::new(1800, 200));
    builder.whole(1);
    builder
}

fn with(files: &[(NewFile<'_>, &[FileRun])]) -> Places {
    let mut builder = volume();
    for (file, runs) in files {
        builder.file(1, file).unwrap();
        runs.iter().for_each(|run| builder.run(*run));
    }
    builder.finish()
}

fn said(places: &Places, offset: u64) -> (Option<&str>, PlaceState, Option<u64>, u64) {
    let place = places.at(offset);
    (place.path, place.state, place.file_offset, place.others)
}

#[test]
fn bytes_of_no_file_are_free_metadata_slack_of_the_volume_or_outside() {
    let places = with(&[]);
    let state = |offset| said(&places, offset).1;
    assert_eq!(state(999), PlaceState::Outside);
    assert_eq!(state(1050), PlaceState::Metadata);
    assert_eq!(state(1799), PlaceState::Metadata);
    assert_eq!(state(1800), PlaceState::Unallocated);
    assert_eq!(state(1999), PlaceState::Unallocated);
    assert_eq!(state(2000), PlaceState::Slack);
    assert_eq!(state(2050), PlaceState::Outside);
    assert_eq!(places.at(1050).volume, Some(1));
    assert_eq!(places.at(999).volume, None);
}

#[test]
fn a_volume_without_a_listing_is_unknown() {
    let mut builder = PlacesBuilder::new(3000, PlaceLimits::default());
    builder.volume(0, ByteRange::new(0, 100));
    let places = builder.finish();
    assert_eq!((places.at(5).volume, places.at(5).state), (Some(0), PlaceState::Unknown));
}

#[test]
fn content_and_slack_have_the_offset_in_the_file() {
    let runs = [run(0, 1300, CLUSTER), run(100, 1200, CLUSTER)];
    let places = with(&[(file("/a", 150), &runs)]);
    assert_eq!(said(&places, 1310), (Some("/a"), PlaceState::Allocated, Some(10), 0));
    assert_eq!(said(&places, 1249), (Some("/a"), PlaceState::Allocated, Some(149), 0));
    assert_eq!(said(&places, 1250), (Some("/a"), PlaceState::Slack, Some(150), 0));
}

#[test]
fn of_several_files_that_hold_a_byte_the_best_is_named_and_the_others_counted() {
    let resident = NewFile { is_resident: true, ..file("/small", 10) };
    let gone = NewFile { is_deleted: true, ..file("/gone", 100) };
    let table = NewFile { is_metadata: true, ..file("/$MFT", 500) };
    let places = with(&[
        (gone, &[run(0, 1200, CLUSTER)]),
        (table, &[run(0, 1200, CLUSTER)]),
        (resident, &[run(0, 1210, 10)]),
        (file("/a", 5), &[run(0, 1250, 10)]),
    ]);
    assert_eq!(said(&places, 1212), (Some("/small"), PlaceState::Allocated, Some(2), 2));
    assert_eq!(said(&places, 1205), (Some("/$MFT"), PlaceState::Metadata, Some(5), 1));
    assert_eq!(said(&places, 1252), (Some("/a"), PlaceState::Allocated, Some(2), 2));
    assert_eq!(said(&places, 1257), (Some("/$MFT"), PlaceState::Metadata, Some(57), 2));
}

#[test]
fn a_file_whose_file_system_claims_another_volume_comes_after_those_of_that_volume() {
    let mut builder = volume();
    builder.volume(2, ByteRange::new(2050, 500));
    builder.file(1, &file("/claims", 1000)).unwrap();
    builder.run(run(0, 2100, 300));
    builder.file(2, &file("/own", 150)).unwrap();
    builder.run(run(0, 2100, 200));
    let places = builder.finish();
    assert_eq!(said(&places, 2110), (Some("/own"), PlaceState::Allocated, Some(10), 1));
    assert_eq!(said(&places, 2260), (Some("/own"), PlaceState::Slack, Some(160), 1));
    assert_eq!(said(&places, 2310), (Some("/claims"), PlaceState::Allocated, Some(210), 0), "no other file holds it");
}

#[test]
fn a_deleted_file_has_its_free_clusters_only() {
    let gone = NewFile { is_deleted: true, ..file("/gone", 150) };
    let places = with(&[(gone, &[run(0, 1800, CLUSTER), run(100, 1300, CLUSTER)])]);
    assert_eq!(said(&places, 1805), (Some("/gone"), PlaceState::Deleted, Some(5), 0));
    assert_eq!(said(&places, 1305), (None, PlaceState::Metadata, None, 1));
    // Behind its content, the cluster is nobody's.
    assert_eq!(said(&places, 1360), (None, PlaceState::Metadata, None, 0));
    let overlap = crate::seam::Overlap { before: 8, after: 8 };
    assert!(places.joints_of(0, overlap).is_none(), "its second cluster is in use again");
}

#[test]
fn a_deleted_file_has_joints_only_between_clusters_that_are_free_at_their_edges() {
    let gone = NewFile { is_deleted: true, ..file("/gone", 1000) };
    let joints = |runs: &[FileRun]| {
        let mut builder = volume();
        builder.free(1, ByteRange::new(1200, CLUSTER));
        builder.file(1, &gone).unwrap();
        runs.iter().for_each(|run| builder.run(*run));
        let overlap = crate::seam::Overlap { before: 8, after: 8 };
        builder.finish().joints_of(0, overlap).map_or(0, |joints| joints.joints())
    };
    assert_eq!(joints(&[run(0, 1200, 100), run(100, 1800, 100)]), 1);
    // The first run begins in a free cluster, and ends in one that is in use.
    assert_eq!(joints(&[run(0, 1200, 200), run(200, 1800, 100)]), 0);
    // It begins in one that is in use, and ends in a free one.
    assert_eq!(joints(&[run(0, 1700, 200), run(200, 1200, 100)]), 1);
    // Between its free edges lie clusters that are in use.
    assert_eq!(joints(&[run(0, 1950, 50), run(50, 1250, 600), run(650, 1900, 50)]), 2);
    assert_eq!(joints(&[run(0, 1950, 150), run(150, 1200, 50)]), 0, "beyond the last cluster");
}

#[test]
fn compressed_content_has_no_offset_and_no_joints() {
    let packed = NewFile { is_mapped: false, ..file("/packed", 1000) };
    let places = with(&[(packed, &[run(0, 1300, CLUSTER), run(1600, 1200, CLUSTER)])]);
    assert_eq!(said(&places, 1210), (Some("/packed"), PlaceState::Allocated, None, 0));
    assert!(places.joints_of(0, crate::seam::Overlap { before: 8, after: 8 }).is_none());
}

#[test]
fn names_of_one_file_count_as_others() {
    let mut builder = volume();
    let number = builder.file(1, &file("/a", 100)).unwrap();
    builder.run(run(0, 1200, CLUSTER));
    builder.run(run(100, 1200, CLUSTER));
    builder.name(number);
    builder.name(number + 7);
    let places = builder.finish();
    assert_eq!(said(&places, 1230), (Some("/a"), PlaceState::Allocated, Some(30), 1));
}

#[test]
fn what_has_no_room_is_counted_and_makes_the_rest_unknown() {
    let limits = PlaceLimits { files_max: 1, runs_max: 1, free_ranges_max: 1, ..PlaceLimits::default() };
    let mut builder = PlacesBuilder::new(3000, limits);
    builder.volume(1, ByteRange::new(1000, 1000));
    builder.clusters(1, ByteRange::new(1000, 1000));
    builder.whole(1);
    assert!(builder.file(1, &file("/a", 1000)).is_some());
    builder.run(run(0, 1200, CLUSTER));
    builder.run(run(100, 1300, CLUSTER));
    assert!(builder.file(1, &file("/b", 1000)).is_none());
    builder.run(run(0, 1400, CLUSTER));
    builder.free(1, ByteRange::new(1500, 100));
    builder.free(1, ByteRange::new(1700, 100));
    builder.free(1, ByteRange::new(1900, 100));
    let places = builder.finish();
    assert_eq!(places.left_out(), LeftOut { volumes: 0, files: 1, runs: 1, free: 1 });
    assert_eq!(said(&places, 1500).1, PlaceState::Unknown);
    assert_eq!(said(&places, 1250).0, Some("/a"));
}

#[test]
fn runs_beyond_the_source_and_offsets_that_overflow_are_cut_or_left_out() {
    let runs = [run(u64::MAX - 10, 1200, CLUSTER), run(0, 2990, CLUSTER), run(0, u64::MAX, CLUSTER), run(7, 5, 0)];
    let places = with(&[(file("/a", u64::MAX), &runs)]);
    assert_eq!(places.runs(), 1);
    assert_eq!(said(&places, 2995).0, Some("/a"));
}
