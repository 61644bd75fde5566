//! Asking the kernel's drivers to make, change and end block devices.
//!
//! [`netlink`] and `uapi` have the layouts of their messages, and do no I/O.

pub(crate) mod nbd;
pub(crate) mod netlink;
#[cfg(feature = "ublk")]
pub(crate) mod uapi;
#[cfg(feature = "ublk")]
pub(crate) mod ublk;
