//! The JSON messages exchanged with a far end that cooperates.

use cheetah_kit::random::{self, NoRandomNumbers};
use serde::{Deserialize, Serialize};

use crate::schedule::Pattern;

/// A far end's name and limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FarInfo {
    /// Its display name.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Whether it sends trains and bulk data; an agent with a limited rate does not.
    pub sends: bool,
    /// Its limits.
    pub limits: FarLimits,
}

/// The limits of a far end on requests. See [`limits`](super::limits) for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FarLimits {
    /// Most packets in one train, either way.
    pub packets_max: u32,
    /// Largest packet in a train it sends, IP header included, in bytes.
    pub ip_bytes_max: u32,
    /// Longest train it sends, and longest wait for one, in seconds.
    pub seconds_max: u32,
    /// Most bytes in one bulk transfer.
    pub bulk_bytes_max: u64,
    /// Longest bulk transfer, in seconds; it is cut then.
    pub bulk_seconds_max: u32,
}

/// Asks the far end to expect packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReceiveRequest {
    /// The maximum number of packets.
    pub packets_max: u32,
    /// How long to wait, in seconds.
    pub seconds_max: u32,
}

/// The answer to a [`ReceiveRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Receiving {
    /// UDP port, at the address to which the request was sent.
    pub port: u16,
    /// The token that every packet must begin with: see [`tag`](super::tag).
    pub token: Token,
}

/// The packets received so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Arrivals {
    /// Each packet's sequence number, time of arrival in nanoseconds of the far end's clock, and size in bytes with its
    /// IP header, in order of arrival.
    pub packets: Vec<(u32, u64, u32)>,
    /// Whether the kernel stamped them; otherwise they were stamped when they were read.
    pub kernel_stamps: bool,
    /// Whether the far end has stopped waiting.
    pub ended: bool,
}

/// Asks the far end to send a train to the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    /// The schedule, as a [`Pattern`].
    pub pattern: String,
    /// The size of each packet in bytes, IP header included.
    pub ip_bytes: u32,
    /// The caller's UDP port, 1024 or above.
    pub port: u16,
    /// The token that the packets begin with.
    pub token: Token,
}

impl SendRequest {
    /// Creates a request for a train to `port`.
    #[must_use]
    pub fn new(pattern: &Pattern, ip_bytes: u32, port: u16, token: Token) -> Self {
        Self { pattern: pattern.to_string(), ip_bytes, port, token }
    }
}

/// The answer to a [`SendRequest`], after the train has left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SendReply {
    /// When each packet was due, in nanoseconds of the far end's clock.
    pub due_ns: Vec<u64>,
    /// When it left.
    pub left_ns: Vec<u64>,
}

/// The bytes received, and the time it took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BulkReceived {
    /// Bytes.
    pub bytes: u64,
    /// The time from the first to the last, in seconds.
    pub seconds: f64,
    /// Bits a second after slow start; absent if the transfer was too short.
    pub bits_per_s: Option<f64>,
}

/// The secret that the packets of one train carry: 64 random bits, as 16 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Token(pub u64);

impl Token {
    /// Creates a random token.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn random() -> Result<Self, NoRandomNumbers> {
        random::bits_64().map(Self)
    }
}

/// The error for a text that is no [`Token`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token is 16 hex digits")]
pub struct BadToken;

impl std::str::FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let whole = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        whole.then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten().ok_or(BadToken)
    }
}

impl TryFrom<String> for Token {
    type Error = BadToken;

    fn try_from(text: String) -> Result<Self, BadToken> {
        text.parse()
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        token.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sixteen_digits_and_nothing_else() {
        let token = Token(0xab);
        assert_eq!(token.to_string(), "00000000000000ab");
        assert_eq!(token.to_string().parse(), Ok(token));
        for bad in ["", "ab", "+0000000000000ab", "00000000000000abc", "é000000000000ab"] {
            assert_eq!(bad.parse::<Token>(), Err(BadToken), "{bad}");
        }
    }
}
