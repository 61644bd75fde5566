//! What can be done about a mount or a block device.

use serde::{Deserialize, Serialize};

/// What can be done about a mount or a block device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Attach {
    /// A mount is left whose process is gone.
    Unmount {
        /// The directory.
        dir: String,
    },
    /// Something is mounted on the directory.
    OtherDirOrUnmount {
        /// The directory.
        dir: String,
    },
    /// Files on the mount are open.
    CloseFiles {
        /// The directory.
        dir: String,
    },
    /// Only root can attach block devices.
    RootOrMount,
    /// The kernel has no NBD client.
    LoadNbdOrMount,
    /// The kernel has no ublk.
    LoadUblkOrOther,
    /// The kernel's ublk is too old.
    UseNbd,
    /// The block device is taken.
    FreeDevice {
        /// The block device.
        device: String,
    },
    /// Every block device is taken.
    DetachOne,
    /// The kernel refuses writes to the block device.
    AllowWrites {
        /// The block device.
        device: String,
    },
    /// The kernel cannot attach it.
    UseMount,
    /// The block device is in use.
    CutOff,
    /// This operating system has neither mounts nor block devices of programs.
    ExportOrGoThere,
}
