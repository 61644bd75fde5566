//! What can be done about a measurement.

use serde::{Deserialize, Serialize};

/// What can be done about a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Measure {
    /// The limit of packets and bytes is reached.
    AllowMorePackets,
    /// Connecting gave no round trip.
    NameOpenPort,
    /// The size of the sectors is not certain.
    GiveSectorSize,
}
