//! The invitation string: all that a machine needs to join a room.
//!
//! ```text
//! room1. base64url( role 1 | port 2 | count 1 | addresses | fingerprint of the room's key 32 | token 16 | checksum 4 )
//!
//! address    4 | 4 bytes        IPv4
//!            6 | 16 bytes       IPv6
//!            n | length 1 | n   name
//! ```
//!
//! Numbers are big-endian. The checksum, the first bytes of the SHA-256 of all before it, detects a string that was not
//! copied in full; it does not protect against an attacker. With two IPv4 addresses a string has 95 characters.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cheetah_kit::random::{self, NoRandomNumbers};
use cheetah_tls::{Fingerprint, Role, RoomId};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The beginning of every invitation: its version.
pub const PREFIX: &str = "room1.";
/// The most addresses in an invitation.
pub const HOSTS_MAX: usize = 4;
/// The most bytes of a host's name.
pub const HOST_NAME_LEN_MAX: usize = 253;
/// The most characters of an invitation. The longest one has fewer.
pub const TEXT_LEN_MAX: usize = 2048;

const TOKEN_LEN: usize = 16;
const CHECKSUM_LEN: usize = 4;
const IPV4: u8 = 4;
const IPV6: u8 = 6;
const NAME: u8 = b'n';

/// The secret of an invitation: 128 random bits.
#[derive(Clone)]
pub struct Token(Zeroizing<[u8; TOKEN_LEN]>);

/// The SHA-256 of a token, which the room stores in its place.
#[derive(Debug, Clone, Copy)]
pub struct TokenHash(pub [u8; 32]);

impl Token {
    /// A new token.
    ///
    /// # Errors
    ///
    /// If the kernel returns no random bytes.
    pub fn random() -> Result<Self, NoRandomNumbers> {
        let mut bytes = Zeroizing::new([0; TOKEN_LEN]);
        random::fill(&mut *bytes)?;
        Ok(Self(bytes))
    }

    /// The token with these bytes.
    pub fn from_bytes(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; TOKEN_LEN] {
        &self.0
    }

    /// Parses 32 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * TOKEN_LEN || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut bytes = Zeroizing::new([0; TOKEN_LEN]);
        for (byte, digits) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Its 32 hexadecimal digits.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * TOKEN_LEN));
        for byte in &*self.0 {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
            }
        }
        text
    }

    /// Its hash. The token is random, so the hash needs no salt and no work.
    pub fn hash(&self) -> TokenHash {
        let mut digest = Sha256::new_with_prefix(b"cheetah invitation token\0");
        digest.update(self.as_bytes());
        TokenHash(digest.finalize().into())
    }
}

impl fmt::Debug for Token {
    /// Prints no bit of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl PartialEq for TokenHash {
    /// In a time that does not depend on the bytes.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenHash {}

/// A host that is named or numbered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An IP address.
    Ip(IpAddr),
    /// A name: letters, digits, `-`, `_` and `.`; at most [`HOST_NAME_LEN_MAX`] bytes.
    Name(String),
}

/// The error for a text that is neither an IP address nor a host's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is neither an IP address nor a host name")]
pub struct BadHost(String);

