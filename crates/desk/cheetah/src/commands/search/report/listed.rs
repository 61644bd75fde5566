//! The files in which hits lie: which were listed, and at which of their joints hits may be missing.

use maud::{Markup, html};

use super::common::{count, numbers};
use super::evidence::evidence;
use crate::answers::search::{Files, ListedVolume};

/// Volumes that are listed with what is missing of them; `search.json` has them all.
const VOLUMES_SHOWN_MAX: usize = 20;

/// Whether all files were listed that can be, and all fragments of them were searched as one.
pub fn is_whole(files: &Files<'_>) -> bool {
    let left_out = [files.left_out_files, files.left_out_free, files.left_out_runs, files.left_out_volumes];
    let joints = files.across.as_ref().map_or(0, |across| across.left_out + across.unreadable);
    let is_listed = |volume: &ListedVolume<'_>| matches!(volume.listing, "whole" | "unsupported");
    let is_found = files.lister.is_none() && files.problems.is_empty();
    left_out == [0; 4] && joints == 0 && is_found && files.volumes.iter().all(is_listed)
}

/// What was listed, and what was not.
pub fn listed(files: &Files<'_>) -> Markup {
    let mut rows = vec![
        ("Files and other streams", files.files as u64),
        ("Files without room: hits in them have no path", files.left_out_files),
        ("Runs of files without room: hits in them have no path", files.left_out_runs),
        ("Volumes without room", files.left_out_volumes),
        ("Volumes with too many free ranges: the state of hits there is unknown", files.left_out_free),
    ];
    match &files.across {
        Some(across) => rows.extend([
            ("Hits across fragments", across.hits),
            ("Joints of fragments that were searched", across.searched),
            ("Joints beside what cannot be read: hits may be missing", across.unreadable),
            ("Joints that were not searched: too many", across.left_out),
        ]),
        None => rows.push(("Joints of fragments that were searched: the search did not come to them", 0)),
    }
    html! {
        (numbers("Files in which hits lie", &rows))
        @if files.lister.is_some() {
            p { strong { "The lister of files ended before it had found all volumes." } }
        }
        @if !files.problems.is_empty() {
            ul class="gaps" { @for problem in files.problems { li { "Volumes may be missing: " (evidence(problem)) } } }
        }
        (partly(&files.volumes))
    }
}

/// The volumes that were not listed, or not as a whole.
pub fn partly(volumes: &[ListedVolume<'_>]) -> Markup {
    let partly: Vec<_> = volumes.iter().filter(|volume| volume.listing != "whole").collect();
    let more = partly.len().saturating_sub(VOLUMES_SHOWN_MAX);
    html! {
        @if !partly.is_empty() {
            ul class="gaps" {
                @for volume in partly.iter().take(VOLUMES_SHOWN_MAX) { li { (missing(volume)) } }
                @if more > 0 { li { "and " (count(more as u64)) " more volumes; search.json lists them all" } }
            }
        }
    }
}

/// What is missing of a volume.
fn missing(volume: &ListedVolume<'_>) -> Markup {
    let why = match volume.listing {
        "unsupported" => "no file system whose files can be listed",
        "not-reached" => "its files were not listed, because the lister ended before",
        "partly" => "files may be missing",
        _ => "files may be missing, because the lister ended",
    };
    html! {
        "Volume " (volume.number) " (" (evidence(volume.description)) "): " (why)
        @if let Some(problem) = volume.problems.first() { ": " (evidence(problem)) }
    }
}
