//! Receives answers with the kernel's timestamps: whole frames where raw sockets are permitted ([`Capture`]), else
//! datagrams ([`datagram::Datagram`]). Systems other than Linux do neither.

pub mod datagram;

use std::io;

use crate::clock::Nanos;
pub use crate::os::capture::Capture;

/// The reason nothing is received.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Raw sockets are not permitted.
    #[error(
        "receiving whole packets needs the right to raw sockets: run it as root, or grant it with \
         'setcap cap_net_raw,cap_sys_nice,cap_ipc_lock+ep' on the cheetah program"
    )]
    NotPermitted,
    /// This system has no sockets for that.
    #[error("this system's sockets do not report ICMP and times of arrival, as Linux's do")]
    NotOffered,
    /// Unprivileged ICMP sockets are not permitted.
    #[error("ICMP sockets are not permitted for this user: see net.ipv4.ping_group_range")]
    NoPing,
    /// The interface is gone or down.
    #[error("the interface {0} is down or gone: bring it up and try again")]
    Down(String),
    /// The kernel refused.
    #[error("packets cannot be received: {0}")]
    Io(#[from] io::Error),
}

/// A received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Captured<'a> {
    /// When the kernel received it from the interface's driver.
    pub at: Nanos,
    /// The frame, Ethernet header first.
    pub frame: &'a [u8],
}
