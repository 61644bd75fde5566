//! What became of the files on which rules were tried, and how that is shown.

use cheetah_device::visible::OneLine;
use cheetah_search::{Hit, Place, PlaceState, Row, RowRule, TextEncoding};

use super::super::central::why;
use super::super::lister::{Death, ListedVolume, Listing, MatchFound, Message, TriedFound, UntriedFound};
use super::super::places::{VOLUMES_SHOWN_MAX, in_words, of_death, problems_line, volume, volume_line};
use super::set::{Named, RuleSet};
use crate::answers::search as answers;
use crate::failure::{Failure, Result};

/// Files that are named because rules were not tried on all of them.
const UNTRIED_MAX: usize = 1000;
/// Of these, and of rules without atoms, as many are printed.
const SHOWN_MAX: usize = 20;
/// The tags of a rule that are kept.
const TAGS_MAX: usize = 100;

/// What became of files.
#[derive(Debug, Default)]
pub struct Tried {
    counts: TriedFound,
    untried: Vec<UntriedFound>,
    untried_files: u64,
    /// The volumes, once all are walked.
    pub volumes: Vec<ListedVolume>,
    /// How what tries the rules ended, if it did so before it had found the volumes.
    pub death: Option<Death>,
    /// Why volumes may be missing, a sentence each.
    pub problems: Vec<String>,
    /// The volumes that had no room.
    pub left_out_volumes: u64,
}

/// What a message is.
pub enum Taken {
    /// A match.
    Match(Box<Matched>),
    /// A count, or a file on which rules were not tried.
    Counted,
    /// About volumes.
    Other(Message),
}

/// A match of a rule.
#[derive(Debug)]
pub struct Matched {
    /// The match as a hit, with its first bytes. If its offset is not known, it is 0 there.
    pub hit: Hit,
    found: MatchFound,
    tags: String,
}

impl Tried {
    /// Takes a message. Fails if it names a rule that there is not.
    pub fn take(&mut self, message: Message, named: &Named) -> Result<Taken> {
        Ok(match message {
            Message::Match(found) => Taken::Match(Box::new(Matched::of(*found, named)?)),
            Message::Untried(untried) => {
                self.untried_files += 1;
                if self.untried.len() < UNTRIED_MAX {
                    self.untried.push(untried);
                }
                Taken::Counted
            }
            Message::Tried(more) => {
                for (all, more) in [
                    (&mut self.counts.tried, more.tried),
                    (&mut self.counts.without_atoms, more.without_atoms),
                    (&mut self.counts.skipped, more.skipped),
                    (&mut self.counts.in_pieces, more.in_pieces),
                    (&mut self.counts.cut, more.cut),
                ] {
                    *all = all.saturating_add(more);
                }
                Taken::Counted
            }
            message => Taken::Other(message),
        })
    }

    /// The files of which it is known which rules match.
    pub const fn files(&self) -> u64 {
        self.counts.tried.saturating_add(self.counts.without_atoms)
    }

    /// Whether rules were tried on every file of every volume that can be listed, and there is one.
    pub fn is_whole(&self) -> bool {
        let is_listed = |volume: &ListedVolume| matches!(volume.listing, Listing::Whole | Listing::Unsupported);
        let has_all_volumes = self.death.is_none() && self.problems.is_empty() && self.left_out_volumes == 0;
        let has_one = self.volumes.iter().any(|volume| volume.listing == Listing::Whole);
        self.untried_files == 0 && has_all_volumes && has_one && self.volumes.iter().all(is_listed)
    }
}

impl Matched {
    fn of(mut found: MatchFound, named: &Named) -> Result<Self> {
        let unknown = || Failure::failed("what tries the rules said what is not understood");
        let pattern = named.number(&found.file, &found.rule).ok_or_else(unknown)?;
        let bytes = bytes_of(&found.content).ok_or_else(unknown)?;
        let encoding = if found.wide { TextEncoding::Utf16Le } else { TextEncoding::Utf8 };
        found.tags.truncate(TAGS_MAX);
        let tags = found.tags.join(" ");
        let hit = Hit {
            offset: found.offset.unwrap_or_default(),
            pattern,
            encoding,
            bytes,
            before: Vec::new(),
            after: Vec::new(),
        };
        Ok(Self { hit, found, tags })
    }

    /// Its row in a table.
    pub fn row(&self) -> Row<'_> {
        let MatchFound { file, string, offset, len, .. } = &self.found;
        let rule = RowRule { file, tags: &self.tags, string: string.as_deref(), offset: *offset, len: *len };
        let place = Place {
            volume: Some(self.found.volume),
            path: Some(&self.found.path),
            state: self.state(),
            file_offset: self.found.file_offset,
            others: 0,
            run: None,
        };
        Row::matched(&self.hit, place, rule)
    }

    const fn state(&self) -> PlaceState {
        if self.found.deleted { PlaceState::Deleted } else { PlaceState::Allocated }
    }

    /// The event for programs.
    pub fn answer(&self) -> answers::Found {
        let found = &self.found;
        answers::Found::Match {
            file_offset: found.file_offset,
            len: found.len,
            offset: found.offset,
            path: found.path.clone(),
            rule: found.rule.clone(),
            rules: found.file.clone(),
            state: self.state().name(),
            string: found.string.clone(),
            tags: found.tags.clone(),
            text: self.hit.text(),
            volume: found.volume,
        }
    }

    /// The line for people.
    pub fn line(&self) -> String {
        let found = &self.found;
        let offset = found.offset.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
        let mut line = format!("{offset}  {}", OneLine(&found.rule));
        if let Some(string) = &found.string {
            line += &format!("  {}  {}", OneLine(string), self.hit.text());
        }
        line += &format!("  [{}, volume {}, {}", self.state().name(), found.volume, OneLine(&found.path));
        if let Some(offset) = found.file_offset {
            line += &format!(" at {offset}");
        }
        line + "]"
    }
}

