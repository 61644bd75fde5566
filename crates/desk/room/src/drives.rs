//! The drive files that the room's machine keeps, to hand them to members by name.
//!
//! ```text
//! drives/NAME.drive         as the examiner's command wrote it last
//! drives/NAME.drive.seal    and the files beside it (Part)
//! ```
//!
//! A drive file has no secret: the key of a sealed drive is in it only encrypted. It says which nodes hold the drive.

use std::fmt;
use std::str::FromStr;

use cheetah_error::{Error, Result, next};
use serde::Deserialize;

use crate::directory::{OwnDirectory, names_in};
use crate::register::clean_name;
use crate::room::{LOCK, Room};

const DRIVES: &str = "drives";
/// How the name of a drive file ends.
pub const SUFFIX: &str = ".drive";
/// The most bytes of a file; digests have 32 for each MiB.
pub const PART_LEN_MAX: usize = 64 << 20;
/// The most drives.
const DRIVES_MAX: usize = 4096;

/// One of the files of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The drive file itself.
    Drive,
    /// The digests of the image's chunks.
    Digests,
    /// The seal record of a sealed drive.
    Seal,
    /// The coverage map of an incomplete image.
    Map,
    /// The custody log.
    Custody,
    /// The report of the acquisition.
    Report,
}

impl Part {
    /// All of them; the drive file is the last to be written, and the first to be read.
    pub const ALL: [Self; 6] = [Self::Digests, Self::Seal, Self::Map, Self::Custody, Self::Report, Self::Drive];

    /// How the name of the file ends, after that of the drive file.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Drive => "",
            Self::Digests => ".digests",
            Self::Seal => ".seal",
            Self::Map => ".map",
            Self::Custody => ".custody",
            Self::Report => ".report.txt",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drive => "drive",
            other => &other.suffix()[1..],
        })
    }
}

impl FromStr for Part {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        Self::ALL.into_iter().find(|part| part.to_string() == text).ok_or(())
    }
}

/// What is needed of a drive file here.
#[derive(Deserialize)]
struct Id {
    id: String,
}

/// The id of the drive whose file has this content.
fn id_of(content: &[u8]) -> Option<String> {
    toml::from_slice::<Id>(content).ok().map(|found| found.id)
}

/// Whether a drive may have this name in a room.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && clean_name(name) == name
}

impl Room {
    /// Keeps one of the files of a drive, in place of an earlier one; `None` for one that the drive does not have any more.
    ///
    /// # Errors
    ///
    /// If another drive has this name in the room, or the file cannot be written.
    pub fn keep_part(&self, name: &str, id: &str, part: Part, content: Option<&[u8]>) -> Result<()> {
        if !is_name(name) {
            return Err(Error::failed("a drive in a room has a name of letters, digits, '.', '-' and '_'"));
        }
        let _lock = self.directory().lock(LOCK)?;
        let drives = self.drives_directory()?;
        let file = format!("{name}{SUFFIX}");
        let known = drives.read(&file, PART_LEN_MAX)?.and_then(|content| id_of(&content));
        if known.as_ref().is_some_and(|known| known != id) {
            return Err(Error::failed(format!("the room hands out another drive named {name}"))
                .next(next::Room::RemoveDrive { name: name.to_string() }));
        }
        if known.is_none() && self.drive_names()?.len() >= DRIVES_MAX {
            return Err(Error::failed(format!("the room has {DRIVES_MAX} drives, and keeps no more")));
        }
        match content {
            Some(content) if part == Part::Drive && id_of(content).as_deref() != Some(id) => {
                Err(Error::failed("this is not the drive file of that drive"))
            }
            Some(content) => drives.write(&format!("{file}{}", part.suffix()), content),
            None => drives.remove(&format!("{file}{}", part.suffix())),
        }
    }

    /// One of the files of a drive; `None` if the room has none.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn part(&self, name: &str, part: Part) -> Result<Option<Vec<u8>>> {
        if !is_name(name) {
            return Ok(None);
        }
        let content = self.drives_directory()?.read(&format!("{name}{SUFFIX}{}", part.suffix()), PART_LEN_MAX)?;
        Ok(content.map(|content| content.to_vec()))
    }

    /// No longer hands out a drive: the one with this id, if one is given. Returns whether it did before.
    ///
    /// # Errors
    ///
    /// If its files cannot be removed.
    pub fn forget_drive(&self, name: &str, id: Option<&str>) -> Result<bool> {
        let _lock = self.directory().lock(LOCK)?;
        let Some(content) = self.part(name, Part::Drive)? else { return Ok(false) };
        if id.is_some() && id_of(&content).as_deref() != id {
            return Ok(false);
        }
        let drives = self.drives_directory()?;
        Part::ALL.iter().rev().try_for_each(|part| drives.remove(&format!("{name}{SUFFIX}{}", part.suffix())))?;
        Ok(true)
    }

    /// The names of the drives, sorted.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn drive_names(&self) -> Result<Vec<String>> {
        names_in(&self.path().join(DRIVES), |file| {
            file.strip_suffix(SUFFIX).filter(|name| is_name(name)).map(str::to_owned)
        })
    }

    fn drives_directory(&self) -> Result<OwnDirectory> {
        OwnDirectory::open_or_create(&self.path().join(DRIVES))
    }
}
