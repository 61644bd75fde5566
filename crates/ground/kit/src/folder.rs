//! An open folder, in which everything is opened relative to it, and no link is followed: nobody can redirect a read or a write by
//! replacing a name.
//!
//! On Windows, names are looked at before they are opened, and a link that is made in between is followed.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::file::if_there;
use crate::os;

/// The deepest folder that [`Folder::remove_all`] goes into.
const DEPTH_MAX: usize = 16;

/// An open folder.
#[derive(Debug)]
pub struct Folder(os::folder::Folder);

/// What has a name in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A link.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

impl Folder {
    /// Opens the folder at `path`. Its last component is not followed if it is a link; those before it are.
    ///
    /// # Errors
    ///
    /// The system's; [`NotItself::of`](crate::file::NotItself::of) says whether a link is there.
    pub fn open(path: &Path) -> io::Result<Self> {
        // A name that ends with a separator would be followed.
        os::folder::Folder::open(&path.components().collect::<std::path::PathBuf>()).map(Self)
    }

    /// Makes a folder of its owner alone at `path`, where there must be nothing.
    ///
    /// # Errors
    ///
    /// Those of mkdir(2) and open(2).
    pub fn make(path: &Path) -> io::Result<Self> {
        os::folder::make(path)?;
        Self::open(path)
    }

    /// Opens a folder in it.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn folder(&self, name: &str) -> io::Result<Self> {
        self.0.folder(checked(name)?).map(Self)
    }

    /// Makes a folder of its owner alone in it.
    ///
    /// # Errors
    ///
    /// Those of mkdir(2) and open(2).
    pub fn make_folder(&self, name: &str) -> io::Result<Self> {
        self.0.make_folder(checked(name)?)?;
        self.folder(name)
    }

    /// The names in it, in their order, and what has them. Names that are no Unicode are shown with replacements.
    ///
    /// # Errors
    ///
    /// Those of getdents(2).
    pub fn entries(&self) -> io::Result<Vec<(String, Entry)>> {
        let mut entries = self.0.entries()?;
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(entries)
    }

    /// Opens a regular file to read it.
    ///
    /// # Errors
    ///
    /// The system's; [`NotItself::of`](crate::file::NotItself::of) says whether something else is there.
    pub fn read(&self, name: &str) -> io::Result<File> {
        self.0.read(checked(name)?)
    }

    /// Opens a regular file to read it, and to append to it.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn append(&self, name: &str) -> io::Result<File> {
        self.0.append(checked(name)?)
    }

    /// Creates a file of its owner alone, to read it and to append to it. Nothing may have the name.
    ///
    /// # Errors
    ///
    /// Those of open(2).
    pub fn create(&self, name: &str) -> io::Result<File> {
        self.0.create(checked(name)?)
    }

    /// Gives a file or a folder in it another name. What has that name is replaced, unless it is a folder with something in it.
    ///
    /// # Errors
    ///
    /// Those of rename(2).
    pub fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.take(&self.0, checked(from)?, checked(to)?)
    }

    /// Moves what has a name in another folder of the same file system here, under the same name, as [`Self::replace`].
    ///
    /// # Errors
    ///
    /// Those of rename(2).
    pub fn take(&self, from: &Self, name: &str) -> io::Result<()> {
        self.0.take(&from.0, checked(name)?, name)
    }

    /// Removes a file or a link, if there is one.
    ///
    /// # Errors
    ///
    /// Those of unlink(2).
    pub fn remove(&self, name: &str) -> io::Result<()> {
        if_there(self.0.remove(checked(name)?)).map(drop)
    }

    /// Removes what has the name, if something does: a folder with all that is in it. Links are removed and not followed.
    ///
    /// # Errors
    ///
    /// The system's, and if folders are too deep.
    pub fn remove_all(&self, name: &str) -> io::Result<()> {
        let is_folder = self.entries()?.iter().any(|(entry, is)| entry == name && *is == Entry::Folder);
        self.remove_within(name, is_folder, 0)
    }

    fn remove_within(&self, name: &str, is_folder: bool, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(io::Error::new(ErrorKind::InvalidInput, "folders are too deep to be removed"));
        }
        if !is_folder {
            return self.remove(name);
        }
        let folder = self.folder(name)?;
        for (entry, is) in folder.entries()? {
            folder.remove_within(&entry, is == Entry::Folder, depth + 1)?;
        }
        drop(folder);
        if_there(self.0.remove_folder(checked(name)?)).map(drop)
    }

    /// Puts the names on stable storage.
    ///
    /// # Errors
    ///
    /// Those of fsync(2).
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

