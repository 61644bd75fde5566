//! Windows: its disks and volumes, by their drivers' answers.

mod disks;
mod files;
mod protect;
mod remarks;

pub(crate) use disks::disks;
pub(crate) use files::{forget_cached, next_data, stored_bytes};
pub(crate) use protect::{check_rights, protect};
pub(crate) use remarks::{export_name, remarks};
