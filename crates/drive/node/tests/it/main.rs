//! Whole nodes over real sockets, and their store against a model.

#![allow(clippy::unwrap_used, reason = "tests")]

mod jobs;
mod lent;
mod node;
mod openapi;
mod replaced;
mod roles;
mod store;
