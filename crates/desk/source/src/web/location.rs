//! Where a file on a web server is.

use std::net::IpAddr;

use cheetah_error::{Error, Kind, Result};
use hyper::header::{self, HeaderMap};
use hyper::{Request, Uri};
use time::OffsetDateTime;

use super::s3::{Object, Settings};

/// An `http://`, `https://` or `s3://` URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// The URI that requests are sent to.
    pub uri: Uri,
    /// The object that it is, if it was named as one.
    object: Option<Object>,
}

/// Why a text is not taken for a file on the web.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BadLocation {
    /// It is not a URI.
    #[error("this is not a URI; write https://HOST[:PORT]/PATH")]
    NotAUri,
    /// A secret in it would be shown and recorded.
    #[error("a user name or password in a URI is not supported; use a signed URI")]
    UserName,
    /// Evidence would cross a network in clear.
    #[error(
        "http:// is not encrypted, and this host is not this machine; use https://, or a tunnel that ends on this machine \
         (ssh -L)"
    )]
    NotEncrypted,
    /// It has another scheme.
    #[error("only http://, https:// and s3:// name files on the web")]
    NotOnTheWeb,
}

impl Location {
    /// Parses a URI. For an `s3://` URI, reads the user's settings of the object store.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if it is not one, if it has a user name or a password, or if evidence would cross a network in
    /// clear. As [`Settings::of_user`].
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(object) = text.strip_prefix("s3://") {
            return Self::of_object(Object::parse(object, Settings::of_user()?)?);
        }
        let wrong = |why: BadLocation| Error::caused(Kind::Misuse, why).within(without_query(text));
        let uri: Uri = text.parse().map_err(|_| wrong(BadLocation::NotAUri))?;
        let location = Self { uri, object: None };
        if location.uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(wrong(BadLocation::UserName));
        }
        match location.uri.scheme_str() {
            Some("https") => Ok(location),
            Some("http") if location.is_within_machine() => Ok(location),
            Some("http") => Err(wrong(BadLocation::NotEncrypted)),
            _ => Err(wrong(BadLocation::NotOnTheWeb)),
        }
    }

    pub(super) fn of_object(object: Object) -> Result<Self> {
        Ok(Self { object: Some(object.clone()), ..Self::parse(&object.uri())? })
    }

    /// Adds the headers that show that a request with this content is the user's, if the location is an object.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if the credentials cannot be sent.
    pub fn sign(&self, request: &mut Request<()>, content: &[u8]) -> Result<()> {
        match &self.object {
            Some(object) => object.sign(request, content, OffsetDateTime::now_utc()),
            None => Ok(()),
        }
    }

    /// Returns what to do about an answer that refuses an object, behind a separator; nothing for other files.
    pub fn advice(&self, headers: &HeaderMap) -> String {
        self.object.as_ref().map(|object| format!("; {}", object.advice(headers))).unwrap_or_default()
    }

    /// The bucket, if it is an object.
    pub fn bucket(&self) -> Option<&str> {
        self.object.as_ref().map(Object::bucket)
    }

    /// Returns the location that a server redirects to: another file on the web, never an object, whose requests the user's
    /// credentials would sign. What the user gave for this location, such as a signature in its query, is not passed on.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if the new location is not `http://` or `https://`, is not encrypted and this one is, has a user
    /// name, or would carry evidence over a network in clear; or if this one is an object.
    pub fn redirected(&self, headers: &HeaderMap) -> Result<Self> {
        let wrong = |why: &str| Error::failed(format!("{}: {why}", self.shown()));
        if self.object.is_some() {
            return Err(wrong(&format!("the server redirects{}", self.advice(headers))));
        }
        let to = headers
            .get(header::LOCATION)
            .and_then(|to| to.to_str().ok())
            .ok_or_else(|| wrong("the server redirects to nowhere"))?;
        let absolute = self.resolve(to);
        let shown = without_query(&absolute);
        let scheme = absolute.split_once(':').map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return Err(wrong(&format!(
                "the server redirects to {shown}, which is not on the web; if you mean that, name it yourself"
            )));
        }
        let next =
            Self::parse(&absolute).map_err(|error| wrong(&format!("the server redirects elsewhere: {error}")))?;
        if self.is_encrypted() && !next.is_encrypted() {
            return Err(wrong(&format!("the server redirects from https:// to http:// ({shown})")));
        }
        Ok(next)
    }

    /// Returns the URI that a reference in an answer stands for (RFC 3986, section 5.2).
    fn resolve(&self, reference: &str) -> String {
        let is_scheme = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        };
        let scheme = self.scheme();
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let path = self.uri.path();
        match reference {
            _ if reference.split_once(':').is_some_and(|(before, _)| is_scheme(before)) => reference.to_owned(),
            _ if reference.starts_with("//") => format!("{scheme}:{reference}"),
            _ if reference.starts_with('/') => format!("{scheme}://{authority}{reference}"),
            _ if reference.starts_with('?') => format!("{scheme}://{authority}{path}{reference}"),
            _ => {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{scheme}://{authority}{folder}/{reference}")
            }
        }
    }

    /// Returns the location of another file in the same folder.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn beside(&self, name: &str) -> Result<Self> {
        if let Some(object) = &self.object {
            return Self::of_object(object.beside(name));
        }
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let folder = self.uri.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        Self::parse(&format!("{}://{authority}{folder}/{name}", self.scheme()))
    }

    /// Whether it has a query, such as a signature, which holds for this file only.
    pub fn has_query(&self) -> bool {
        self.uri.query().is_some()
    }

    /// Whether connections to it are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.scheme() == "https"
    }

    /// The host and the TCP port.
    pub fn host_and_port(&self) -> (String, u16) {
        let port = self.uri.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 });
        (self.host().to_owned(), port)
    }

    /// The URI as the user names it, without its query: a signed URI's query is a secret.
    pub fn shown(&self) -> String {
        self.object.as_ref().map_or_else(|| without_query(&self.uri.to_string()), Object::shown)
    }

    /// The name of the file.
    pub fn file_name(&self) -> &str {
        if let Some(object) = &self.object {
            return object.file_name();
        }
        self.uri.path().rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("web")
    }

    fn scheme(&self) -> &str {
        self.uri.scheme_str().unwrap_or_default()
    }

    fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    fn is_within_machine(&self) -> bool {
        self.host() == "localhost" || self.host().parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

fn without_query(text: &str) -> String {
    text.split(['?', '#']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_crosses_a_network_only_encrypted() {
        for good in ["https://lab/disk.raw", "http://127.0.0.1:8000/d", "http://[::1]/d", "http://localhost/d?x=1"] {
            Location::parse(good).unwrap();
        }
        for (bad, why) in [
            ("http://lab/disk.raw", BadLocation::NotEncrypted),
            ("http://127.0.0.1.example.org/d", BadLocation::NotEncrypted),
            ("https://user:secret@lab/d", BadLocation::UserName),
            ("ftp://lab/d", BadLocation::NotOnTheWeb),
            ("https:///d", BadLocation::NotAUri),
        ] {
            let error = Location::parse(bad).unwrap_err();
            assert!(error.is_misuse() && error.cause() == Some(&why), "{error}");
        }
        let secure = Location::parse("https://lab/d").unwrap();
        let to = |text: &str| HeaderMap::from_iter([(header::LOCATION, text.parse().unwrap())]);
        assert_eq!(secure.redirected(&to("/e?k=1")).unwrap().uri, "https://lab/e?k=1".parse::<Uri>().unwrap());
        assert!(secure.redirected(&to("http://127.0.0.1/d")).is_err());
    }

    #[test]
    fn a_redirection_leads_to_the_web_only_and_to_no_weaker_scheme() {
        let here = Location::parse("http://127.0.0.1:8000/case/d?signature=secret").unwrap();
        let to = |text: &str| HeaderMap::from_iter([(header::LOCATION, text.parse().unwrap())]);
        for (text, uri) in [
            ("https://lab/d", "https://lab/d"),
            ("HTTPS://lab/d", "https://lab/d"),
            ("//localhost:1/d", "http://localhost:1/d"),
            ("/e", "http://127.0.0.1:8000/e"),
            ("e?k=1", "http://127.0.0.1:8000/case/e?k=1"),
            ("?k=1", "http://127.0.0.1:8000/case/d?k=1"),
        ] {
            assert_eq!(here.redirected(&to(text)).unwrap().uri, uri.parse::<Uri>().unwrap(), "{text}");
        }
        let others =
            ["s3://bucket/key", "S3://bucket/key", "file:///etc/passwd", "nbd://lab/x", "ftp://lab/d", "data:,x"];
        for other in others.into_iter().chain(["http://lab/d", "//lab/d", "https://user:secret@lab/d", "https:///d"]) {
            let error = here.redirected(&to(other)).unwrap_err();
            assert_eq!(error.kind(), Kind::Failed, "{other}: {error}");
        }
        let secure = Location::parse("https://lab/d").unwrap();
        for weaker in ["http://127.0.0.1/d", "http://localhost/d", "s3://bucket/key"] {
            assert!(secure.redirected(&to(weaker)).is_err(), "{weaker}");
        }
        assert!(secure.redirected(&to("//other/d")).unwrap().is_encrypted());
    }

    #[test]
    fn a_file_beside_another_has_its_host_and_folder_and_no_query() {
        let at = |text: &str| Location::parse(text).unwrap();
        let first = at("https://lab:444/case%2042/disk.E01?x=1");
        assert_eq!(first.beside("disk.E02").unwrap(), at("https://lab:444/case%2042/disk.E02"));
        assert!(first.has_query() && !at("https://lab/disk.E01").has_query());
    }

    #[test]
    fn a_signed_uri_is_shown_without_its_signature() {
        let location = Location::parse("https://bucket.s3.example.org/case/42.raw?X-Amz-Signature=secret").unwrap();
        assert_eq!(location.shown(), "https://bucket.s3.example.org/case/42.raw");
        assert_eq!(location.file_name(), "42.raw");
        assert_eq!(location.host_and_port(), ("bucket.s3.example.org".to_owned(), 443));
    }
}
