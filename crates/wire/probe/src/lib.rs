//! Active measurement of a network path: sends packets at exact times, and estimates the path from the times of the
//! answers.
//!
//! Sending follows OMware (Mok et al., *Improving the packet send-time accuracy in embedded devices*, PAM 2015):
//! packets are prepared and handed over ahead of time, and leave at a time given with them, so that no sleep, clock
//! reading or path through the stack delays the critical moment.
//!
//! These modules do no I/O and are tested without sockets: [`schedule`] computes when packets are due, [`selfcheck`]
//! checks when they left, [`frame`] builds and parses packets, [`estimate`] turns times into estimates, and [`advice`]
//! turns estimates into settings. These do I/O: [`route`] finds the interface, [`send`] sends on time, [`capture`]
//! receives with the kernel's timestamps, [`measure`] runs whole measurements within [`limits`], and [`far`] is a far
//! end that cooperates.

pub mod advice;
pub mod capture;
pub mod clock;
pub mod estimate;
pub mod far;
pub mod frame;
pub mod limits;
pub mod measure;
mod os;
pub mod path;
pub mod route;
pub mod schedule;
pub mod selfcheck;
pub mod send;
pub mod units;
