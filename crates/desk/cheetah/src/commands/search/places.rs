//! How the files in which hits lie are shown.

use cheetah_device::ByteRange;
use cheetah_device::visible::OneLine;
use cheetah_search::Place;

use super::across::Counts;
use super::lister::{Death, Listed, ListedVolume, Listing};
use crate::answers::search as answers;
use crate::failure::{Failure, Result};

/// Volumes that are named with what is missing of them; `--json` has them all.
pub const VOLUMES_SHOWN_MAX: usize = 20;

/// The place of a hit, for programs.
pub fn answer(place: &Place<'_>, fragments: &[ByteRange]) -> answers::Place {
    let range = |range: &ByteRange| answers::Range { len: range.len, offset: range.offset };
    answers::Place {
        file_offset: place.file_offset,
        fragments: fragments.iter().map(range).collect(),
        others: place.others,
        path: place.path.map(str::to_owned),
        state: place.state.name(),
        volume: place.volume,
    }
}

/// The place of a hit, behind its context.
pub fn clause(place: &answers::Place) -> String {
    let mut clause = format!("  [{}", place.state);
    if let Some(volume) = place.volume {
        clause += &format!(", volume {volume}");
    }
    if let Some(path) = &place.path {
        clause += &format!(", {}", OneLine(path));
    }
    if let Some(offset) = place.file_offset {
        clause += &format!(" at {offset}");
    }
    match place.fragments.len() {
        0 => {}
        fragments => clause += &format!(", over {fragments} fragments"),
    }
    clause + "]"
}

/// The files in which hits lie.
pub struct FilesShown<'a> {
    /// The files.
    pub listed: &'a Listed,
    /// What became of the joints of fragmented ones, if the search came to them.
    pub across: Option<Counts>,
}

impl FilesShown<'_> {
    /// The answer for programs.
    pub fn answer(&self) -> answers::Files<'_> {
        let (places, left_out) = (&self.listed.places, self.listed.places.left_out());
        answers::Files {
            across: self.across.map(|counts| answers::Across {
                hits: counts.hits,
                left_out: counts.left_out,
                searched: counts.searched,
                unreadable: counts.unreadable,
            }),
            files: places.files(),
            left_out_files: left_out.files,
            left_out_free: left_out.free,
            left_out_runs: left_out.runs,
            left_out_volumes: left_out.volumes,
            lister: self.listed.death.map(|death| of_death(death).0),
            problems: &self.listed.problems,
            runs: places.runs(),
            volumes: self.listed.volumes.iter().map(volume).collect(),
        }
    }

    /// The answer for people.
    pub fn lines(&self) -> Vec<String> {
        let (files, volumes) = (self.listed.places.files(), self.listed.volumes.len());
        let mut lines =
            vec![format!("  files: {files} in {volumes} {}", if volumes == 1 { "volume" } else { "volumes" })];
        lines.extend(self.across.map(across_line));
        let said: Vec<_> = self.listed.volumes.iter().filter_map(volume_line).collect();
        let rest = said.len().saturating_sub(VOLUMES_SHOWN_MAX);
        lines.extend(said.into_iter().take(VOLUMES_SHOWN_MAX));
        if rest > 0 {
            lines.push(format!("  and {rest} volumes more; --json lists them all"));
        }
        lines.extend(self.listed.death.map(|death| format!("  volumes were not found: {}", in_words(death))));
        lines.extend(problems_line(&self.listed.problems).map(|why| format!("  volumes may be missing: {why}")));
        let left_out = self.listed.places.left_out();
        for (number, what) in [
            (left_out.files, "files had no room: hits in them have no path"),
            (left_out.runs, "runs of files had no room: hits in them have no path"),
            (left_out.volumes, "volumes had no room"),
            (left_out.free, "volumes have too many free ranges: the state of hits outside of their files is unknown"),
        ] {
            if number > 0 {
                lines.push(format!("  {number} {what}"));
            }
        }
        lines
    }

    /// Fails if files, or hits across their fragments, may be missing.
    pub fn complete(&self, source: &str) -> Result<()> {
        let counts = self.across.unwrap_or_default();
        let joints = counts.left_out + counts.unreadable;
        match (self.listed.is_whole(), joints) {
            (true, 0) => Ok(()),
            (false, _) => Err(Failure::evidence(format!("{source}: not all files were listed; see above"))),
            (true, _) => Err(Failure::evidence(format!(
                "{source}: at {joints} places, fragments of files were not searched as one; see above"
            ))),
        }
    }
}

