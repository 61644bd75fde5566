//! Locked volumes that others made: by cryptsetup now, and by Windows and Linux before.

#![allow(clippy::unwrap_used)]

mod bitlocker;
mod common;
mod luks;
mod veracrypt;
mod vista;
