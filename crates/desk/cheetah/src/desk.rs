//! What the command line hands to a verb, besides its arguments.

use crate::room::Upkeep;

/// The process as a verb finds it.
pub struct Desk {
    /// What `--room` names.
    pub room: Option<String>,
    /// The upkeep of the membership that the verb acts as, if it takes part in a room.
    pub upkeep: Option<Upkeep>,
}