/// The name, if it is that of something in a folder, and not a way to something else.
fn checked(name: &str) -> io::Result<&str> {
    match name.is_empty() || name == "." || name == ".." || name.contains(['/', '\\', ':', '\0']) {
        true => Err(io::Error::new(ErrorKind::InvalidInput, "it is no name of a file in a folder")),
        false => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Write as _};

    use super::*;

    fn content(mut file: File) -> String {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn files_in_a_folder_are_made_read_moved_and_removed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("case");
        let folder = Folder::make(&path).unwrap();
        assert_eq!(Folder::make(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        folder.create("one").unwrap().write_all(b"1").unwrap();
        assert_eq!(folder.create("one").unwrap_err().kind(), ErrorKind::AlreadyExists);
        folder.append("one").unwrap().write_all(b"2").unwrap();
        let inner = folder.make_folder("inner").unwrap();
        inner.create("one").unwrap().write_all(b"3").unwrap();
        inner.make_folder("deep").unwrap().create("file").unwrap();
        assert_eq!(folder.entries().unwrap(), [("inner".into(), Entry::Folder), ("one".into(), Entry::File)]);
        assert_eq!(content(folder.read("one").unwrap()), "12");
        folder.take(&inner, "one").unwrap();
        assert_eq!(content(folder.read("one").unwrap()), "3");
        folder.replace("one", "two").unwrap();
        folder.remove_all("inner").unwrap();
        folder.remove_all("none").unwrap();
        folder.sync().unwrap();
        assert_eq!(folder.entries().unwrap(), [("two".into(), Entry::File)]);
        for name in ["", ".", "..", "../case/two", "/etc/passwd", "a\\b", "c:"] {
            assert_eq!(folder.read(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        }
        drop(folder);
        fs::remove_dir_all(&path).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_place_of_a_folder_or_a_file_is_not_followed() {
        use std::os::unix::fs::symlink;

        use crate::file::NotItself;

        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/evidence"), "evidence").unwrap();
        symlink(at("real"), at("link")).unwrap();
        for name in ["link", "link/"] {
            let error = Folder::open(&at(name)).unwrap_err();
            assert_eq!(NotItself::of(&error), Some(NotItself::Link), "{error}");
        }
        let folder = Folder::make(&at("case")).unwrap();
        symlink(at("real/evidence"), at("case/journal")).unwrap();
        symlink(at("real"), at("case/carved")).unwrap();
        for error in [
            folder.read("journal").unwrap_err(),
            folder.append("journal").unwrap_err(),
            folder.folder("carved").unwrap_err(),
        ] {
            assert_eq!(NotItself::of(&error), Some(NotItself::Link), "{error}");
        }
        assert_eq!(folder.create("journal").unwrap_err().kind(), ErrorKind::AlreadyExists);
        let links = [("carved".to_owned(), Entry::Link), ("journal".to_owned(), Entry::Link)];
        assert_eq!(folder.entries().unwrap(), links);
        // What the folder's path leads to meanwhile does not matter.
        fs::rename(at("case"), at("away")).unwrap();
        symlink(at("real"), at("case")).unwrap();
        folder.remove_all("journal").unwrap();
        folder.remove_all("carved").unwrap();
        folder.create("evidence").unwrap();
        assert_eq!(fs::read(at("real/evidence")).unwrap(), b"evidence");
        assert!(at("away/evidence").exists());
    }
}
