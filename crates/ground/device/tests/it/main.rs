//! Layers and stacks of layers, through the public interface.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod layers;
mod model;
mod prefetch;
mod support;
