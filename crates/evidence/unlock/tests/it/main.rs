//! Locked volumes that others made: by cryptsetup now, and by Windows and Linux before.

#![allow(clippy::unwrap_used)]

mod apfs;
mod apple;
mod bitlocker;
mod common;
mod core_storage;
mod luks;
mod used_space;
mod veracrypt;
mod vista;
