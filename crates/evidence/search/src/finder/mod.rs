//! Well-known kinds of data: each is an expression, and a check of its matches.

mod address;
mod bank;
mod bitcoin;
mod card;
mod compressed;
mod domains;
mod files;
pub(crate) mod gps;
mod network;
mod telephone;

use std::fmt;
use std::str::FromStr;

pub use self::compressed::{Compressed, UnknownCompressed};
pub use self::files::FileKind;
use crate::expression::{Check, Lead};

/// A well-known kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finder {
    /// E-mail addresses whose domain has a known top level.
    Email,
    /// URLs.
    Url,
    /// Names of hosts and domains with a known top level.
    Domain,
    /// IPv4 addresses, with four decimal numbers.
    Ipv4,
    /// IPv6 addresses.
    Ipv6,
    /// Telephone numbers: international ones, which begin with +, and North American ones.
    Telephone,
    /// Numbers of payment cards: a known issuer, its length, and the check digit (Luhn).
    Card,
    /// International bank account numbers: a known country, its length, and the check digits.
    Iban,
    /// Bitcoin addresses whose checksum is right.
    Bitcoin,
    /// Positions in Exif metadata, as pictures have them.
    Gps,
    /// The header of a file.
    Header(FileKind),
    /// The beginning of compressed data.
    Compressed(Compressed),
}

/// A text that names no kind of data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no kind of data that can be found: use {names}", names = names())]
pub struct UnknownFinder(String);

impl Finder {
    /// All kinds of data but headers and compressed data.
    pub const ALL: [Self; 10] = [
        Self::Email,
        Self::Url,
        Self::Domain,
        Self::Ipv4,
        Self::Ipv6,
        Self::Telephone,
        Self::Card,
        Self::Iban,
        Self::Bitcoin,
        Self::Gps,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Url => "url",
            Self::Domain => "domain",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Telephone => "telephone",
            Self::Card => "card",
            Self::Iban => "iban",
            Self::Bitcoin => "bitcoin",
            Self::Gps => "gps",
            Self::Header(kind) => kind.name(),
            Self::Compressed(kind) => kind.finder_name(),
        }
    }

    /// Whether it is text, in one encoding or another; otherwise it is bytes.
    pub(crate) const fn is_text(self) -> bool {
        !matches!(self, Self::Gps | Self::Header(_) | Self::Compressed(_))
    }

    /// The expression of its candidates, over ASCII, and the check of each.
    pub(crate) const fn rule(self) -> (&'static str, Check) {
        match self {
            Self::Email => (address::EMAIL, address::email),
            Self::Url => (address::URL, address::url),
            Self::Domain => (domains::DOMAIN, domains::domain),
            Self::Ipv4 => (network::IPV4, network::ipv4),
            Self::Ipv6 => (network::IPV6, network::ipv6),
            Self::Telephone => (telephone::NUMBER, telephone::number),
            Self::Card => (card::NUMBER, card::number),
            Self::Iban => (bank::IBAN, bank::iban),
            Self::Bitcoin => (bitcoin::ADDRESS, bitcoin::address),
            Self::Gps => (gps::HEADER, gps::position),
            Self::Header(kind) => kind.rule(),
            Self::Compressed(kind) => kind.rule(),
        }
    }
}

impl Finder {
    /// How far its check reads from the beginning of a match, in bytes; 0 if no further than the match and the character after it.
    pub(crate) const fn reach_bytes(self) -> usize {
        match self {
            Self::Gps => gps::REACH_BYTES,
            _ => 0,
        }
    }

    /// Where its hits may begin; `None` if its expression finds that as fast.
    pub(crate) const fn lead(self) -> Option<&'static Lead> {
        match self {
            Self::Email => Some(&address::EMAIL_LEAD),
            Self::Url => Some(&address::URL_LEAD),
            Self::Domain => Some(&domains::LEAD),
            Self::Ipv4 => Some(&network::IPV4_LEAD),
            Self::Ipv6 => Some(&network::IPV6_LEAD),
            Self::Telephone => Some(&telephone::LEAD),
            Self::Card => Some(&card::LEAD),
            Self::Iban => Some(&bank::IBAN_LEAD),
            Self::Bitcoin => Some(&bitcoin::LEAD),
            Self::Gps | Self::Header(_) | Self::Compressed(_) => None,
        }
    }
}

fn names() -> String {
    cheetah_error::list(&Finder::ALL.map(Finder::name))
}

fn header_names() -> String {
    cheetah_error::list(&FileKind::ALL.map(FileKind::name))
}

impl FromStr for Finder {
    type Err = UnknownFinder;

    fn from_str(text: &str) -> Result<Self, UnknownFinder> {
        let headers = FileKind::ALL.into_iter().map(Self::Header);
        let mut all = Self::ALL.into_iter().chain(headers).chain(Compressed::ALL.map(Self::Compressed));
        all.find(|finder| finder.name() == text).ok_or_else(|| UnknownFinder(text.to_owned()))
    }
}

/// A text that names no format of files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no format of files whose header is known: use {names}", names = header_names())]
pub struct UnknownFileKind(String);

impl FromStr for FileKind {
    type Err = UnknownFileKind;

    fn from_str(text: &str) -> Result<Self, UnknownFileKind> {
        Self::of_name(text).ok_or_else(|| UnknownFileKind(text.to_owned()))
    }
}

impl fmt::Display for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests;
