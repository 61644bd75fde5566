//! The errors of a search that writes to a folder.

use std::io::{self, ErrorKind};
use std::path::Path;

use cheetah_device::visible::OneLine;
use cheetah_error::Error;
use cheetah_error::next::{Acquisition, Search as Step};
use cheetah_image::own_file::NotOurs;
use cheetah_kit::file::NotItself;

use super::names::NAME;
use super::record::BadRecord;
use super::start::{Difference, OtherSearch};

/// The error of a read of the journal, or in the folder.
pub fn reading(path: &Path, error: &io::Error) -> Error {
    Error::io(format_args!("reading the search in {}", path.display()), error)
}

/// The error for a journal that is not what this process wrote.
pub fn altered(path: &Path) -> Error {
    let path = path.join(NAME);
    Error::evidence(format!("the journal {} was altered while it was used", path.display())).next(Step::NameFolder)
}

/// The error of a write in the folder: the same command goes on.
pub fn writing(path: &Path, error: &io::Error) -> Error {
    let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    let step = if is_full { Acquisition::FreeSpaceAndResume } else { Acquisition::Resume };
    Error::io(format_args!("writing the search in {}", path.display()), error).next(step)
}

/// The error for a journal with a line that is refused.
pub fn damaged(path: &Path, line: usize, why: BadRecord) -> Error {
    let path = path.join(NAME);
    Error::evidence(format!("the journal {} is damaged, or was altered: line {line} is {why}", path.display()))
        .because(why)
        .next(Step::NameFolder)
}

/// The error for the folder of another search.
pub fn other_search(path: &Path, differences: Vec<Difference>) -> Error {
    let is_source = |difference: &Difference| {
        matches!(difference, Difference::Size | Difference::Content | Difference::TooLittleToCompare)
    };
    let is_evidence = differences.iter().all(is_source);
    let differences = OtherSearch(differences);
    let why = format!("{} is the folder of another search; what differs: {differences}", path.display());
    let error = if is_evidence { Error::evidence(why) } else { Error::misuse(why) };
    error.because(differences).next(Step::RepeatOrNameFolder)
}

/// The error for a folder without a journal that is not empty.
pub fn no_journal(path: &Path) -> Error {
    let why = format!("{} has no journal of a search, and something else", path.display());
    Error::misuse(why).next(Step::NameFolder)
}

/// The error for a name that no file of a search has.
pub fn holds_something_else(path: &Path, name: &str) -> Error {
    let name = OneLine(name);
    Error::misuse(format!("{} holds something else than a search: {name}", path.display())).next(Step::NameFolder)
}

/// The error for something that cannot be opened because it is something else.
pub fn not_ours(path: &Path, error: &io::Error) -> Error {
    match NotItself::of(error) {
        Some(NotItself::Link) => not_ours_because(path, NotOurs::Link),
        Some(NotItself::NotRegular) => not_ours_because(path, NotOurs::NotRegular),
        None if error.kind() == ErrorKind::NotADirectory => {
            Error::misuse(format!("{} is no folder", path.display())).next(Step::NameFolder)
        }
        None => reading(path, error),
    }
}

/// The error for something else.
pub fn not_ours_because(path: &Path, is: NotOurs) -> Error {
    Error::misuse(format!("{} {is}, and is left alone", path.display())).because(is).next(Step::NameFolder)
}
