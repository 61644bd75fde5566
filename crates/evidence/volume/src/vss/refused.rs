//! Why shadow copies are not listed or not opened.

use std::fmt;

use cheetah_device::Error as DeviceError;

/// A kind of structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The header of the volume.
    Header,
    /// A block of the catalog.
    Catalog,
    /// The header of a store.
    Store,
    /// A block of the list of what a store keeps.
    List,
    /// An entry of that list.
    Descriptor,
    /// A block of a bitmap of a store.
    Bitmap,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "header of VSS",
            Self::Catalog => "catalog block",
            Self::Store => "store header",
            Self::List => "block list",
            Self::Descriptor => "block descriptor",
            Self::Bitmap => "bitmap block",
        })
    }
}

/// What is wrong with a structure: a predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It is not what it should be.
    #[error("does not begin with the identifier of VSS")]
    Identifier,
    /// Its version is not known.
    #[error("has a version that is not known")]
    Version,
    /// It is another structure.
    #[error("is of another kind")]
    Kind,
    /// The volume is no NTFS volume, or its boot sector is damaged.
    #[error("is in a volume whose boot sector does not name NTFS")]
    NotNtfs,
    /// It was copied from another place.
    #[error("says that it lies elsewhere")]
    Place,
    /// It would not fit.
    #[error("lies beyond the end of the volume")]
    Beyond,
    /// Its list is a circle.
    #[error("is in its list twice")]
    Twice,
    /// Its list passes a limit.
    #[error("is one more of its list than are supported")]
    LongList,
    /// An entry of the catalog is of another kind.
    #[error("has an entry of a kind that is not known")]
    Entry,
    /// The catalog passes a limit.
    #[error("has more entries than there can be shadow copies")]
    ManyEntries,
    /// The order of shadow copies is not certain.
    #[error("has two shadow copies of the same time")]
    SameTime,
    /// Which store is that of a shadow copy is not certain.
    #[error("has two entries with one identifier")]
    SameId,
    /// A descriptor is of another kind.
    #[error("has flags that are not known")]
    Flags,
    /// A descriptor is about something else than a block.
    #[error("names no block of the shadow copy")]
    Original,
    /// A forwarder leads nowhere.
    #[error("forwards to no block of the shadow copy")]
    Target,
    /// What is kept of a block would not fit.
    #[error("has its content beyond the end of the volume")]
    Content,
    /// The stores pass a limit.
    #[error("has one block too many: more than 128 GiB of blocks are not supported")]
    ManyBlocks,
    /// A bitmap leaves out what every volume has.
    #[error("begins a bitmap by which the first block of the volume, with its boot sector, was not in use")]
    FirstBlock,
    /// A bitmap passes a limit.
    #[error("begins a bitmap of more than 128 MiB, which is not supported")]
    LargeBitmap,
}

/// Why something is not used: a clause. Places are counted from the start of the volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// A structure contradicts itself, is of a kind that is not known, or passes a limit.
    #[error("the {part} at byte {at} of the volume {why}")]
    Damaged {
        /// The structure.
        part: Part,
        /// Its place.
        at: u64,
        /// What is wrong with it.
        why: Damage,
    },
    /// A structure could not be read.
    #[error("the {part} at byte {at} of the volume could not be read: {error}")]
    Unread {
        /// The structure.
        part: Part,
        /// Its place.
        at: u64,
        /// Why.
        error: DeviceError,
    },
    /// The catalog says of no store in the volume.
    #[error("the catalog names no store for it in this volume")]
    NoStore,
    /// It is larger than the volume.
    #[error("it has {0} bytes, more than the volume")]
    TooLarge(u64),
    /// The store of a later shadow copy cannot be used.
    #[error("it needs the store of the later one, number {number}: {why}")]
    Later {
        /// The number of the later one.
        number: u32,
        /// Why its store cannot be used.
        why: Box<Self>,
    },
}
