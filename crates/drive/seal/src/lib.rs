//! Sealed drives: the client encrypts and authenticates, and nodes hold ciphertext only.
//!
//! The format is specified in `docs/reference/seal-format.md`. Parts without I/O:
//!
//! | module | content |
//! |---|---|
//! | [`units`] | where units lie: sizes, offsets |
//! | [`stamp`] | the version of a unit: an epoch and a counter |
//! | [`mod@unit`] | sealing and opening one unit |
//! | [`epoch`] | a writer's epoch |
//! | [`record`] | the record of a drive: its epochs, the stamp of each unit, and the root over them |
//! | [`log`] | what follows the record in its file: changed stamps, and copies of units that a crash could tear |
//! | [`age`] | the drive's key, wrapped in the `age` format |
//! | [`key`] | the drive's key, and the keys derived from it |
//! | [`lent`] | keys that are lent to a node for a job |
//!
//! And with I/O: [`device`], the sealed device over the device of the nodes; [`keyring`], identities
//! and the keys that they opened. Keys are in [locked memory](cheetah_kit::locked).

#![forbid(unsafe_code)]

pub mod age;
pub mod device;
pub mod epoch;
pub mod error;
pub mod key;
pub mod keyring;
pub mod lent;
pub mod log;
pub mod record;
pub mod stamp;
pub mod unit;
pub mod units;
mod variables;

pub use device::{RecordStore, Sealed};
pub use epoch::Epoch;
pub use error::SealError;
pub use key::DriveKey;
pub use keyring::Keyring;
pub use record::Record;
pub use stamp::Stamp;
pub use units::Units;
