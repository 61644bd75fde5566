//! What a user can do after a failure: the facts, without a verb or an option of the command line.

mod acquisition;
mod attach;
mod drive;
mod files;
mod layout;
mod lease;
mod measure;
mod node;
mod room;
mod seal;
mod search;
mod source;

use std::error::Error as StdError;
use std::io;

use cheetah_device::Error as DeviceError;
use cheetah_device::error::{EKEYREJECTED, EKEYREVOKED, ENOKEY, ENONET, EPROTONOSUPPORT, Withheld};
use cheetah_device::visible::is_control;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

pub use acquisition::Acquisition;
pub use attach::Attach;
pub use drive::Drive;
pub use files::Files;
pub use layout::Layout;
pub use lease::Lease;
pub use measure::Measure;
pub use node::Node;
pub use room::Room;
pub use seal::Seal;
pub use search::Search;
pub use source::Source;

/// A step that a user can take after a failure. As JSON, it is an object with the name of the `step`, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Next {
    /// What can be done about an acquisition, and about what it writes.
    Acquisition(Acquisition),
    /// What can be done about files that are in the way, or do not fit.
    Files(Files),
    /// What can be done about a source that cannot be used as it was asked for.
    Source(Source),
    /// What can be done if another process has the right to write to a drive, or to fill it.
    Lease(Lease),
    /// What can be done if a drive cannot be laid out over its nodes.
    Layout(Layout),
    /// What can be done about a drive.
    Drive(Drive),
    /// What can be done about a node.
    Node(Node),
    /// What can be done about the key of a sealed drive.
    Seal(Seal),
    /// What can be done about a room, and about membership in it.
    Room(Room),
    /// What can be done about a mount or a block device.
    Attach(Attach),
    /// What can be done about a measurement.
    Measure(Measure),
    /// What can be done about a search that writes to a folder.
    Search(Search),
}

impl Next {
    /// The next step for a device's error, if it has one.
    pub fn of_device(error: &DeviceError) -> Option<Self> {
        match error {
            DeviceError::Withheld { reason: Withheld::BeyondLayout, .. } => Some(Drive::RefetchOrRewrite.into()),
            DeviceError::Withheld { reason: Withheld::Unverified, .. } => Some(Seal::TakeUnverified.into()),
            _ => None,
        }
    }

    /// The next step for a connection that failed with this error of the operating system, if it has one.
    pub fn of_connection(errno: i32) -> Option<Self> {
        match errno {
            EKEYREVOKED => Some(Room::RejoinByInvitation.into()),
            EKEYREJECTED | ENOKEY | ENONET => Some(Room::SayRoom.into()),
            EPROTONOSUPPORT => Some(Room::StartWithRoom.into()),
            _ => None,
        }
    }

    /// Whether all names in it are short and safe to print.
    fn can_be_shown(&self) -> bool {
        let fields = serde_json::to_value(self).unwrap_or_default();
        let mut names = fields.as_object().into_iter().flatten().filter_map(|(_, field)| field.as_str());
        names.all(|name| name.chars().take(NAME_CHARS_MAX + 1).count() <= NAME_CHARS_MAX && !name.contains(is_control))
    }

    /// The step as JSON, for an event of the log and for Python.
    pub fn record(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The next steps of an error of the operating system, or of a connection, that wraps an error of ours.
    pub fn of_io(error: &io::Error) -> Vec<Self> {
        let mut cause = error.get_ref().map(|inner| inner as &(dyn StdError + 'static));
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<crate::Error>() {
                return error.steps().to_vec();
            }
            // An error of the system shows the error that it wraps as itself.
            cause = match error.downcast_ref::<io::Error>() {
                Some(error) => error.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
                None => error.source(),
            };
        }
        Vec::new()
    }
}

/// The most next steps of another program that are shown.
const STEPS_MAX: usize = 4;
/// The most characters of a name in one of them.
const NAME_CHARS_MAX: usize = 200;

/// Reads next steps that another program sent, without those that this one does not know. That program may be hostile: no
/// more than 4 are taken, and none with a name that is longer than 200 characters or changes how text is shown.
///
/// # Errors
///
/// If it is no list.
pub fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Next>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Step {
        Known(Next),
        Other(IgnoredAny),
    }
    let steps = Vec::<Step>::deserialize(deserializer)?;
    let known = steps.into_iter().filter_map(|step| match step {
        Step::Known(next) => Some(next),
        Step::Other(_) => None,
    });
    Ok(known.filter(Next::can_be_shown).take(STEPS_MAX).collect())
}

/// Makes a step of each of these kinds one of [`Next`].
macro_rules! kinds_of_next {
    ($($kind:ident),*) => {
        $(impl From<$kind> for Next {
            fn from(step: $kind) -> Self {
                Self::$kind(step)
            }
        })*
    };
}

kinds_of_next!(Acquisition, Files, Source, Lease, Layout, Drive, Node, Seal, Room, Attach, Measure, Search);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(steps: &serde_json::Value) -> Vec<Next> {
        known(steps).unwrap()
    }

    #[test]
    fn steps_of_a_hostile_program_are_few_short_and_safe_to_print() {
        let unmount = |dir: &str| serde_json::json!({ "step": "unmount", "dir": dir });
        let good = [Next::from(Attach::Unmount { dir: "/mnt".into() })];
        assert_eq!(read(&serde_json::json!([{ "step": "of tomorrow" }, unmount("/mnt")])), good);
        for bad in ["/mnt\nerror: forged", "/mnt\u{202e}", &"x".repeat(NAME_CHARS_MAX + 1)] {
            assert_eq!(read(&serde_json::json!([unmount(bad), unmount("/mnt")])), good, "{bad:?}");
        }
        let many: Vec<_> = (0..1000).map(|_| unmount("/mnt")).collect();
        assert_eq!(read(&many.into()).len(), STEPS_MAX);
    }
}
