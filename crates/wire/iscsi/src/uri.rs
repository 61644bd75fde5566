//! The URI of a disk: `iscsi://[user%password@]host[:port]/target/lun[?initiator=name][&OPTION=VALUE]`, as libiscsi
//! writes it but for the options, which are ours.
//!
//! The first percent sign before the `@` ends the user's name. In the password, the target and the initiator, `%XX`
//! encodes a byte, so a password may hold any bytes.

use std::fmt;
use std::str::FromStr;

use cheetah_kit::authority;
use cheetah_kit::percent::{AsciiSet, COMPONENT, decode, encode};

use crate::options::SessionOptions;

/// The port that IANA assigned to iSCSI.
pub const PORT: u16 = 3260;

/// The highest LUN that can be addressed: flat space addressing has 14 bits (SAM-5, 4.7.7.3).
pub const LUN_MAX: u16 = 0x3FFF;

/// Longest name of a target or an initiator, in bytes (RFC 7143, 4.2.7.1).
pub const NAME_LEN_MAX: usize = 223;

/// A logical unit of a target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IscsiUri {
    /// A name or an IP address; an IPv6 address is without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The target and the logical unit. `None` if the URI names only a host; such a URI can only list the host's
    /// targets.
    pub unit: Option<Unit>,
    /// Credentials, if the target requires them.
    pub credentials: Option<Credentials>,
    /// The initiator's name, for targets that restrict access by name.
    pub initiator: Option<String>,
    /// Options of the sessions.
    pub options: SessionOptions,
}

/// A logical unit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unit {
    /// The target's name, such as `iqn.2001-04.com.example:disk`; up to [`NAME_LEN_MAX`] bytes.
    pub target: String,
    /// The logical unit's number, 0 to [`LUN_MAX`].
    pub lun: u16,
}

/// CHAP credentials.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The CHAP name.
    pub user: String,
    /// The CHAP secret. `None` if the URI has none; a target that asks for it then refuses the login.
    pub password: Option<Password>,
}

/// A secret; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Password(String);

impl Password {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The error for text that is not an iSCSI URI. Its message omits the text, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a usable iSCSI URI ({0}); write iscsi://[user%password@]host[:port]/target/lun")]
pub struct BadUri(&'static str);

impl FromStr for IscsiUri {
    type Err = BadUri;

    fn from_str(text: &str) -> Result<Self, BadUri> {
        parse(text).map_err(BadUri)
    }
}

fn parse(text: &str) -> Result<IscsiUri, &'static str> {
    let rest = text.strip_prefix("iscsi://").ok_or("it must start with iscsi://")?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, address) = match authority.rsplit_once('@') {
        Some((user, address)) => (Some(parse_credentials(user)?), address),
        None => (None, authority),
    };
    let (host, port) = authority::parse(address, PORT)?;
    let unit = if path.is_empty() { None } else { Some(parse_unit(path)?) };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs: Vec<_> = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    let is_initiator = |(key, _): &&(&str, &str)| *key == "initiator";
    let initiator = pairs.iter().rfind(is_initiator).map(|(_, name)| name_of(name)).transpose()?;
    let options = SessionOptions::parse(pairs.iter().filter(|pair| !is_initiator(pair)).copied())?;
    Ok(IscsiUri { host, port, unit, credentials, initiator, options })
}

fn parse_credentials(text: &str) -> Result<Credentials, &'static str> {
    let (user, password) = match text.split_once('%') {
        Some((user, password)) => (user, Some(Password(decode(password)?))),
        None => (text, None),
    };
    if user.is_empty() || user.contains(char::is_control) {
        return Err("the user's name is missing or malformed");
    }
    Ok(Credentials { user: user.to_owned(), password })
}

fn parse_unit(path: &str) -> Result<Unit, &'static str> {
    let (target, lun) = path.rsplit_once('/').ok_or("the LUN is missing")?;
    let lun = lun.parse().ok().filter(|lun| *lun <= LUN_MAX).ok_or("the LUN must be a number from 0 to 16383")?;
    Ok(Unit { target: name_of(target)?, lun })
}

/// A target's or an initiator's name. Names are values in `key=value` texts that end with a NUL.
fn name_of(text: &str) -> Result<String, &'static str> {
    let name = decode(text)?;
    if name.is_empty() || name.len() > NAME_LEN_MAX || name.contains(char::is_control) {
        return Err("a name must have from 1 to 223 bytes, and no control characters");
    }
    Ok(name)
}

/// What is percent-encoded in a name.
const NAME: &AsciiSet = &COMPONENT.remove(b':');

