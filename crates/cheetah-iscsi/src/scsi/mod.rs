//! SCSI, as far as a reader needs it: commands, what they return, and what went wrong. No I/O.

mod cdb;
mod data;
mod sense;

pub use self::cdb::Cdb;
pub use self::data::{BlockLimits, Capacity, Standard, parse_write_protected, serial_number};
pub use self::sense::{Sense, SenseKey, Unreadiness, status_text};

/// The command succeeded.
pub const GOOD: u8 = 0x00;
/// The command failed, or something else is to be told; sense data says what.
pub const CHECK_CONDITION: u8 = 0x02;
/// The logical unit is too busy for now.
pub const BUSY: u8 = 0x08;
/// Someone else has reserved the logical unit.
pub const RESERVATION_CONFLICT: u8 = 0x18;
/// Too many commands are under way.
pub const TASK_SET_FULL: u8 = 0x28;
