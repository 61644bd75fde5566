//! What can be done about a drive.

use serde::{Deserialize, Serialize};

/// What can be done about a drive.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Drive {
    /// The drive is not filled yet.
    Fill {
        /// The drive's name.
        drive: String,
    },
    /// The drive is still being filled.
    AwaitFill,
    /// Chunks of the drive are not what the source sent.
    FillAgain,
    /// Not every node has the content of the drive.
    Repair,
    /// Nodes missed writes.
    SeeRepair,
    /// The drive file cannot be written.
    RepairWritable,
    /// More of the drive was lost than its layout survives.
    RefetchOrRewrite,
    /// Lost ranges are not all fetched again.
    GoOnRefetching {
        /// The drive's name.
        drive: String,
    },
    /// The source does not have what was written to the drive.
    SavePartial,
    /// Two writers have written to the drive apart from each other.
    Decide {
        /// The drive's name.
        drive: String,
        /// A node of one side.
        one: String,
        /// A node of the other side.
        other: String,
    },
    /// There are no two sides.
    LeaveOutKeep,
    /// The drive has no redundancy.
    Verify,
    /// More of the kind follows without a message.
    SeeVerify,
    /// What was read is not what was loaded.
    SeeDifferences,
    /// The file is not one of a drive.
    NameDriveFile,
    /// There is no such file of a drive.
    FindDriveFile,
    /// There is a file of a drive already.
    DestroyFirst {
        /// The file.
        path: String,
    },
    /// A drive with lost nodes cannot be written.
    OpenReadOnly,
    /// More nodes are missing than the layout survives.
    BringBackOrReadRest,
    /// Too few nodes answer to be sure of the last writes.
    BringBackOrAllowLost,
    /// A node of the drive is missing.
    BringBackOrRepair,
    /// A drive without redundancy cannot be moved.
    SaveImage,
    /// Nobody moves a part of the drive.
    DrainDrive {
        /// The node's name.
        node: String,
        /// The file of the drive.
        drive: String,
    },
}
