//! Names of segments, and their discovery.
//!
//! `.E01` to `.E99`, then `.EAA` to `.EZZ`, `.FAA` to `.ZZZ`; for Ex01, `.Ex01` to `.Ex99`, then `.ExAA` to `.EzZZ`
//! (libewf, "EWF specification" and "EWF 2 specification", *Segment file extensions*). EnCase goes on with the characters
//! that follow `z` in ASCII: `.E{AA` to `.E~ZZ`.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result};
use cheetah_kit::path::from_bytes;

/// The naming scheme of a set of segments.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Naming {
    /// With the dot.
    stem: Vec<u8>,
    /// The prefix of the number: a letter, or a letter and an `x`.
    letters: Vec<u8>,
}

impl Naming {
    /// The naming scheme of the set that starts with `first`, if it follows the rules.
    fn of(first: &OsStr) -> Option<Self> {
        let name = first.as_encoded_bytes();
        let dot = name.iter().rposition(|byte| *byte == b'.')?;
        let (stem, extension) = name.split_at(dot + 1);
        let letters = extension.strip_suffix(b"01")?;
        match letters {
            [letter] if letter.is_ascii_alphabetic() => {}
            [letter, b'x' | b'X'] if letter.is_ascii_alphabetic() => {}
            _ => return None,
        }
        Some(Self { stem: stem.to_vec(), letters: letters.to_vec() })
    }

    /// The name of segment `number`, counted from 1; `None` beyond the last name.
    fn name(&self, number: usize) -> Option<OsString> {
        let mut name = self.stem.clone();
        let (last, before) = self.letters.split_last()?;
        name.extend_from_slice(before);
        match number.checked_sub(100) {
            None => {
                name.push(*last);
                name.extend_from_slice(format!("{number:02}").as_bytes());
            }
            Some(beyond) => {
                let room = match self.letters.len() {
                    2 if last.is_ascii_lowercase() => b'~' - last,
                    _ if last.is_ascii_uppercase() => b'Z' - last,
                    _ => b'z' - last,
                };
                let step = u8::try_from(beyond / (26 * 26)).ok().filter(|step| *step <= room)?;
                name.push(last + step);
                let a = if self.letters[0].is_ascii_uppercase() { b'A' } else { b'a' };
                // Remainders of 26 fit in a byte.
                name.extend([beyond / 26 % 26, beyond % 26].map(|letter| a + letter as u8));
            }
        }
        Some(from_bytes(name))
    }
}

/// The name of segment `number`, counted from 1, of the set that starts with the file `first`; `None` beyond the last name, or
/// if `first` is not named like a first segment.
pub fn segment_name(first: &str, number: usize) -> Option<String> {
    Naming::of(first.as_ref())?.name(number)?.into_string().ok()
}

/// The segments of the set that starts with `first`, in order, up to the first gap, and the name of the next one. Case
/// is ignored if only one file matches.
pub(super) fn find(first: &Path) -> Result<(Vec<PathBuf>, String)> {
    let nameless = || format!("the segment that follows {}", first.display());
    let Some(naming) = first.file_name().and_then(Naming::of) else { return Ok((vec![first.to_owned()], nameless())) };
    let folder = match first.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let files = files_of(folder, &naming)?;
    let mut paths = vec![first.to_owned()];
    loop {
        let Some(name) = naming.name(paths.len() + 1) else {
            let beyond = format!(
                "segment {} of {}, which is beyond the last name that segments can have; larger sets are not supported",
                paths.len() + 1,
                first.display()
            );
            return Ok((paths, beyond));
        };
        match files.get(&name.to_ascii_lowercase()).map(Vec::as_slice) {
            None | Some([]) => return Ok((paths, first.with_file_name(name).display().to_string())),
            Some(found) if found.contains(&name) => paths.push(first.with_file_name(name)),
            Some([only]) => paths.push(first.with_file_name(only)),
            Some([one, other, ..]) => {
                return Err(Error::misuse(format!(
                    "{} and {} could both be segment {} of {}; move the one away that is not",
                    folder.join(one).display(),
                    folder.join(other).display(),
                    paths.len() + 1,
                    first.display()
                )));
            }
        }
    }
}

/// The folder's files that share the set's prefix, by lower-case name.
fn files_of(folder: &Path, naming: &Naming) -> Result<HashMap<OsString, Vec<OsString>>> {
    let mut files = HashMap::<_, Vec<_>>::new();
    let listing = |error| Error::io(format_args!("listing {}, to find the segments", folder.display()), &error);
    let stem = naming.stem.to_ascii_lowercase();
    let entries = match folder.read_dir() {
        // The error for the first segment, which is missing too, is clearer.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
        entries => entries.map_err(listing)?,
    };
    for entry in entries {
        let name = entry.map_err(listing)?.file_name();
        let lower = name.to_ascii_lowercase();
        if lower.as_encoded_bytes().starts_with(&stem) && lower.len() <= stem.len() + 4 {
            files.entry(lower).or_default().push(name);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(first: &str, numbers: &[usize]) -> Vec<Option<String>> {
        let naming = Naming::of(first.as_ref()).unwrap();
        numbers.iter().map(|number| naming.name(*number).map(|name| name.into_string().unwrap())).collect()
    }

    #[test]
    fn segments_have_the_names_that_libewf_gives_them() {
        let some = |names: &[&str]| names.iter().map(|name| Some((*name).to_owned())).collect::<Vec<_>>();
        let numbers = [1, 2, 99, 100, 101, 125, 126, 775, 776, 14_971];
        let want = ["E01", "E02", "E99", "EAA", "EAB", "EAZ", "EBA", "EZZ", "FAA", "ZZZ"];
        assert_eq!(
            names("a.b.E01", &numbers),
            some(&want.map(|extension| format!("a.b.{extension}")).each_ref().map(|s| s.as_str()))
        );
        assert_eq!(names("x.e01", &[2, 100, 776]), some(&["x.e02", "x.eaa", "x.faa"]));
        assert_eq!(names("x.s01", &[99, 100, 776]), some(&["x.s99", "x.saa", "x.taa"]));
        assert_eq!(names("x.Ex01", &[2, 100, 776, 2127]), some(&["x.Ex02", "x.ExAA", "x.EyAA", "x.EzZZ"]));
        assert_eq!(names("x.Ex01", &[2128, 2129, 2804, 4831]), some(&["x.E{AA", "x.E{AB", "x.E|AA", "x.E~ZZ"]));
        assert_eq!(names("x.Ex01", &[4832]), [None]);
        assert_eq!(names("x.E01", &[14_972]), [None]);
        for odd in ["x", "x.raw", "x.01", "x.E02", "x.EE01", "E01"] {
            assert_eq!(Naming::of(odd.as_ref()), None, "{odd}");
        }
    }

    #[test]
    fn names_match_regardless_of_case_unless_ambiguous() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str| std::fs::write(dir.path().join(name), "").unwrap();
        ["x.E01", "X.e02", "x.E03", "x.e03", "x.E05"].into_iter().for_each(put);
        let (paths, missing) = find(&dir.path().join("x.E01")).unwrap();
        let names: Vec<_> = paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["x.E01", "X.e02", "x.E03"]);
        assert!(missing.ends_with("/x.E04"), "{missing}");
        ["X.e04", "x.e04"].into_iter().for_each(put);
        assert!(find(&dir.path().join("x.E01")).is_err());
    }
}
