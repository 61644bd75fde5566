//! The files of a source and their runs, as a child process lists them with The Sleuth Kit.
//!
//! The Sleuth Kit reads hostile data, and may crash. Then the volume that it listed is known in part, and another process lists those
//! behind it.

mod child;
mod message;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use cheetah_device::{ByteRange, DynDevice};
use cheetah_search::{FileRun, NewFile, PlaceLimits, Places, PlacesBuilder};
use cheetah_source::OpenedSource;

use self::child::MODULE;
pub use self::child::{Death, Lister, SILENCE_MAX, Said};
use self::message::{Begin, FileFound, VolumeFound};
pub use self::message::{MatchFound, Message, SplitRules, TriedFound, TryRules, UntriedFound};
use crate::commands::python::Verb;
use crate::failure::{Context as _, Result};
use crate::os::{self, Feature};

/// What runs in Python.
pub static FILES: Verb = Verb { name: "search --files", module: MODULE, packages: &["pytsk3", "pyarrow", "numpy"] };
pub static RULES: Verb =
    Verb { name: "search --yara", module: MODULE, packages: &["pytsk3", "pyarrow", "numpy", "yara_x"] };
/// The most volumes, and sentences about each, that are kept.
const VOLUMES_MAX: usize = 1000;
const PROBLEMS_MAX: usize = 20;

/// The files of a source.
#[derive(Debug)]
pub struct Listed {
    /// Where they lie.
    pub places: Arc<Places>,
    /// The volumes.
    pub volumes: Vec<ListedVolume>,
    /// How the lister ended, if it did so before it had found the volumes.
    pub death: Option<Death>,
    /// Why volumes may be missing, a sentence each.
    pub problems: Vec<String>,
}

/// A volume.
#[derive(Debug)]
pub struct ListedVolume {
    /// Its number.
    pub number: u32,
    /// Where it lies.
    pub range: ByteRange,
    /// Its file system; empty if it is none that is known.
    pub file_system: String,
    /// What it is.
    pub description: String,
    /// How far its files are listed.
    pub listing: Listing,
}

/// How far the files of a volume are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// They are.
    Whole,
    /// Some may be missing: why, a sentence each.
    Partly(Vec<String>),
    /// It has no file system that can be listed.
    Unsupported,
    /// The lister ended while it listed them.
    Died(Death),
    /// They were not reached.
    NotReached,
}

impl Listed {
    /// Whether all is listed that can be.
    pub fn is_whole(&self) -> bool {
        let is_listed = |volume: &ListedVolume| matches!(volume.listing, Listing::Whole | Listing::Unsupported);
        let has_all_volumes = self.death.is_none() && self.problems.is_empty();
        has_all_volumes && self.places.left_out().is_nothing() && self.volumes.iter().all(is_listed)
    }
}

/// Finds the Python for this.
pub async fn python(verb: &'static Verb) -> Result<OsString> {
    os::offers(Feature::Python)?;
    let looking = tokio::task::spawn_blocking(move || verb.usable());
    Ok(looking.await.context("cannot look for Python")??)
}

/// Lists the files of a source.
pub async fn list(opened: &OpenedSource, python: &OsStr) -> Result<Listed> {
    walk(opened, (python, None), |message| Ok(Some(message))).await
}

