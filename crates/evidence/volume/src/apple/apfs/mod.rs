//! Encrypted volumes of APFS, as "Apple File System Reference" (Apple) and "Apple File System (APFS)" (J. Metz, libfsapfs) describe them.
//!
//! A container has several volumes. Its key bag, which its identifier decrypts, names a key bag of each encrypted volume; in these lie
//! the keys, which passwords seal. A key encrypts the blocks of a volume where they lie: the nodes of its tree of files, which its object
//! map names, with their numbers; and the content of files, which that tree names, with numbers that are mostly those of the blocks,
//! too, but not where a volume was moved or converted. So all nodes of the tree are read before a block is decrypted
//! ([`encrypted_runs`]).

mod blob;
mod blocks;
mod container;
mod key_bag;
mod node;
mod object_map;
mod runs;
mod superblock;
#[cfg(test)]
mod tests;

use cheetah_device::{ByteRange, Device};

pub use self::blob::{AES_128, AES_256, AES_256_RECOVERY, Blob};
pub use self::container::Container;
pub use self::runs::{Decrypt, Run, encrypted_runs};
pub use self::superblock::{Opener, Volume};
use super::Result;
use super::part::Part;
use crate::checks::Checks;

/// Reads what a container says of its volumes, and the keys of those that are encrypted.
///
/// # Errors
///
/// If it is damaged or cannot be read, or uses something that is not supported.
pub async fn read(device: &dyn Device, range: ByteRange) -> Result<Container> {
    read_with(device, range, Checks::Compared).await
}

/// The same. If checksums are ignored, key bags are taken as if they were decrypted.
pub(crate) async fn read_with(device: &dyn Device, range: ByteRange, checks: Checks) -> Result<Container> {
    Container::read(&Part { device, range }, checks).await
}
