//! Where a file on a web server is. No I/O.

use std::net::IpAddr;

use cheetah_error::{Error, Result};
use hyper::Uri;
use hyper::header::HeaderValue;

/// An `http://` or `https://` URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location(pub Uri);

impl Location {
    /// Parses a URI.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if it is not one, if it has a user name or a password, or if evidence would cross a network in
    /// clear.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::misuse(format!("{}: {why}", without_query(text)));
        let uri: Uri = text.parse().map_err(|_| wrong("this is not a URI; write https://HOST[:PORT]/PATH"))?;
        let location = Self(uri);
        if location.0.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(wrong("a user name or password in a URI is not supported; use a signed URI"));
        }
        match location.0.scheme_str() {
            Some("https") => Ok(location),
            Some("http") if location.is_within_machine() => Ok(location),
            Some("http") => Err(wrong(
                "http:// is not encrypted, and this host is not this machine; use https://, or a tunnel that ends on this \
                 machine (ssh -L)",
            )),
            _ => Err(wrong("only http:// and https:// name files on the web")),
        }
    }

    /// Returns the location that a server redirects to.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`]; also if the new location is not encrypted and this one is.
    pub fn redirected(&self, to: Option<&HeaderValue>) -> Result<Self> {
        let wrong = |why: &str| Error::failed(format!("{}: {why}", self.shown()));
        let to = to.and_then(|to| to.to_str().ok()).ok_or_else(|| wrong("the server redirects to nowhere"))?;
        let absolute = match to.starts_with('/') {
            true => {
                format!("{}://{}{to}", self.scheme(), self.0.authority().map_or("", |authority| authority.as_str()))
            }
            false => to.to_owned(),
        };
        let next = Self::parse(&absolute)?;
        if self.is_encrypted() && !next.is_encrypted() {
            return Err(wrong("the server redirects from https:// to http://"));
        }
        Ok(next)
    }

    /// Returns the location of another file in the same folder.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn beside(&self, name: &str) -> Result<Self> {
        let authority = self.0.authority().map_or("", |authority| authority.as_str());
        let folder = self.0.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        Self::parse(&format!("{}://{authority}{folder}/{name}", self.scheme()))
    }

    /// Whether it has a query, such as a signature, which holds for this file only.
    pub fn has_query(&self) -> bool {
        self.0.query().is_some()
    }

    /// Whether connections to it are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.scheme() == "https"
    }

    /// The host and the TCP port.
    pub fn host_and_port(&self) -> (String, u16) {
        let port = self.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 });
        (self.host().to_owned(), port)
    }

    /// The URI without its query: a signed URI's query is a secret.
    pub fn shown(&self) -> String {
        without_query(&self.0.to_string())
    }

    /// The name of the file.
    pub fn file_name(&self) -> &str {
        self.0.path().rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("web")
    }

    fn scheme(&self) -> &str {
        self.0.scheme_str().unwrap_or_default()
    }

    fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
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
            ("http://lab/disk.raw", "not encrypted"),
            ("http://127.0.0.1.example.org/d", "not encrypted"),
            ("https://user:secret@lab/d", "user name"),
            ("ftp://lab/d", "only"),
            ("https:///d", "URI"),
        ] {
            let error = Location::parse(bad).unwrap_err();
            assert!(matches!(error, Error::Misuse(_)) && error.to_string().contains(why), "{error}");
        }
        let secure = Location::parse("https://lab/d").unwrap();
        let to = |text: &str| HeaderValue::from_str(text).unwrap();
        assert_eq!(secure.redirected(Some(&to("/e?k=1"))).unwrap().0, "https://lab/e?k=1".parse::<Uri>().unwrap());
        assert!(secure.redirected(Some(&to("http://127.0.0.1/d"))).is_err());
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
