//! Bringing evidence in: the agent on the suspect's machine, acquisition into images and drives, and the custody log.

#![forbid(unsafe_code)]

pub mod acquire;
pub mod agent;
pub mod custody;
mod engine;
mod journal;
pub mod reader;
mod report;
mod sink;
