//! What is known of a source and not shown.

use std::time::Duration;

use cheetah_device::visible::OneLine;
use cheetah_error::Error;
use cheetah_volume::{lvm, md, vss};

use super::limits::DEPTH_MAX;

/// Something in a source that is known and not shown: a sentence without its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotShown {
    /// An array, or a member of one.
    #[error("{0}")]
    Array(md::NotOpened),
    /// A logical volume, or a physical one.
    #[error("{0}")]
    Logical(lvm::NotOpened),
    /// Those of a kind that are more than a limit.
    #[error("more than {max} {kind} are in {holder}, and the others are left out")]
    TooMany {
        /// The limit.
        max: usize,
        /// What they are.
        kind: &'static str,
        /// The volume that they are in: `it` is the source.
        holder: String,
    },
    /// Another source that does not fit behind this one.
    #[error("{} is too large to be looked at", OneLine(.0))]
    LargeSource(String),
    /// A volume that does not fit behind the source: what it is.
    #[error("the {0} is too large to be opened")]
    LargeVolume(String),
    /// A volume with the name of another one.
    #[error("a volume {} is left out: another one has its name, too", OneLine(.0))]
    SameName(String),
    /// What a volume holds that lies in many others.
    #[error("what {} holds is not looked for: it lies in {DEPTH_MAX} others", OneLine(.0))]
    TooDeep(String),
    /// The content of a volume.
    #[error("{} could not be examined for known formats: {why}", OneLine(.name))]
    Unread {
        /// The name of the volume.
        name: String,
        /// Why.
        why: String,
    },
    /// What cannot be put over the source.
    #[error("{0}")]
    Step(Error),
    /// The shadow copies of a volume.
    #[error("the shadow copies of {} are not listed: {why}", OneLine(.of))]
    Catalog {
        /// The name of the volume: `it` is the source.
        of: String,
        /// Why.
        why: vss::Defect,
    },
    /// The shadow copies of a source whose catalog was not read in this time.
    #[error("the shadow copies of it are not listed: that takes longer than {0:?}")]
    SlowCatalog(Duration),
    /// A shadow copy.
    #[error("the shadow copy {} is not opened: {why}", OneLine(.name))]
    Copy {
        /// Its name.
        name: String,
        /// Why.
        why: vss::Defect,
    },
}
