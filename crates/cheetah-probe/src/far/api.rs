//! What is said between this machine and a far end that cooperates, in JSON.

use serde::{Deserialize, Serialize};

use crate::schedule::Pattern;

/// `GET /v1/probe`: who answers, and what it puts up with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// What it is called, for people.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Whether it sends trains and bulk data; an agent that was told how much it may send does not.
    pub sends: bool,
    /// What it puts up with.
    pub limits: FarLimits,
}

/// What a far end puts up with. See [`limits`](super::limits) for what is not asked for but simply so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// `POST /v1/probe/receive`: packets will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveRequest {
    /// How many, at most.
    pub packets_max: u32,
    /// For how long, in seconds.
    pub seconds_max: u32,
}

/// The answer: where they are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiving {
    /// UDP port, at the address that was called.
    pub port: u16,
    /// Every packet must begin with it: see [`tag`](super::tag).
    pub token: Token,
}

/// `GET /v1/probe/receive/TOKEN`: what has come so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// For each packet its sequence number, when it came, in nanoseconds of the far end's own clock, and its size in
    /// bytes, IP header included; in the order they came.
    pub packets: Vec<(u32, u64, u32)>,
    /// Whether the kernel stamped them; otherwise they were stamped when they were read.
    pub kernel_stamps: bool,
    /// Whether nothing more is waited for.
    pub ended: bool,
}

/// `POST /v1/probe/send`: a train is to be sent to the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    /// When, as [`Pattern`] reads it.
    pub pattern: String,
    /// How large each packet is, IP header included, in bytes.
    pub ip_bytes: u32,
    /// To which UDP port of the caller's, 1024 or above.
    pub port: u16,
    /// What they begin with.
    pub token: Token,
}

impl SendRequest {
    /// A train to `port`.
    #[must_use]
    pub fn new(pattern: &Pattern, ip_bytes: u32, port: u16, token: Token) -> Self {
        Self { pattern: pattern.to_string(), ip_bytes, port, token }
    }
}

/// The answer, when the train has left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// When each packet was to leave, in nanoseconds of the far end's own clock.
    pub due_ns: Vec<u64>,
    /// When it did.
    pub left_ns: Vec<u64>,
}

/// `PUT /v1/probe/bulk`: what came.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BulkReceived {
    /// Bytes.
    pub bytes: u64,
    /// From the first to the last, in seconds.
    pub seconds: f64,
    /// Bits a second, once TCP had got going; absent if there was too little to tell.
    pub bits_per_s: Option<f64>,
}

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What is wrong, for people.
    pub error: String,
}

/// What the packets of one train have in common, and nobody else knows: 64 random bits, as 16 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token(pub u64);

impl Token {
    /// A new one.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self(u64::from_be_bytes(bytes)))
    }
}

/// A text that is no [`Token`].
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
