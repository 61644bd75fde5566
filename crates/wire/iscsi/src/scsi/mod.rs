//! The part of SCSI that a reader needs: commands, returned data and sense data. No I/O.

mod cdb;
mod data;
mod sense;

pub use self::cdb::Cdb;
pub use self::data::{BlockLimits, Capacity, Standard, parse_write_protected, serial_number};
pub use self::sense::{NotReadyReason, Sense, SenseKey, status_text};

/// The command succeeded.
pub const GOOD: u8 = 0x00;
/// The command failed, or the unit has a condition to report; sense data has the details.
pub const CHECK_CONDITION: u8 = 0x02;
/// The logical unit is busy.
pub const BUSY: u8 = 0x08;
/// Another initiator has reserved the logical unit.
pub const RESERVATION_CONFLICT: u8 = 0x18;
/// Too many commands are outstanding.
pub const TASK_SET_FULL: u8 = 0x28;
