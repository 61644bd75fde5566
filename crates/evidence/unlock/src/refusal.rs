//! Why a volume, or one way to open it, is refused.

use cheetah_device::Error as DeviceError;
use cheetah_volume::apple::Flaw;

/// Why a volume stays locked although it is known: a clause about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No key opens it.
    #[error("none of the keys opens it{}", list(untried))]
    WrongKeys {
        /// The ways to open it that could not be tried, and why.
        untried: Vec<Untried>,
    },
    /// Keys open some of its volumes, and not all.
    #[error("not all of its volumes are open{}", list(closed))]
    Partly {
        /// Those that are not, and why: a clause each.
        closed: Vec<String>,
    },
    /// It uses something that is not supported.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// What is said about it contradicts itself, or its checksum is wrong.
    #[error("its header is damaged: {0}")]
    Damaged(&'static str),
    /// It could not be read.
    #[error("it could not be read: {0}")]
    Unread(#[from] DeviceError),
    /// To try a key would take more time or memory than an image may ask for, or than there is.
    #[error("{0}")]
    TooCostly(String),
    /// It is a header alone, and no volume shows a known format with it.
    #[error("no volume without a known format has one when it is decrypted with that header")]
    NoVolume,
    /// It lies where another volume is open.
    #[error("one of the keys opens it, but another opens a volume in the same place: it is read with its key alone")]
    Covered,
    /// No memory for the keys.
    #[error("no memory can be had for its keys: {0}")]
    NoMemory(String),
    /// The work was given up: the program is ending.
    #[error("the work on it was given up")]
    GivenUp,
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::NoMemory(cheetah_device::os_error::describe(&error))
    }
}

impl From<Flaw> for Refusal {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Damaged(what) => Self::Damaged(what),
            Flaw::Unsupported(what) => Self::Unsupported(what),
            Flaw::Unread(error) => Self::Unread(error),
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// A way to open a volume that was not tried, and why: a clause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untried {
    /// A key slot of LUKS.
    #[error("key slot {number} was not tried: {why}")]
    Slot {
        /// Its number.
        number: u32,
        /// Why.
        why: Box<Refusal>,
    },
    /// A user of an Apple volume, or a header of a VeraCrypt volume.
    #[error("the {what} was not tried: {why}")]
    Way {
        /// Its kind and its name.
        what: String,
        /// Why.
        why: Box<Refusal>,
    },
    /// A key, on a header of a VeraCrypt volume.
    #[error("a key was not tried on the {header}: {why}")]
    Key {
        /// Which header.
        header: &'static str,
        /// Why.
        why: Box<Refusal>,
    },
    /// A volume of a container, which uses something that is not supported.
    #[error("the volume \"{name}\" was not tried: {what} is not supported")]
    Volume {
        /// Its name.
        name: String,
        /// What is not supported.
        what: &'static str,
    },
    /// A volume of a container that has no key.
    #[error("the volume \"{0}\" has no key")]
    NoKey(String),
    /// A volume of a container that cannot be described.
    #[error("a volume was not tried: {0}")]
    Unread(Flaw),
}

/// Puts them in order, each once.
pub(crate) fn sort(untried: &mut Vec<Untried>) {
    untried.sort_by_cached_key(ToString::to_string);
    untried.dedup();
}

fn list<T: std::fmt::Display>(clauses: &[T]) -> String {
    clauses.iter().map(|one| format!("; {one}")).collect()
}
