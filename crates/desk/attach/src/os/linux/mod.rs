//! The drivers of Linux.

pub mod block;
pub(crate) mod blocking;
pub mod fuse;
pub(crate) mod kernel;
pub mod nbd;
pub(crate) mod table;
pub(crate) mod task;
#[cfg(feature = "ublk")]
pub mod ublk;

pub use fuse::{Mount, mount, unmount};
