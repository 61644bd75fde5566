//! Bringing evidence in: the agent on the suspect's machine, acquisition into images and drives, and the custody log.

// One module of the agent makes an ioctl and says so.
#![deny(unsafe_code)]

pub mod acquire;
pub mod agent;
pub mod custody;
mod engine;
mod journal;
pub mod load;
pub mod reader;
mod report;
mod sink;
