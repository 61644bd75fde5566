//! Protocol data units (RFC 7143, section 11): headers, framing, `key=value` texts. No I/O.

pub mod frame;
mod header;
pub mod request;
pub mod response;
pub mod serial;
pub mod text;

pub use self::frame::Digests;
pub use self::header::{HEADER_LEN, Header, Opcode};
pub use self::response::{Response, Sequence};

/// The reserved tag that means "none", for initiator task tags and target transfer tags.
pub const NO_TAG: u32 = 0xFFFF_FFFF;

/// A violation of the protocol by the target; the connection is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the target broke the protocol: {0}")]
pub struct Violation(std::borrow::Cow<'static, str>);

impl Violation {
    /// Describes the violation.
    pub fn new(what: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self(what.into())
    }
}
