//! Dividing YARA rules for a search: see `cheetah.triage.search.atoms`.

use cheetah_yara::{Why, needs_whole_files, split};
use pyo3::prelude::*;

/// An atom: its bytes, and whether the case of letters is ignored.
type Atom = (Vec<u8>, bool);
/// A rule without atoms: the number of its file, its name (`None` stands for all rules of the file), and why.
type Central = (usize, Option<String>, &'static str);

/// Divides the rules in files, whose texts these are; see `_native.pyi`.
#[pyfunction]
pub fn split_rules(texts: Vec<String>) -> (Vec<Atom>, Vec<Central>) {
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    let found = split(&texts);
    let atoms = found.atoms.into_iter().map(|atom| (atom.bytes, atom.ignore_case)).collect();
    let central = found.central.into_iter().map(|central| (central.file, central.rule, why(central.why))).collect();
    (atoms, central)
}

/// Returns whether the rules in files, whose texts these are, may match a file and no piece of it, or the other way round.
#[pyfunction]
pub fn rules_need_whole_files(texts: Vec<String>) -> bool {
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    needs_whole_files(&texts)
}

const fn why(why: Why) -> &'static str {
    match why {
        Why::Condition => "condition",
        Why::Strings => "strings",
        Why::TooMany => "too-many",
        Why::NotParsed => "not-parsed",
    }
}
