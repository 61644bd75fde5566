//! What can be done if another process has the right to write to a drive, or to fill it.

use serde::{Deserialize, Serialize};

/// What can be done if another process has the right to write to a drive, or to fill it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Lease {
    /// Another process has the drive open for writing.
    ForceLease,
    /// Too few nodes answer to be sure that no other process writes.
    ForceLeaseIfAlone,
    /// Too few nodes grant the lease to be sure that no other writer has it.
    BringBackOrForceLease,
    /// A process has the drive open for writing.
    CloseOrForceLease,
    /// A process has the drive open for writing, and does not repair it.
    CloseOrTakeLease,
    /// Another process fills the drive.
    ShareOrTakeFill,
}