/// The bytes of hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pairs = digits.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some((digit(*high)? << 4) | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

/// What became of files, with the rules.
#[derive(Clone, Copy)]
pub struct RulesShown<'a> {
    /// The rules.
    pub set: &'a RuleSet,
    /// What became of files.
    pub tried: &'a Tried,
}

impl RulesShown<'_> {
    /// Whether the rules were tried on every file.
    pub fn is_whole(self) -> bool {
        self.tried.is_whole()
    }

    /// The files of which it is known which rules match.
    pub const fn files(self) -> u64 {
        self.tried.files()
    }

    /// Where there are hits, or none.
    pub fn place(self) -> String {
        match (self.tried.files(), self.tried.is_whole()) {
            (1, true) => "in the only file".to_owned(),
            (files, true) => format!("in all {files} files"),
            (files, false) => format!("in the {files} files on which the rules were tried"),
        }
    }

    /// The answer for programs.
    pub fn answer(&self) -> answers::Rules<'_> {
        let Tried { counts, untried, untried_files, .. } = self.tried;
        let untried =
            untried.iter().map(|file| answers::UntriedFile { path: &file.path, volume: file.volume, why: &file.why });
        answers::Rules {
            atoms: self.set.atoms.len(),
            central: &self.set.central,
            cut: counts.cut,
            files: counts.tried,
            in_pieces: counts.in_pieces,
            is_whole: self.tried.is_whole(),
            lister: self.tried.death.map(|death| of_death(death).0),
            problems: &self.tried.problems,
            searched: self.set.is_searched(),
            skipped: counts.skipped,
            untried: untried.collect(),
            untried_files: *untried_files,
            volumes: self.tried.volumes.iter().map(volume).collect(),
            without_atoms: counts.without_atoms,
        }
    }

    /// The answer for people.
    pub fn lines(self) -> Vec<String> {
        let Tried { counts, .. } = self.tried;
        let mut lines = vec![match self.set.is_searched() {
            true => {
                format!("  rules: tried on {} files; {} files have no atom of them", counts.tried, counts.without_atoms)
            }
            false => format!("  rules: tried on {} files; no atoms were searched for", counts.tried),
        }];
        for (number, what) in [
            (counts.in_pieces, "files are larger than 32MiB: the rules were tried on pieces of them"),
            (counts.skipped, "files have no content of their own: most are deleted, and others have their clusters"),
            (counts.cut, "times, a rule has more matches in a file than are listed"),
            (self.tried.left_out_volumes, "volumes had no room"),
        ] {
            if number > 0 {
                lines.push(format!("  {number} {what}"));
            }
        }
        lines.extend(some(self.set.central.iter().map(central_line), self.set.central.len() as u64));
        let untried = self.tried.untried.iter();
        let untried = untried.map(|file| {
            let (path, why) = (OneLine(&file.path), OneLine(&file.why));
            format!("  not tried to the end: volume {}, {path}: {why}", file.volume)
        });
        lines.extend(some(untried, self.tried.untried_files));
        lines.extend(self.tried.volumes.iter().filter_map(volume_line).take(VOLUMES_SHOWN_MAX));
        lines.extend(self.tried.death.map(|death| format!("  volumes were not found: {}", in_words(death))));
        lines.extend(problems_line(&self.tried.problems).map(|why| format!("  volumes may be missing: {why}")));
        lines
    }

    /// Fails if the rules were not tried on every file.
    pub fn complete(self, source: &str) -> Result<()> {
        match self.tried.is_whole() {
            true => Ok(()),
            false => {
                Err(Failure::evidence(format!("{source}: the rules were not tried on all of every file; see above")))
            }
        }
    }
}

/// The first of some lines, and how many there are more.
fn some(lines: impl Iterator<Item = String>, all: u64) -> Vec<String> {
    let mut lines: Vec<_> = lines.take(SHOWN_MAX).collect();
    let more = all.saturating_sub(lines.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more of these; --json has them"));
    }
    lines
}

fn central_line(central: &answers::CentralRule) -> String {
    let file = OneLine(&central.file);
    let what = match &central.rule {
        Some(rule) => format!("{} of {file}", OneLine(rule)),
        None => format!("all rules of {file}"),
    };
    format!("  tried on every file: {what}: {}", why(&central.why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_pairs_of_digits_and_nothing_else() {
        assert_eq!(bytes_of("4d5aFF"), Some(vec![0x4d, 0x5a, 0xff]));
        assert_eq!(bytes_of(""), Some(Vec::new()));
        for odd in ["4", "4g", "+1", "é"] {
            assert_eq!(bytes_of(odd), None, "{odd}");
        }
    }

    #[test]
    fn files_that_were_not_tried_and_sources_without_a_file_system_are_not_whole() {
        let volume = |listing| ListedVolume {
            number: 0,
            range: cheetah_device::ByteRange::new(0, 512),
            file_system: "ext4".into(),
            description: "one".into(),
            listing,
        };
        let tried = |volumes, untried_files| Tried { volumes, untried_files, ..Tried::default() };
        assert!(tried(vec![volume(Listing::Whole), volume(Listing::Unsupported)], 0).is_whole());
        assert!(!tried(vec![volume(Listing::Whole)], 1).is_whole());
        assert!(!tried(vec![volume(Listing::Unsupported)], 0).is_whole());
        assert!(!tried(vec![volume(Listing::Whole), volume(Listing::NotReached)], 0).is_whole());
        assert!(!tried(Vec::new(), 0).is_whole());
    }
}
