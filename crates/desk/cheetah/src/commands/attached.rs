//! The text by which the kernel recognises what a block device is made of.

use cheetah_device::path_text::text_to_path;
use cheetah_image::{Identity, Kind};
use cheetah_kit::file::Status;
use cheetah_source::Access;
use serde::Serialize;

/// Digits of the digest in an identifier: those of 128 bits.
const DIGITS: usize = 32;
/// The longest name of a volume that an identifier has. The evidence chooses it, and an identifier has a greatest length.
const NAME_BYTES_MAX: usize = 128;

/// How a source is used. A device can only be resumed for the same use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It is read.
    Read,
    /// It is written.
    Write,
    /// It is read, and writes are kept apart; they end with the process.
    Overlay,
}

impl Use {
    /// The use that the options ask for.
    pub fn of(access: &Access) -> Self {
        match (access.overlay.is_some(), access.writable) {
            (true, _) => Self::Overlay,
            (false, true) => Self::Write,
            (false, false) => Self::Read,
        }
    }

    /// Whether programs may write.
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Overlay => "overlay",
        }
    }
}

/// Returns a text that is the same for each opening of the same evidence for the same use: `cheetah:read:drive:` and the
/// drive's id, or `cheetah:read:e01:` and a digest of the image's identity. Sources `beside` it, in any order, add a digest, and a volume
/// of it adds its name.
pub fn identifier<'a>(
    identity: &Identity,
    beside: impl Iterator<Item = &'a Identity>,
    volume: Option<&str>,
    how: Use,
) -> String {
    let mut others: Vec<_> = beside.map(|other| format!("{}:{}", other.kind, what(other))).collect();
    others.sort_unstable();
    let others = if others.is_empty() { String::new() } else { format!(":{}", digits(&others.join(" "))) };
    let which = match volume {
        Some(name) if name.len() > NAME_BYTES_MAX => format!(":{}", digits(name)),
        Some(name) => format!(":{name}"),
        None => String::new(),
    };
    format!("cheetah:{}:{}:{}{others}{which}", how.name(), identity.kind, what(identity))
}

/// What tells a source from others of its kind.
fn what(identity: &Identity) -> String {
    match (&identity.serial, identity.kind) {
        (Some(id), Kind::Drive) => id.chars().filter(char::is_ascii_alphanumeric).take(DIGITS).collect(),
        _ => digest(identity),
    }
}

fn digits(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().chars().take(DIGITS).collect()
}

/// The facts that the digest of an image without an id is made of.
#[derive(Debug, Serialize)]
struct Digested<'a> {
    identity: &'a Identity,
    /// Device, inode and time of the last change of the file.
    file: Option<(u64, u64, i64, i64)>,
}

fn digest(identity: &Identity) -> String {
    let path = text_to_path(&identity.location);
    let (mut known, mut file) = (Identity { write_protected: None, ..identity.clone() }, None);
    if !identity.kind.is_remote()
        && let Ok(absolute) = path.canonicalize()
    {
        file = Status::at(&absolute).ok().map(|status| {
            let (seconds, nanoseconds) = status.modified;
            (status.id.volume, status.id.number as u64, seconds, nanoseconds)
        });
        known.location = absolute.to_string_lossy().into_owned();
    }
    // A disk's file changes its times without a change of the disk.
    let file = file.filter(|_| identity.kind != Kind::Block);
    // A map, whose names are in order, so that the text is the same in every version.
    let digested = Digested { identity: &known, file };
    // Every identity can be written as JSON; if one could not, no other has its text either.
    let text = serde_json::to_value(&digested).map_or_else(|_| format!("{digested:?}"), |value| value.to_string());
    digits(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identifier of a source alone.
    fn identifier(identity: &Identity, volume: Option<&str>, how: Use) -> String {
        super::identifier(identity, std::iter::empty(), volume, how)
    }

    #[test]
    fn an_identifier_names_the_evidence_and_its_use() {
        let drive =
            Identity { serial: Some("0123456789abcdef".repeat(2)), ..Identity::new(Kind::Drive, "a.drive", 512) };
        let moved = Identity { location: "/elsewhere/a.drive".into(), ..drive.clone() };
        assert_eq!(identifier(&drive, None, Use::Read), "cheetah:read:drive:0123456789abcdef0123456789abcdef");
        assert_eq!(identifier(&drive, None, Use::Read), identifier(&moved, None, Use::Read));
        assert_ne!(identifier(&drive, None, Use::Read), identifier(&drive, None, Use::Write));
        assert!(identifier(&drive, Some("p2.unlocked"), Use::Read).ends_with("cdef:p2.unlocked"));
    }

    #[test]
    fn another_file_in_place_of_an_image_has_another_identifier() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.raw");
        let of = || identifier(&Identity::new(Kind::Raw, path.to_str().unwrap(), 512), None, Use::Read);
        std::fs::write(&path, [0; 512]).unwrap();
        let first = of();
        assert_eq!(first, of());
        let other = dir.path().join("b.raw");
        std::fs::write(&other, [1; 512]).unwrap();
        std::fs::rename(other, &path).unwrap();
        assert_ne!(first, of());
    }

    #[test]
    fn a_volume_over_other_disks_has_another_identifier() {
        let [first, second, third] = ["a", "b", "c"].map(|id| Identity {
            serial: Some(id.repeat(32)),
            ..Identity::new(Kind::Drive, format!("{id}.drive"), 512)
        });
        let with = |others: &[&Identity]| super::identifier(&first, others.iter().copied(), Some("md0"), Use::Read);
        assert_eq!(with(&[&second, &third]), with(&[&third, &second]));
        assert!(with(&[&second]) != with(&[&third]) && with(&[&second]) != with(&[]));
        assert_eq!(with(&[]), identifier(&first, Some("md0"), Use::Read));
        let long = |name: &str| super::identifier(&first, [&second].into_iter(), Some(name), Use::Overlay);
        let (one, other) = (long(&"x".repeat(1000)), long(&"y".repeat(1000)));
        assert!(one.len() <= 256 && one != other, "{one}");
    }
}
