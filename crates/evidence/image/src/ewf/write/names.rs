//! Names of a set's files: `NAME.E01` … `NAME.E99`, `NAME.EAA` … `NAME.ZZZ`, with `.partial` appended until complete.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cheetah_error::{Error, Result};

/// The number of segment names: 99 with digits, then letters from `EAA` to `ZZZ`.
pub const SEGMENTS_MAX: u64 = 99 + 22 * 26 * 26;

/// The names of one set.
#[derive(Debug, Clone)]
pub struct Names {
    first: PathBuf,
    lower: bool,
}

impl Names {
    /// The set whose first segment is `first`, which must end in `.E01` or `.e01`.
    pub fn new(first: &Path) -> Result<Self> {
        match first.extension() {
            Some(extension) if extension == "E01" => Ok(Self { first: first.to_owned(), lower: false }),
            Some(extension) if extension == "e01" => Ok(Self { first: first.to_owned(), lower: true }),
            _ => {
                let first = first.display();
                Err(Error::misuse(format!("{first}: the first segment of an E01 image must be called NAME.E01")))
            }
        }
    }

    /// The final name of segment `number`, counted from 1.
    pub fn whole(&self, number: u16) -> Result<PathBuf> {
        if number == 0 || u64::from(number) > SEGMENTS_MAX {
            let first = self.first.display();
            return Err(Error::failed(format!(
                "{first}: an E01 image has at most {SEGMENTS_MAX} segments; start again with larger ones"
            )));
        }
        let extension = extension(number);
        Ok(self.first.with_extension(if self.lower { extension.to_lowercase() } else { extension }))
    }

    /// The name of segment `number` until the set is complete.
    pub fn partial(&self, number: u16) -> Result<PathBuf> {
        let mut name = OsString::from(self.whole(number)?);
        name.push(".partial");
        Ok(name.into())
    }

    /// The set's folder.
    pub fn folder(&self) -> &Path {
        match self.first.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }
}

fn extension(number: u16) -> String {
    if number < 100 {
        return format!("E{number:02}");
    }
    let index = number - 100;
    let digits = [u16::from(b'E' - b'A') + index / 676, index / 26 % 26, index % 26];
    // Each is below 26.
    digits.iter().map(|digit| char::from(b'A' + *digit as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_the_usual_names() {
        let names = Names::new(Path::new("a/x.E01")).unwrap();
        for (number, name) in
            [(1, "x.E01"), (99, "x.E99"), (100, "x.EAA"), (126, "x.EBA"), (776, "x.FAA"), (14971, "x.ZZZ")]
        {
            assert_eq!(names.whole(number).unwrap(), Path::new("a").join(name));
        }
        assert_eq!(names.partial(2).unwrap(), Path::new("a/x.E02.partial"));
        assert!(names.whole(14972).is_err() && names.whole(0).is_err());
        assert_eq!(Names::new(Path::new("x.e01")).unwrap().whole(100).unwrap(), Path::new("x.eaa"));
        assert_eq!(Names::new(Path::new("x.e01")).unwrap().folder(), Path::new("."));
        assert_eq!(Names::new(Path::new("x.raw")).unwrap_err().exit_code(), 2);
    }
}
