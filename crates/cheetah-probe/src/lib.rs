//! Active measurement of a path: packets that leave when they are due, and what is learnt from when answers come back.
//!
//! The order of things is that of OMware (Mok et al., *Improving the packet send-time accuracy in embedded devices*, PAM
//! 2015): packets are prepared and handed over ahead of time, and leave at a time given with them, so that neither a sleep, nor
//! a clock reading, nor the way through the stack falls on the critical moment.
//!
//! What thinks does no input or output, and is tested without sockets: [`schedule`] says when packets are due, [`selfcheck`]
//! judges when they left, [`frame`] puts packets together and takes them apart, [`estimate`] makes figures of times, [`advice`]
//! makes decisions of figures. Around it: [`route`] finds the way out, [`send`] sends on time, [`capture`] receives with the
//! kernel's timestamps, [`measure`] runs whole measurements within [`limits`], and [`far`] is the end that cooperates.

pub mod advice;
pub mod capture;
pub mod clock;
pub mod estimate;
pub mod far;
pub mod frame;
pub mod limits;
pub mod measure;
pub mod path;
pub mod route;
pub mod schedule;
pub mod selfcheck;
pub mod send;
pub mod units;
