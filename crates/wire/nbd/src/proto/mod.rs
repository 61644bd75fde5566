//! The wire format of NBD: numbers, flags, requests and replies. No I/O.
//!
//! It follows the [specification](https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md);
//! the documentation of each item gives its name there.

mod code;
mod flags;
pub mod option;
pub mod packed;
pub mod reply;
mod request;
mod wire;

pub use code::ErrorCode;
pub use flags::{ClientFlags, CommandFlags, HandshakeFlags, TransmissionFlags};
pub use request::{Command, Request};
pub use wire::Reader;

/// First magic number of every server ("NBDMAGIC", `INIT_PASSWD`).
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second magic number of a newstyle server, and the magic number before each option ("IHAVEOPT").
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Magic number before each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_REQUEST_MAGIC`
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// `NBD_SIMPLE_REPLY_MAGIC`
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// The longest string the protocol allows, in bytes: names of exports and contexts, messages.
pub const STRING_LEN_MAX: usize = 4096;
/// The most data we accept in one option or one reply to an option, in bytes.
pub const OPTION_LEN_MAX: usize = 64 << 10;
/// The most data we accept or send with one request, in bytes; every server must support this much.
pub const PAYLOAD_LEN_MAX: u32 = 32 << 20;
/// The most metadata queries we accept in one option.
pub const META_QUERIES_MAX: usize = 32;
/// The most options we answer on one connection.
pub const OPTIONS_MAX: usize = 1024;
/// The most extents in one reply to a block status request, as the specification advises.
pub const EXTENTS_MAX: usize = 1 << 20;

/// The metadata context for allocation, defined by the specification.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The namespace of this project's own metadata contexts.
pub const X_CHEETAH: &str = "x-cheetah:";

/// `NBD_STATE_HOLE` of `base:allocation`: the extent takes no space.
pub const STATE_HOLE: u32 = 1;
/// `NBD_STATE_ZERO` of `base:allocation`: the extent reads as zeros.
pub const STATE_ZERO: u32 = 2;

/// The peer violated the protocol; the connection must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the peer violated the NBD protocol: {0}")]
pub struct Violation(pub String);

impl Violation {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}
