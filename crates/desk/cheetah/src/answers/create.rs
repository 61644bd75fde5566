//! The answers of `create` and `enlarge`.

use std::borrow::Cow;
use std::net::SocketAddr;

use cheetah_drive::Hashes;
use cheetah_image::BadRange;
use serde::Serialize;

/// The answer of `create`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Create<'a> {
    /// The drive file.
    pub drive: Cow<'a, str>,
    /// Whether the drive is to be filled from its source while it is used.
    pub filling: bool,
    /// Hashes of the image, if one was loaded.
    pub hashes: Option<&'a Hashes>,
    /// The drive's id.
    pub id: &'a str,
    /// Its layout, in words.
    pub layout: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its nodes.
    pub nodes: Vec<NodeShare<'a>>,
    /// The memory of the nodes that serves redundancy, in bytes.
    pub redundancy_bytes: u64,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The number of nodes that may be lost without losing a byte.
    pub survives_losses: usize,
    /// The ranges of the image that could not be read, if one was loaded.
    pub unreadable: Option<&'a Vec<BadRange>>,
    /// Their size in bytes, if an image was loaded.
    pub unreadable_bytes: Option<u64>,
}

/// A node of a new drive.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeShare<'a> {
    /// Its name.
    pub name: &'a str,
    /// The bytes of the drive that it holds.
    pub size_bytes: u64,
}

/// The answer of `enlarge`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Enlarge<'a> {
    /// The drive file.
    pub drive: Cow<'a, str>,
    /// The drive's size before, in bytes.
    pub size_before_bytes: u64,
    /// Its size now, in bytes.
    pub size_bytes: u64,
}

/// The events of `create` and `enlarge` while nodes join.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Gather<'a> {
    /// With `--wait`: the command waits for nodes.
    Waiting {
        /// The address at which they join.
        listen: SocketAddr,
        /// The number of nodes wanted.
        wanted: usize,
    },
    /// With `--wait`: a node joined.
    Joined {
        /// The memory that it has free, in bytes.
        free_bytes: u64,
        /// Its name.
        node: &'a str,
    },
    /// With `--gather`: the drive grows with every node that joins.
    Gathering {
        /// The address at which they join.
        listen: SocketAddr,
    },
    /// With `--gather`: the drive was made, or has grown.
    Grown {
        /// The number of its nodes now.
        nodes: usize,
        /// Its size now, in bytes.
        size_bytes: u64,
    },
}
