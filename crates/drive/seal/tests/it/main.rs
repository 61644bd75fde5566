//! Tests of the sealed device over memory.

// Tests may panic; their sizes are a few MiB.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod crash;
mod crash_points;
mod full_disk;
mod hostile;
mod model;
mod support;
mod vectors;