/// Walks the files of a source: lists them, or tries rules on them. `also` takes messages, and returns those that are about volumes and
/// files.
pub async fn walk(
    opened: &OpenedSource,
    (python, rules): (&OsStr, Option<&TryRules<'_>>),
    mut also: impl FnMut(Message) -> Result<Option<Message>>,
) -> Result<Listed> {
    let device = opened.decrypted()?;
    let unlocked = opened.stack.unlocked.as_ref().map(|unlocked| unlocked.outcome());
    let locked = unlocked.as_ref().map(|outcome| outcome.failures()).unwrap_or_default();
    let size = device.geometry().size;
    let mut taken = Taken::new(size);
    let mut first = 0;
    loop {
        let begin = Begin {
            first,
            logical: &opened.stack.outcome(),
            locked: &locked,
            near: opened.is_here(),
            rules,
            sector_size: opened.identity.sector_size,
            size,
            unlocked: &unlocked,
        };
        let begin = serde_json::to_vec(&begin).context("cannot describe the source to what lists files")?;
        let lister = Lister::start(python, &begin, SILENCE_MAX).await?;
        let Some(death) = listed(lister, &device, (&mut taken, &mut also)).await? else { break };
        match taken.current.take() {
            // Each volume is tried once, so this ends.
            Some(number) if number >= first => {
                taken.end(number, Listing::Died(death));
                first = number.saturating_add(1);
            }
            _ => {
                taken.death = Some(death);
                break;
            }
        }
    }
    Ok(taken.finish())
}

/// Takes what a lister says. Returns how it ended, if that was before its end.
async fn listed(
    mut lister: Lister,
    device: &DynDevice,
    (taken, also): (&mut Taken, &mut impl FnMut(Message) -> Result<Option<Message>>),
) -> Result<Option<Death>> {
    loop {
        let message = match lister.next(device).await? {
            Said::Message(Message::End(true)) => return Ok(None),
            Said::Message(message) => message,
            Said::Died(death) => return Ok(Some(death)),
        };
        let Some(message) = also(message)? else { continue };
        if !taken.take(message) {
            return Ok(Some(lister.malformed().await?));
        }
    }
}

/// What was taken of what listers say.
struct Taken {
    builder: PlacesBuilder,
    volumes: Vec<ListedVolume>,
    /// The volume that is listed now.
    current: Option<u32>,
    /// The number of its first file; `None` once one had no room.
    first_file: Option<usize>,
    /// The number of the file behind the last one.
    files: usize,
    /// The number of the last volume that was taken, or had no room.
    last_volume: Option<u32>,
    death: Option<Death>,
    problems: Vec<String>,
}

impl Taken {
    fn new(size: u64) -> Self {
        let builder = PlacesBuilder::new(size, PlaceLimits { volumes_max: VOLUMES_MAX, ..PlaceLimits::default() });
        Self {
            builder,
            volumes: Vec::new(),
            current: None,
            first_file: None,
            files: 0,
            last_volume: None,
            death: None,
            problems: Vec::new(),
        }
    }

    /// Takes a message. Returns false if it makes no sense.
    fn take(&mut self, message: Message) -> bool {
        match (message, self.current) {
            // Each lister says the same.
            (Message::Problems(problems), None) => self.problems = some(problems),
            (Message::Volume(found), None) => self.volume(found),
            (Message::Begin(number), None) => {
                self.current = Some(number);
                self.first_file = Some(self.files);
            }
            (Message::File(found), Some(number)) => self.file(number, &found),
            (Message::Runs(runs), Some(_)) => runs.into_iter().for_each(|(file_offset, offset, len)| {
                self.builder.run(FileRun { file_offset, range: ByteRange::new(offset, len) });
            }),
            (Message::Name(file), Some(_)) => {
                let number =
                    usize::try_from(file).ok().zip(self.first_file).and_then(|(file, first)| first.checked_add(file));
                number.into_iter().for_each(|number| self.builder.name(number));
            }
            (Message::Clusters(offset, len), Some(number)) => {
                self.builder.clusters(number, ByteRange::new(offset, len))
            }
            (Message::Free(ranges), Some(number)) => {
                let ranges = ranges.into_iter().map(|(offset, len)| ByteRange::new(offset, len));
                ranges.for_each(|range| self.builder.free(number, range));
            }
            (Message::Done(done), Some(number)) if done.number == number => self.done(number, done.problems),
            _ => return false,
        }
        true
    }

    /// Adds a volume, once: each lister finds them again, in the order of their numbers.
    fn volume(&mut self, found: VolumeFound) {
        if self.last_volume.is_some_and(|last| found.number <= last) {
            return;
        }
        self.last_volume = Some(found.number);
        let range = ByteRange::new(found.offset, found.len);
        // It counts those that have no room.
        self.builder.volume(found.number, range);
        if self.volumes.len() >= VOLUMES_MAX {
            return;
        }
        let listing = match (found.fs.is_empty(), found.problems.is_empty()) {
            (false, _) => Listing::NotReached,
            (true, true) => Listing::Unsupported,
            (true, false) => Listing::Partly(some(found.problems)),
        };
        self.volumes.push(ListedVolume {
            number: found.number,
            range,
            file_system: found.fs,
            description: found.description,
            listing,
        });
    }

    fn file(&mut self, volume: u32, found: &FileFound) {
        let file = NewFile {
            path: &found.path,
            is_deleted: found.deleted,
            is_metadata: found.metadata,
            is_resident: found.resident,
            is_mapped: found.mapped,
            valid_bytes: found.valid,
        };
        match self.builder.file(volume, &file) {
            Some(number) => self.files = number + 1,
            None => self.first_file = None,
        }
    }

    fn done(&mut self, number: u32, problems: Vec<String>) {
        self.current = None;
        let problems = some(problems);
        if problems.is_empty() {
            self.builder.whole(number);
        }
        self.end(number, if problems.is_empty() { Listing::Whole } else { Listing::Partly(problems) });
    }

    /// Ends the listing of a volume. Of one in which the lister died, it is not known which clusters are free.
    fn end(&mut self, number: u32, listing: Listing) {
        if matches!(listing, Listing::Died(_)) {
            self.builder.forget_free(number);
        }
        if let Some(volume) = self.volumes.iter_mut().find(|volume| volume.number == number) {
            volume.listing = listing;
        }
    }

    fn finish(self) -> Listed {
        Listed {
            places: Arc::new(self.builder.finish()),
            volumes: self.volumes,
            death: self.death,
            problems: self.problems,
        }
    }
}

/// As many sentences as are kept.
fn some(mut sentences: Vec<String>) -> Vec<String> {
    sentences.truncate(PROBLEMS_MAX);
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(messages: &[&str]) -> (Taken, bool) {
        let mut taken = Taken::new(4096);
        let makes_sense = messages.iter().all(|message| taken.take(serde_json::from_str(message).unwrap()));
        (taken, makes_sense)
    }

    const VOLUME: &str = r#"{"volume":{"number":3,"offset":1024,"len":2048,"fs":"ext4","description":"partition"}}"#;
    const FILE: &str =
        r#"{"file":{"path":"/a","deleted":false,"metadata":false,"resident":false,"mapped":true,"valid":100}}"#;

    #[test]
    fn a_listed_volume_has_its_files_and_further_names() {
        let done = r#"{"done":{"number":3,"problems":[]}}"#;
        let (taken, makes_sense) =
            taken(&[VOLUME, VOLUME, r#"{"begin":3}"#, FILE, r#"{"runs":[[0,1024,512]]}"#, r#"{"name":0}"#, done]);
        assert!(makes_sense);
        let listed = taken.finish();
        assert!(listed.is_whole());
        assert_eq!((listed.volumes.len(), &listed.volumes[0].listing), (1, &Listing::Whole));
        let place = listed.places.at(1030);
        assert_eq!((place.path, place.file_offset, place.others), (Some("/a"), Some(6), 1));
    }

    #[test]
    fn a_volume_in_which_the_lister_dies_is_not_whole() {
        let (mut taken, _) = taken(&[VOLUME, r#"{"begin":3}"#, FILE, r#"{"clusters":[1024,2048]}"#]);
        taken.end(3, Listing::Died(Death::Killed { signal: 9 }));
        let listed = taken.finish();
        assert!(!listed.is_whole());
        assert_eq!(listed.places.at(2000).state, cheetah_search::PlaceState::Unknown);
    }

    #[test]
    fn a_file_system_that_is_refused_and_volumes_that_may_be_missing_leave_the_listing_partial() {
        const REFUSED: &str =
            r#"{"volume":{"number":0,"offset":0,"len":9,"fs":"","description":"one","problems":["NTFS, damaged"]}}"#;
        const UNSUPPORTED: &str = r#"{"volume":{"number":0,"offset":0,"len":9,"fs":"","description":"one"}}"#;
        let listed = taken(&[REFUSED]).0.finish();
        assert!(matches!(&listed.volumes[0].listing, Listing::Partly(problems) if problems.len() == 1));
        assert!(!listed.is_whole());
        assert!(taken(&[r#"{"problems":[]}"#, UNSUPPORTED]).0.finish().is_whole());
        assert!(!taken(&[r#"{"problems":["no partition table"]}"#, UNSUPPORTED]).0.finish().is_whole());
    }

    #[test]
    fn volumes_without_room_are_counted_once_and_leave_the_listing_partial() {
        let mut taken = Taken::new(1 << 20);
        for _ in 0..2 {
            for number in 0..VOLUMES_MAX as u32 + 3 {
                let message =
                    format!(r#"{{"volume":{{"number":{number},"offset":0,"len":9,"fs":"","description":"one"}}}}"#);
                assert!(taken.take(serde_json::from_str(&message).unwrap()));
            }
        }
        let listed = taken.finish();
        assert_eq!((listed.volumes.len(), listed.places.left_out().volumes), (VOLUMES_MAX, 3));
        assert!(!listed.is_whole());
    }

    #[test]
    fn files_of_no_volume_and_the_end_of_another_one_make_no_sense() {
        assert!(!taken(&[FILE]).1);
        assert!(!taken(&[VOLUME, r#"{"begin":3}"#, r#"{"done":{"number":4,"problems":[]}}"#]).1);
        assert!(!taken(&[r#"{"begin":3}"#, r#"{"begin":4}"#]).1);
    }
}