/// A volume, for programs.
pub fn volume(volume: &ListedVolume) -> answers::ListedVolume<'_> {
    let (listing, status, problems): (_, _, &[String]) = match &volume.listing {
        Listing::Whole => ("whole", None, &[]),
        Listing::Partly(problems) => ("partly", None, problems),
        Listing::Unsupported => ("unsupported", None, &[]),
        Listing::NotReached => ("not-reached", None, &[]),
        Listing::Died(death) => {
            let (name, status) = of_death(*death);
            (name, status, &[])
        }
    };
    answers::ListedVolume {
        description: &volume.description,
        file_system: &volume.file_system,
        len: volume.range.len,
        listing,
        number: volume.number,
        offset: volume.range.offset,
        problems,
        status,
    }
}

/// The name of how the lister ended, and its exit code or signal.
pub const fn of_death(death: Death) -> (&'static str, Option<i32>) {
    match death {
        Death::Killed { signal } => ("killed", Some(signal)),
        Death::Exited { code } => ("exited", Some(code)),
        Death::Malformed => ("malformed", None),
        Death::Silent => ("silent", None),
    }
}

/// How the lister ended.
pub fn in_words(death: Death) -> String {
    match death {
        Death::Killed { signal: 9 } => {
            "the lister was killed by signal 9, perhaps because the machine has no more memory".to_owned()
        }
        Death::Killed { signal } => format!("the lister was killed by signal {signal}"),
        Death::Exited { code } => format!("the lister ended with exit code {code}"),
        Death::Malformed => "the lister said what is not understood".to_owned(),
        Death::Silent => "the lister was stopped, as it had read nothing for minutes".to_owned(),
    }
}

/// What is missing of a volume.
pub fn volume_line(volume: &ListedVolume) -> Option<String> {
    let why = match &volume.listing {
        Listing::Whole => return None,
        Listing::Partly(problems) => {
            format!("files may be missing: {}", problems_line(problems).unwrap_or_default())
        }
        Listing::Unsupported => "no file system whose files can be listed".to_owned(),
        Listing::NotReached => "its files were not listed: the lister ended before".to_owned(),
        Listing::Died(death) => format!("files may be missing: {}", in_words(*death)),
    };
    Some(format!("  volume {} ({}): {why}", volume.number, OneLine(&volume.description)))
}

/// The first of some sentences, and how many there are more; `None` if there are none.
pub fn problems_line(problems: &[String]) -> Option<String> {
    let first = OneLine(problems.first()?);
    Some(match problems.len() - 1 {
        0 => first.to_string(),
        more => format!("{first}; and {more} more; --json lists them"),
    })
}

fn across_line(counts: Counts) -> String {
    let Counts { hits, searched, unreadable, left_out } = counts;
    let mut line =
        format!("  across fragments: {hits} {} at {searched} joints", if hits == 1 { "hit" } else { "hits" });
    for (joints, what) in [(unreadable, "beside what cannot be read"), (left_out, "not searched: they are too many")] {
        if joints > 0 {
            line += &format!("; {joints} joints {what}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lister_that_was_killed_is_told_from_one_that_ended() {
        assert_eq!(of_death(Death::Killed { signal: 11 }), ("killed", Some(11)));
        assert_eq!(of_death(Death::Exited { code: 1 }), ("exited", Some(1)));
        assert_ne!(in_words(Death::Killed { signal: 11 }), in_words(Death::Exited { code: 11 }));
    }
}