impl FromStr for Host {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<Self, BadHost> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let begins = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        if begins && text.len() <= HOST_NAME_LEN_MAX && text.bytes().all(legal) {
            return Ok(Self::Name(text.to_owned()));
        }
        Err(BadHost(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Host {
    /// `host:port`, with brackets around an IPv6 address.
    pub fn with_port(&self, port: u16) -> String {
        match self {
            Self::Ip(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            other => format!("{other}:{port}"),
        }
    }
}

/// An invitation to a room.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// The role that it gives. The room knows it by the token; here it only lets a machine refuse the wrong string.
    pub role: Role,
    /// The addresses of the enrolment server: 1 to [`HOSTS_MAX`] addresses, most promising first.
    pub hosts: Vec<Host>,
    /// The port of all addresses.
    pub port: u16,
    /// The fingerprint of the room's key.
    pub room_key: Fingerprint,
    /// The secret.
    pub token: Token,
}

/// Why a text is not an invitation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadInvitation {
    /// It begins differently.
    #[error("not an invitation: one begins with '{PREFIX}'")]
    OtherText,
    /// It is of a newer format.
    #[error("the invitation was made by a newer Cheetah; use that version or later")]
    Newer,
    /// It is damaged.
    #[error("the invitation is incomplete or was changed; copy all of it, up to the last character")]
    Damaged,
}

impl Invitation {
    /// The room.
    pub fn room(&self) -> RoomId {
        RoomId::of_authority(&self.room_key)
    }

    /// Whether a text is meant to be an invitation.
    pub fn is_meant(text: &str) -> bool {
        let rest = text.trim().strip_prefix("room");
        let rest = rest.map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        rest.is_some_and(|rest| rest.starts_with('.')) && text.trim().len() > PREFIX.len() + 40
    }

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(128));
        bytes.push(role_to_byte(self.role));
        bytes.extend(self.port.to_be_bytes());
        let hosts = &self.hosts[..self.hosts.len().min(HOSTS_MAX)];
        bytes.push(hosts.len() as u8);
        for host in hosts {
            match host {
                Host::Ip(IpAddr::V4(address)) => {
                    bytes.push(IPV4);
                    bytes.extend(address.octets());
                }
                Host::Ip(IpAddr::V6(address)) => {
                    bytes.push(IPV6);
                    bytes.extend(address.octets());
                }
                Host::Name(name) => {
                    let name = &name.as_bytes()[..name.len().min(HOST_NAME_LEN_MAX)];
                    bytes.extend([NAME, name.len() as u8]);
                    bytes.extend(name);
                }
            }
        }
        bytes.extend(self.room_key.0);
        bytes.extend(self.token.as_bytes());
        let checksum = checksum(&bytes);
        bytes.extend(checksum);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_LEN)?)?;
        if sum != checksum(content) {
            return None;
        }
        let mut rest = Rest(content);
        let role = role_from_byte(rest.byte()?)?;
        let port = u16::from_be_bytes(rest.array()?);
        let count = usize::from(rest.byte()?);
        if port == 0 || !(1..=HOSTS_MAX).contains(&count) {
            return None;
        }
        let mut hosts = Vec::with_capacity(count);
        for _ in 0..count {
            hosts.push(match rest.byte()? {
                IPV4 => Host::Ip(Ipv4Addr::from(rest.array::<4>()?).into()),
                IPV6 => Host::Ip(Ipv6Addr::from(rest.array::<16>()?).into()),
                NAME => {
                    let len = usize::from(rest.byte()?);
                    let name: Host = std::str::from_utf8(rest.take(len)?).ok()?.parse().ok()?;
                    // An address in a name's place would have two forms.
                    matches!(name, Host::Name(_)).then_some(name)?
                }
                _ => return None,
            });
        }
        let room_key = Fingerprint(rest.array()?);
        let token = Token::from_bytes(rest.array()?);
        rest.0.is_empty().then_some(Self { role, hosts, port, room_key, token })
    }
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Zeroizing::new(URL_SAFE_NO_PAD.encode(&*self.to_bytes()));
        write!(f, "{PREFIX}{}", *text)
    }
}

impl FromStr for Invitation {
    type Err = BadInvitation;

    /// Parses an invitation. White space around and within it, as terminals and mail programs add it, does not matter.
    fn from_str(text: &str) -> Result<Self, BadInvitation> {
        if text.len() > TEXT_LEN_MAX {
            return Err(if text.trim_start().starts_with(PREFIX) {
                BadInvitation::Damaged
            } else {
                BadInvitation::OtherText
            });
        }
        let text: Zeroizing<String> = Zeroizing::new(text.chars().filter(|c| !c.is_whitespace()).collect());
        let Some(digits) = text.strip_prefix(PREFIX) else {
            return Err(if Self::is_meant(&text) { BadInvitation::Newer } else { BadInvitation::OtherText });
        };
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(digits).map_err(|_| BadInvitation::Damaged)?);
        Self::from_bytes(&bytes).ok_or(BadInvitation::Damaged)
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    [digest[0], digest[1], digest[2], digest[3]]
}

fn role_to_byte(role: Role) -> u8 {
    match role {
        Role::Node => 1,
        Role::Agent => 2,
        Role::Analyst => 3,
        Role::Examiner => 4,
        Role::TrustedNode => 5,
        // No invitation has the role `room`; such a string cannot be parsed.
        Role::Room => 0,
    }
}

fn role_from_byte(byte: u8) -> Option<Role> {
    Role::ALL.into_iter().find(|role| role_to_byte(*role) == byte && *role != Role::Room)
}

