//! Drives named by their room, `lab:case42`: the room's machine hands their files out.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cheetah_device::path_text::path_to_text;
use cheetah_drive::DriveFile;
use cheetah_drive::file::disk::write_atomically;
use cheetah_error::{Error, Fact, Result, list};
use cheetah_image::spec;
use cheetah_room::Room;
use cheetah_room::archive::Archive;
use cheetah_room::client::MachineInfo;
use cheetah_room::credentials::stored_credentials;
use cheetah_room::drives::{Part, SUFFIX, is_name};
use cheetah_room::machine::check_room_name;
use cheetah_room::resolve::{Purpose, Wanted, resolve, with_id};
use cheetah_words::sentence;

use crate::ui::Ui;

/// An argument of a command that may name a drive.
pub enum Named<'a> {
    /// A path.
    Path(&'a mut PathBuf),
    /// A source: a path as text, or a URI.
    Text(&'a mut String),
    /// One of the words for another program.
    Word(&'a mut OsString),
}

impl Named<'_> {
    /// Returns the path of the file that is named; `None` if no file is.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Path(path) => Some((**path).clone()),
            Self::Text(text) => spec::path_of(text).map(|(path, _)| path),
            // Another program takes them.
            Self::Word(_) => None,
        }
    }

    /// Puts the path of the drive file in the place of a drive that is named by its room.
    ///
    /// # Errors
    ///
    /// If the room does not hand it out, and no copy of it is here.
    pub async fn resolve(self, ui: Ui) -> Result<()> {
        let text = match &self {
            Self::Path(path) => path.to_str(),
            Self::Text(text) => Some(text.as_str()),
            Self::Word(word) => word.to_str(),
        };
        let Some((room, name)) = text.and_then(meant) else { return Ok(()) };
        let path = fetch(&room, &name, ui).await?;
        match self {
            Self::Path(to) => *to = path,
            Self::Text(to) => *to = path_to_text(&path).into_owned(),
            Self::Word(to) => *to = path.into_os_string(),
        }
        Ok(())
    }
}

/// The room and the drive that `text` names, if it has that form, is no file, and this machine knows the room.
fn meant(text: &str) -> Option<(String, String)> {
    let (room, name) = text.split_once(':')?;
    let name = name.strip_suffix(SUFFIX).unwrap_or(name);
    let is_known = || {
        let own =
            Room::names().unwrap_or_default().into_iter().filter_map(|name| Some((Room::open(&name).ok()?.id(), name)));
        let stored = stored_credentials().unwrap_or_default().into_iter();
        let stored = stored.filter_map(|stored| Some((stored.credential.room()?, stored.room)));
        own.chain(stored).any(|(id, known)| known == room || with_id(&known, id) == room)
    };
    let is_meant = is_room(room) && is_name(name) && !Path::new(text).exists() && is_known();
    is_meant.then(|| (room.to_owned(), name.to_owned()))
}

/// Whether a room may have the name, with or without the beginning of its id.
fn is_room(name: &str) -> bool {
    check_room_name(name).is_ok() || name.rsplit_once('-').is_some_and(|(name, _)| check_room_name(name).is_ok())
}

/// Gets the files of a drive from the machine of its room; returns the path of the drive file here. If the machine cannot be
/// reached, it is that of the copy that is here from before.
async fn fetch(room: &str, name: &str, ui: Ui) -> Result<PathBuf> {
    let wanted =
        Wanted { text: Some(room), purpose: Purpose::Client, ephemeral: false, machine: MachineInfo::default() };
    let membership = resolve(&wanted).await?.ok_or_else(|| Error::misuse(format!("there is no room {room}")))?;
    let archive = Archive::of(&membership);
    let id = archive.room().map_or_else(String::new, |id| id.to_string());
    let folder = folder()?.join(&id);
    let path = folder.join(format!("{name}{SUFFIX}"));
    let found = match archive.part(name, Part::Drive).await {
        Err(error) if error.fact() == Some(Fact::Unreachable) && path.exists() => {
            ui.note(format_args!("{}. The copy of the drive file that is here is used", sentence(&error)));
            return Ok(path);
        }
        found => found?,
    };
    let Some(drive) = found else { return Err(unknown(&archive, room, name).await) };
    let doing = |error| Error::io(format_args!("creating {}", folder.display()), &error);
    // The user's own, as all that this process makes.
    std::fs::create_dir_all(&folder).map_err(doing)?;
    if is_older_than_here(&drive, &path) {
        return Ok(path);
    }
    for part in Part::ALL {
        let content = if part == Part::Drive { Some(drive.clone()) } else { archive.part(name, part).await? };
        put(&path, part, content)?;
    }
    Ok(path)
}

/// The folder of drive files that rooms handed out: `cheetah/drives` in the user's folder of state.
fn folder() -> Result<PathBuf> {
    let state = cheetah_custody::ledger::usual_directory().and_then(|ledger| Some(ledger.parent()?.join("drives")));
    state.ok_or_else(|| Error::misuse("no home directory for the drive file; name one with XDG_STATE_HOME"))
}

async fn unknown(archive: &Archive, room: &str, name: &str) -> Error {
    let known = archive.drives().await.unwrap_or_default();
    let known =
        if known.is_empty() { "it hands out none".to_owned() } else { format!("it hands out {}", list(&known)) };
    Error::failed(format!(
        "room {room} hands out no drive named {name} ({known}); a drive is handed out once an examiner of the room created or \
         changed it; or get its drive file from the examiner"
    ))
}

/// Whether the drive file at `path` is of the same drive and newer than `content`: this machine changed the drive, and the
/// room does not know yet.
fn is_older_than_here(content: &[u8], path: &Path) -> bool {
    let text = String::from_utf8_lossy(content);
    let (Ok(there), Ok(here)) = (cheetah_drive::file::codec::decode(&text, path), DriveFile::load(path)) else {
        return false;
    };
    let age = |file: &DriveFile| {
        let epochs: Vec<_> = file.sets.iter().map(|set| set.epoch).collect();
        (file.sealed.as_ref().map(|seal| seal.epoch), epochs)
    };
    there.id == here.id && age(&here) > age(&there)
}

/// Puts one of the files in place. A custody log that has more records than the one of the room stays.
fn put(drive: &Path, part: Part, content: Option<Vec<u8>>) -> Result<()> {
    let mut path = drive.as_os_str().to_owned();
    path.push(part.suffix());
    let path = PathBuf::from(path);
    let here = std::fs::read(&path).ok();
    match (content, here) {
        (Some(content), Some(here)) if part == Part::Custody && !content.starts_with(&here) => Ok(()),
        (Some(content), here) if here.as_ref() == Some(&content) => Ok(()),
        (Some(content), _) => write_atomically(&path, &content, true),
        (None, Some(_)) if part != Part::Custody => {
            std::fs::remove_file(&path).map_err(|error| Error::io(format_args!("removing {}", path.display()), &error))
        }
        (None, _) => Ok(()),
    }
}
