//! Bringing evidence in: the agent on the suspect's machine, and acquisition into images and drives.

// One module makes an ioctl and says so.
#![deny(unsafe_code)]

pub mod acquire;
pub mod agent;
mod engine;
mod journal;
pub mod load;
pub mod order;
mod os;
pub mod reader;
mod report;
mod sink;
