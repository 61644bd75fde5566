//! Searching devices, compared with a naive search of all of their bytes.

// Tests may panic; their sizes are a few KiB.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod naive;
mod places;
mod property;
mod runs;
mod support;
