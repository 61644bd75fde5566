//! An object in a bucket of an object store that speaks S3's protocol.

use std::sync::Arc;

use cheetah_error::{Error, Result};
use cheetah_kit::percent::{AsciiSet, COMPONENT, encode};
use hyper::Request;
use hyper::header::HeaderMap;
use time::OffsetDateTime;

pub(crate) mod answers;
mod settings;
mod signature;
pub(crate) mod xml;

pub(super) use settings::Settings;

/// The name of an object, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    bucket: String,
    key: String,
    settings: Arc<Settings>,
}

impl Object {
    /// Parses `BUCKET/KEY`, the part of a URI behind `s3://`.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if it names no object.
    pub fn parse(text: &str, settings: Settings) -> Result<Self> {
        let wrong = |why: &str| Error::misuse(format!("s3://{text}: {why}; write s3://BUCKET/KEY"));
        let (bucket, key) = text.split_once('/').ok_or_else(|| wrong("this names no object"))?;
        // The bucket's name becomes a part of a host name.
        if bucket.is_empty() || !bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) {
            return Err(wrong("a bucket's name has letters, digits, dots and hyphens only"));
        }
        if key.is_empty() || key.ends_with('/') || key.contains(char::is_control) {
            return Err(wrong("this names no object"));
        }
        Ok(Self { bucket: bucket.to_owned(), key: key.to_owned(), settings: Arc::new(settings) })
    }

    /// Returns another object of the same folder: one whose key differs behind the last slash.
    pub fn beside(&self, name: &str) -> Self {
        let key = match self.key.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{name}"),
            None => name.to_owned(),
        };
        Self { key, ..self.clone() }
    }

    /// Returns the URI that requests for the object are sent to.
    pub fn uri(&self) -> String {
        let (bucket, key) = (&self.bucket, encode(&self.key, KEY));
        match &self.settings.endpoint {
            Some(endpoint) => format!("{}/{bucket}/{key}", endpoint.trim_end_matches('/')),
            // A certificate for `*.s3…` does not hold for a name with further dots.
            None if bucket.contains('.') => format!("https://s3.{}.amazonaws.com/{bucket}/{key}", self.settings.region),
            None => format!("https://{bucket}.s3.{}.amazonaws.com/{key}", self.settings.region),
        }
    }

    /// Returns the object as the user names it.
    pub fn shown(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.key)
    }

    /// Returns the bucket's name.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the part of the key behind the last slash.
    pub fn file_name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or(&self.key)
    }

    /// Adds the headers that show that a request with this content is the user's. Adds none if requests are anonymous.
    pub fn sign(&self, request: &mut Request<()>, content: &[u8], now: OffsetDateTime) -> Result<()> {
        match &self.settings.credentials {
            Some(credentials) => signature::sign(credentials, &self.settings.region, request, content, now),
            None => Ok(()),
        }
    }

    /// Returns what to do about an answer that refuses the object.
    pub fn advice(&self, headers: &HeaderMap) -> String {
        let region = headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        match region.filter(|region| *region != self.settings.region) {
            Some(region) => format!("the bucket is in region {region}: set AWS_REGION={region}"),
            None => {
                let whose = match self.settings.credentials {
                    Some(_) => "that the credentials are valid and permit this",
                    None => "that it is public",
                };
                format!("check that the object exists, {whose}, and the region ({})", self.settings.region)
            }
        }
    }
}

/// What is percent-encoded in a key. Signatures require exactly this.
const KEY: &AsciiSet = &COMPONENT.remove(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str, endpoint: Option<&str>) -> Result<Object> {
        let endpoint = endpoint.map(str::to_owned);
        Object::parse(text, Settings { region: "eu-north-1".to_owned(), endpoint, credentials: None })
    }

    #[test]
    fn an_object_has_the_uri_of_its_bucket() {
        for (text, endpoint, uri) in [
            ("lab/case/42.raw", None, "https://lab.s3.eu-north-1.amazonaws.com/case/42.raw"),
            ("lab.example/42.raw", None, "https://s3.eu-north-1.amazonaws.com/lab.example/42.raw"),
            ("lab/ä b?c", Some("https://store:9000/"), "https://store:9000/lab/%C3%A4%20b%3Fc"),
        ] {
            let object = object(text, endpoint).unwrap();
            assert_eq!((object.uri().as_str(), object.shown()), (uri, format!("s3://{text}")));
        }
        let first = object("lab/case/disk.E01", None).unwrap();
        assert_eq!(first.beside("disk.E02").shown(), "s3://lab/case/disk.E02");
        assert_eq!(object("lab/disk.E01", None).unwrap().beside("disk.E02").shown(), "s3://lab/disk.E02");
    }

    #[test]
    fn a_text_that_names_no_object_is_a_misuse() {
        for bad in ["", "lab", "lab/", "/key", "lab@evil/key", "lab#/key", "lab/folder/", "lab/a\nb"] {
            let error = object(bad, None).unwrap_err();
            assert!(error.is_misuse() && error.to_string().contains("s3://BUCKET/KEY"), "{error}");
        }
    }
}
