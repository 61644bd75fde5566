//! Locked volumes that others made: by cryptsetup now, and by Windows and Linux before.

mod bitlocker;
mod common;
mod luks;