/// Formats everything but the password.
impl fmt::Display for IscsiUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iscsi://")?;
        if let Some(credentials) = &self.credentials {
            write!(f, "{}@", credentials.user)?;
        }
        f.write_str(&authority::bracketed(&self.host))?;
        if self.port != PORT {
            write!(f, ":{}", self.port)?;
        }
        if let Some(unit) = &self.unit {
            write!(f, "/{}/{}", encode(&unit.target, NAME), unit.lun)?;
        }
        let initiator = self.initiator.as_ref().map(|initiator| format!("initiator={}", encode(initiator, NAME)));
        let parameters: Vec<_> = initiator.into_iter().chain(self.options.parameters()).collect();
        match parameters.is_empty() {
            true => Ok(()),
            false => write!(f, "?{}", parameters.join("&")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::any_options;
    use proptest::prelude::*;

    fn uri(host: &str, port: u16, target: &str, lun: u16) -> IscsiUri {
        let unit = Some(Unit { target: target.into(), lun });
        let options = SessionOptions::default();
        IscsiUri { host: host.into(), port, unit, credentials: None, initiator: None, options }
    }

    fn by(mut uri: IscsiUri, user: &str, password: Option<&str>) -> IscsiUri {
        uri.credentials = Some(Credentials { user: user.into(), password: password.map(Password::new) });
        uri
    }

    #[test]
    fn common_spellings_are_parsed() {
        let iqn = "iqn.2001-04.com.example:disk";
        assert_eq!(format!("iscsi://san/{iqn}/1").parse(), Ok(uri("san", PORT, iqn, 1)));
        assert_eq!(format!("iscsi://10.0.0.1:860/{iqn}/0").parse(), Ok(uri("10.0.0.1", 860, iqn, 0)));
        assert_eq!(format!("iscsi://[::1]:99/{iqn}/255").parse(), Ok(uri("::1", 99, iqn, 255)));
        let known = by(uri("san", PORT, iqn, 1), "ann", Some("p@ss/100%"));
        assert_eq!(format!("iscsi://ann%p%40ss%2F100%25@san/{iqn}/1").parse(), Ok(known));
        assert_eq!(format!("iscsi://ann@san/{iqn}/1").parse(), Ok(by(uri("san", PORT, iqn, 1), "ann", None)));
        let named = IscsiUri { initiator: Some("iqn.x:me".into()), ..uri("san", PORT, iqn, 1) };
        assert_eq!(format!("iscsi://san/{iqn}/1?initiator=iqn.x:me").parse(), Ok(named));
        let tuned: IscsiUri = format!("iscsi://san/{iqn}/1?commands=8&initiator=iqn.x:me&sessions=2").parse().unwrap();
        assert_eq!((tuned.options.commands, tuned.options.sessions, tuned.initiator), (8, 2, Some("iqn.x:me".into())));
        for host_only in ["iscsi://san", "iscsi://san/", "iscsi://san:3260"] {
            assert_eq!(host_only.parse::<IscsiUri>().unwrap().unit, None);
        }
        for bad in ["", "san", "nbd://a/", "iscsi://", "iscsi://:1/t/0", "iscsi://a:b/t/0", "iscsi://a:70000/t/0"]
            .into_iter()
            .chain(["iscsi://[::1/t/0", "iscsi://[::1]x/t/0", "iscsi://::1/t/0", "iscsi://a/t", "iscsi://a/t/x"])
            .chain(["iscsi://a/t/16384", "iscsi://a//0", "iscsi://a/t%0/0", "iscsi://@a/t/0", "iscsi://a/t/0?x=y"])
            .chain(["iscsi://a/t%00x/0", "iscsi://u%p%x@a/t/0"])
        {
            let error = bad.parse::<IscsiUri>().unwrap_err().to_string();
            assert!(error.contains("iscsi://[user%password@]host[:port]/target/lun"), "{error}");
        }
    }

    #[test]
    fn the_password_is_not_shown() {
        let uri: IscsiUri = "iscsi://ann%hunter2@san/iqn.x:y/1".parse().unwrap();
        assert_eq!(uri.to_string(), "iscsi://ann@san/iqn.x:y/1");
        assert!(!format!("{uri:?}").contains("hunter2"));
        let error = "iscsi://ann%hunter2@san/iqn.x:y".parse::<IscsiUri>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(
            target in "[^\\p{Cc}]{1,20}",
            lun in 0..=LUN_MAX,
            port in 1u16..,
            user in "[a-z:@]{1,9}",
            named in any::<bool>(),
            options in any_options(),
        ) {
            for host in ["host", "fe80::1"] {
                let uri = by(uri(host, port, &target, lun), &user, None);
                let uri = IscsiUri { initiator: named.then(|| target.clone()), options, ..uri };
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,60}") {
            let _ = text.parse::<IscsiUri>();
            let _ = format!("iscsi://{text}").parse::<IscsiUri>();
        }
    }
}
