//! far
