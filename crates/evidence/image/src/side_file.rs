//! Recognises the files that Cheetah keeps beside an image or a drive, so that none is taken for an image. The only I/O
//! is a check whether the image exists.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use cheetah_error::next::Acquisition;
use cheetah_kit::path::from_bytes;

/// A kind of file that Cheetah keeps beside an image.
struct SideFile {
    what: &'static str,
    /// The suffix after the image's name.
    suffix: &'static str,
    /// The first bytes of such a file; empty if it has no signature.
    begins: &'static [u8],
}

const SIDE_FILES: [SideFile; 6] = [
    SideFile { what: "custody log", suffix: ".custody", begins: b"{\"seq\":" },
    SideFile { what: "file of chunk digests", suffix: ".digests", begins: b"" },
    SideFile { what: "coverage map", suffix: ".map", begins: b"# Mapfile. " },
    SideFile { what: "acquisition report", suffix: ".report.txt", begins: b"Acquisition report, Cheetah" },
    SideFile { what: "journal of an unfinished acquisition", suffix: ".acquire", begins: b"" },
    SideFile { what: "file of partial digests", suffix: ".grains", begins: b"" },
];

/// A file that is not an image, but is kept beside one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnImage {
    /// The image is there.
    #[error("{path} is the {what} of {image}, not an image; give {image} instead", path = .path.display(), image = .image.display())]
    Of {
        /// The file.
        path: PathBuf,
        /// Its kind.
        what: &'static str,
        /// The image.
        image: PathBuf,
    },
    /// The image is not there.
    #[error("{path} is a {what}, not an image, and there is no {image} beside it", path = .path.display(), image = .image.display())]
    Alone {
        /// The file.
        path: PathBuf,
        /// Its kind.
        what: &'static str,
        /// The image.
        image: PathBuf,
    },
}

/// Returns what the file at `path`, which begins with `start`, is instead of an image, if it is such a file.
pub fn refusal(path: &Path, start: &[u8]) -> Option<NotAnImage> {
    SIDE_FILES.iter().find_map(|kind| {
        let image = image_of(path, kind.suffix)?;
        let (path, what) = (path.to_owned(), kind.what);
        let partial = PathBuf::from(with_ending(image.as_os_str(), ".partial"));
        if image.exists() || partial.exists() {
            return Some(NotAnImage::Of { path, what, image });
        }
        let is_one = !kind.begins.is_empty() && start.starts_with(kind.begins);
        is_one.then_some(NotAnImage::Alone { path, what, image })
    })
}

/// Returns the custody log beside the image at `path`, if there is one.
pub fn custody_log(path: &Path) -> Option<PathBuf> {
    let log = PathBuf::from(with_ending(path.as_os_str(), ".custody"));
    log.symlink_metadata().is_ok().then_some(log)
}

/// Returns what is wrong and the next step, if the file at `path` is an image that is being acquired.
pub fn unfinished(path: &Path) -> Option<(String, Acquisition)> {
    let image = image_of(path, ".partial")?;
    let journal = image.with_file_name(with_ending(image.file_name()?, ".acquire"));
    let next = if journal.exists() { Acquisition::FinishImage } else { Acquisition::FinishOrAcquireAnew };
    Some((format!("{} is not finished: it is a part of {}", path.display(), image.display()), next))
}

fn image_of(path: &Path, suffix: &str) -> Option<PathBuf> {
    let name = path.file_name()?.as_encoded_bytes().strip_suffix(suffix.as_bytes())?;
    (!name.is_empty()).then(|| path.with_file_name(from_bytes(name.to_vec())))
}

fn with_ending(name: &OsStr, ending: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(ending);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_file_is_refused_and_its_image_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("x.E01"), "image").unwrap();
        std::fs::write(at("y.raw.partial"), "image").unwrap();
        for (name, what, image) in [
            ("x.E01.custody", "custody log", "x.E01"),
            ("x.E01.digests", "file of chunk digests", "x.E01"),
            ("x.E01.report.txt", "acquisition report", "x.E01"),
            ("y.raw.acquire", "journal of an unfinished acquisition", "y.raw"),
        ] {
            let of_image = NotAnImage::Of { path: at(name), what, image: at(image) };
            assert_eq!(refusal(&at(name), b"anything"), Some(of_image));
        }
        let alone = NotAnImage::Alone { path: at("gone.raw.custody"), what: "custody log", image: at("gone.raw") };
        assert_eq!(refusal(&at("gone.raw.custody"), b"{\"seq\":1,"), Some(alone));
        for (name, start) in
            [("roads.map", &b"\0\0"[..]), ("x.E01", b"EVF"), (".custody", b"{\"seq\":1"), ("a.digests", b"")]
        {
            assert_eq!(refusal(&at(name), start), None, "{name}");
        }
    }
}
