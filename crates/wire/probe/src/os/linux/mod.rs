//! Linux: raw sockets, the kernel's queues and timestamps, rtnetlink.

pub mod capture;
pub mod clock;
pub mod route;
pub mod send;
pub mod socket;
