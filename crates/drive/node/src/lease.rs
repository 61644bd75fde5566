//! The write lease of an export: a state machine without I/O or a clock.
//!
//! At most one token may write. A token is valid until it is released, expires, or is taken over by force, and never becomes
//! valid again: a writer that was cut off and returns is refused, and cannot mix old writes into newer content. While no
//! lease is held, clients without leases may write.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The shortest and longest time to live of a lease, in seconds.
pub const TTL_S: std::ops::RangeInclusive<u64> = 5..=300;

/// The longest name of a holder, in bytes.
const HOLDER_BYTES_MAX: usize = 255;

/// The secret of a lease's holder: 128 random bits, 32 hex digits as text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(u128);

/// The text is not 32 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lease token has 32 hex digits")]
pub struct BadToken;

/// The lease of one export.
#[derive(Debug, Default)]
pub struct Lease {
    held: Option<HeldLease>,
}

#[derive(Debug)]
struct HeldLease {
    token: Token,
    holder: String,
    ttl: Duration,
    expires: Instant,
}

/// Why a lease, or a write, was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseRefusal {
    /// Another writer holds it.
    #[error("held by {holder} for another {expires_in_s} s")]
    Held {
        /// Its holder.
        holder: String,
        /// Seconds until it ends unless renewed.
        expires_in_s: u64,
    },
    /// The token does not hold the lease, or no longer does.
    #[error("this lease has ended: it expired, or another writer took it over")]
    Ended,
    /// The time to live is out of range.
    #[error("a lease lives {min} to {max} s between renewals, not {0} s", min = TTL_S.start(), max = TTL_S.end())]
    BadTtl(u64),
    /// The holder's name is out of range.
    #[error("a lease's holder is named in 1 to {HOLDER_BYTES_MAX} bytes, without control characters")]
    BadHolder,
}

impl Lease {
    /// Grants the lease to `holder` under `token`, which must be new and random. With `force`, the current holder loses it.
    pub fn acquire(
        &mut self,
        token: Token,
        holder: &str,
        ttl_s: u64,
        force: bool,
        now: Instant,
    ) -> Result<(), LeaseRefusal> {
        if !TTL_S.contains(&ttl_s) {
            return Err(LeaseRefusal::BadTtl(ttl_s));
        }
        // Shown on other users' terminals.
        if holder.is_empty() || holder.len() > HOLDER_BYTES_MAX || holder.contains(char::is_control) {
            return Err(LeaseRefusal::BadHolder);
        }
        if let (Some(held), false) = (self.live(now), force) {
            return Err(held.refusal(now));
        }
        let ttl = Duration::from_secs(ttl_s);
        self.held = Some(HeldLease { token, holder: holder.to_owned(), ttl, expires: now + ttl });
        Ok(())
    }

    /// Renews the lease, and returns its time to live in seconds. An expired lease cannot be renewed even if it is free: other
    /// clients may have written meanwhile.
    pub fn renew(&mut self, token: Token, now: Instant) -> Result<u64, LeaseRefusal> {
        self.check(Some(token), now)?;
        let Some(held) = &mut self.held else { return Err(LeaseRefusal::Ended) };
        held.expires = now + held.ttl;
        Ok(held.ttl.as_secs())
    }

    /// Gives the lease back.
    pub fn release(&mut self, token: Token, now: Instant) -> Result<(), LeaseRefusal> {
        self.check(Some(token), now)?;
        self.held = None;
        Ok(())
    }

    /// Whether a client with `token`, or without one, may write.
    pub fn check(&self, token: Option<Token>, now: Instant) -> Result<(), LeaseRefusal> {
        match (self.live(now), token) {
            (Some(held), Some(token)) if held.token == token => Ok(()),
            (Some(held), None) => Err(held.refusal(now)),
            (None, None) => Ok(()),
            (_, Some(_)) => Err(LeaseRefusal::Ended),
        }
    }

    /// The holder, and the seconds until the lease expires, rounded up.
    pub fn holder(&self, now: Instant) -> Option<(&str, u64)> {
        self.live(now).map(|held| (held.holder.as_str(), held.left_s(now)))
    }