/// Bytes not parsed yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
}

/// Parses `host:port`.
pub fn parse_host_port(text: &str) -> Option<(Host, u16)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some((Host::Ip(address.ip()), address.port())).filter(|(_, port)| *port != 0);
    }
    let (host, port) = text.split_once(':')?;
    Some((host.parse().ok()?, port.parse().ok().filter(|port| *port != 0)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn invitation(hosts: &[&str]) -> Invitation {
        Invitation {
            role: Role::Node,
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            port: 10812,
            room_key: Fingerprint([7; 32]),
            token: Token::from_bytes([9; 16]),
        }
    }

    fn hosts() -> impl Strategy<Value = Vec<Host>> {
        let host = prop_oneof![
            any::<Ipv4Addr>().prop_map(|address| Host::Ip(address.into())),
            any::<Ipv6Addr>().prop_map(|address| Host::Ip(address.into())),
            "[a-z][a-z0-9._-]{0,252}".prop_map(Host::Name),
        ];
        proptest::collection::vec(host, 1..=HOSTS_MAX)
    }

    #[test]
    fn a_string_with_two_addresses_is_short() {
        let text = invitation(&["192.168.1.5", "10.0.0.5"]).to_string();
        assert!(text.len() <= 100 && !text.contains(char::is_whitespace), "{} {text}", text.len());
    }

    #[test]
    fn white_space_from_a_terminal_does_not_matter() {
        let text = invitation(&["lab-1.example"]).to_string();
        let (one, two) = text.split_at(40);
        let back: Invitation = format!("  {one}\r\n  {two}\n").parse().unwrap();
        assert_eq!(back.to_string(), text);
    }

    #[test]
    fn any_change_of_a_character_is_found() {
        let text = invitation(&["10.0.0.5"]).to_string();
        for at in PREFIX.len()..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(changed.parse::<Invitation>().unwrap_err(), BadInvitation::Damaged, "{at}");
            assert_eq!(text[..at].parse::<Invitation>().unwrap_err(), BadInvitation::Damaged, "{at}");
        }
    }

    #[test]
    fn other_texts_and_newer_versions_are_told_apart() {
        for text in ["", "lab", "room", "room1", "./room1.txt", "room2.x", "rooms"] {
            assert_eq!(text.parse::<Invitation>().unwrap_err(), BadInvitation::OtherText, "{text}");
        }
        let newer = invitation(&["10.0.0.5"]).to_string().replacen("room1", "room2", 1);
        assert_eq!(newer.parse::<Invitation>().unwrap_err(), BadInvitation::Newer);
        assert_eq!("room1.".parse::<Invitation>().unwrap_err(), BadInvitation::Damaged);
    }

    #[test]
    fn nothing_prints_a_token() {
        let shown = format!("{:?}", invitation(&["h"]));
        assert!(shown.contains("token: Token,") || shown.contains("token: Token }"), "{shown}");
    }

    proptest! {
        #[test]
        fn an_invitation_parses_as_it_prints(
            hosts in hosts(), port in 1..=u16::MAX, key: [u8; 32], token: [u8; 16], role in 0..5_usize,
        ) {
            let role = Role::ALL[role];
            let made =
                Invitation { role, hosts, port, room_key: Fingerprint(key), token: Token::from_bytes(token) };
            let text = made.to_string();
            prop_assert!(text.len() <= TEXT_LEN_MAX && Invitation::is_meant(&text));
            let back: Invitation = text.parse().unwrap();
            prop_assert_eq!(back.to_string(), text);
            prop_assert_eq!((back.role, back.port, back.room_key), (role, port, made.room_key));
            prop_assert_eq!(back.hosts, made.hosts);
        }

        #[test]
        fn any_text_parses_or_is_refused(text: String) {
            let _ = text.parse::<Invitation>();
            let _ = format!("{PREFIX}{text}").parse::<Invitation>();
        }

        #[test]
        fn any_bytes_with_a_valid_checksum_parse_to_one_form(mut bytes: Vec<u8>) {
            let sum = checksum(&bytes);
            bytes.extend(sum);
            if let Some(parsed) = Invitation::from_bytes(&bytes) {
                prop_assert_eq!(&*parsed.to_bytes(), &bytes);
            }
        }
    }
}
