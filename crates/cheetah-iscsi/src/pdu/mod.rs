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

/// The tag that stands for none (initiator task tags and target transfer tags alike).
pub const NO_TAG: u32 = 0xFFFF_FFFF;

/// What a target did that it must not do; the connection is of no use any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the target broke the protocol: {0}")]
pub struct Violation(std::borrow::Cow<'static, str>);

impl Violation {
    /// Says what it did.
    pub fn new(what: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self(what.into())
    }
}