    fn live(&self, now: Instant) -> Option<&HeldLease> {
        self.held.as_ref().filter(|held| now < held.expires)
    }
}

impl HeldLease {
    fn left_s(&self, now: Instant) -> u64 {
        let left = self.expires.saturating_duration_since(now);
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }

    fn refusal(&self, now: Instant) -> LeaseRefusal {
        LeaseRefusal::Held { holder: self.holder.clone(), expires_in_s: self.left_s(now) }
    }
}

impl Token {
    /// Makes a token of 128 random bits.
    pub fn new(random: u128) -> Self {
        Self(random)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Hides the token, which is a secret, from logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = hex.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        bits.map(Self).ok_or(BadToken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Acquire { ttl_s: u64, force: bool },
        Renew(usize),
        Release(usize),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (5u64..20, any::<bool>()).prop_map(|(ttl_s, force)| Step::Acquire { ttl_s, force }),
            (0usize..8).prop_map(Step::Renew),
            (0usize..8).prop_map(Step::Release),
            (1u64..12).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #[test]
        fn never_two_writers_and_the_dead_stay_dead(steps in prop::collection::vec(step(), 1..60)) {
            let mut lease = Lease::default();
            let mut now = Instant::now();
            let mut tokens: Vec<Token> = Vec::new();
            let mut dead: Vec<Token> = Vec::new();
            for step in steps {
                let pick = |index: usize| tokens.get(index % tokens.len().max(1)).copied();
                match step {
                    Step::Acquire { ttl_s, force } => {
                        let token = Token::new(tokens.len() as u128);
                        let was_free = lease.holder(now).is_none();
                        let granted = lease.acquire(token, "me", ttl_s, force, now).is_ok();
                        prop_assert_eq!(granted, was_free || force);
                        tokens.extend(granted.then_some(token));
                    }
                    Step::Renew(index) => {
                        if let Some(token) = pick(index) {
                            let could_write = lease.check(Some(token), now).is_ok();
                            prop_assert_eq!(lease.renew(token, now).is_ok(), could_write);
                        }
                    }
                    Step::Release(index) => {
                        if let Some(token) = pick(index) {
                            let could_write = lease.check(Some(token), now).is_ok();
                            prop_assert_eq!(lease.release(token, now).is_ok(), could_write);
                        }
                    }
                    Step::Wait(seconds) => now += Duration::from_secs(seconds),
                }
                let writers: Vec<_> = tokens.iter().filter(|token| lease.check(Some(**token), now).is_ok()).collect();
                prop_assert!(writers.len() <= 1, "two writers");
                prop_assert_eq!(lease.check(None, now).is_ok(), writers.is_empty(), "foreign clients only while free");
                prop_assert!(dead.iter().all(|token| !writers.contains(&token)), "a dead token lives");
                dead = tokens.iter().filter(|token| !writers.contains(token)).copied().collect();
            }
        }
    }

    #[test]
    fn the_holder_and_the_remaining_time_are_reported() {
        let (mut lease, now) = (Lease::default(), Instant::now());
        lease.acquire(Token::new(1), "Ada at lab-3", 60, false, now).unwrap();
        let later = now + Duration::from_millis(18_500);
        let refused = lease.acquire(Token::new(2), "Bob", 60, false, later).unwrap_err();
        assert_eq!(refused.to_string(), "held by Ada at lab-3 for another 42 s");
    }

    #[test]
    fn a_holder_or_time_to_live_out_of_range_is_refused() {
        let (mut lease, now) = (Lease::default(), Instant::now());
        for (holder, ttl_s) in [("a", 4), ("a", 301), ("", 60), ("a\x1b[2J", 60), (&*"x".repeat(256), 60)] {
            assert!(lease.acquire(Token::new(1), holder, ttl_s, true, now).is_err(), "{holder} {ttl_s}");
        }
        assert_eq!(lease.holder(now), None);
    }

    #[test]
    fn a_token_is_32_hex_digits() {
        let token = Token::new(0xab);
        assert_eq!(token.to_string().parse(), Ok(token));
        for text in ["", "ab", "+0000000000000000000000000000000", "0000000000000000000000000000000g"] {
            assert_eq!(text.parse::<Token>(), Err(BadToken), "{text}");
        }
    }
}
