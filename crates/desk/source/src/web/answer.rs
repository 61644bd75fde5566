//! The answers of a web server to requests for ranges. No I/O.

use cheetah_device::ByteRange;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use super::http::CallError;

/// The version of a file, as the server names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
}

/// Why an answer is not the content that was requested.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The server does not say which range of the file it is.
    #[error("its answer has no valid Content-Range")]
    NoContentRange,
    /// The server does not say how large the file is.
    #[error("the server does not tell the size of the file; download it first")]
    NoSize,
    /// A change of the file would not be noticed.
    #[error(
        "the server names no version of the file (neither ETag nor Last-Modified), so a change during reading would not \
         be noticed; download it first"
    )]
    NoVersion,
    /// The server returns the whole file.
    #[error("the server does not answer requests for ranges; download it first")]
    NoRanges,
    /// The server returns the whole file, and did not when it was opened.
    #[error("the server stopped answering requests for ranges")]
    NoMoreRanges,
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// The server says that the file has changed.
    #[error("the file was changed on the server since it was opened; open it again")]
    Changed,
    /// The answer is of another version of the file.
    #[error("the server returned another version of the file than was opened; open it again")]
    OtherVersion,
    /// The answer is another range, or of a file of another size.
    #[error("the server returned another range than was requested")]
    OtherRange,
    /// The answer is compressed.
    #[error("the server returned encoded content, which was not requested")]
    Encoded,
    /// The answer has more bytes than it says.
    #[error("the server returned more than was requested")]
    TooMuch,
    /// The answer has fewer bytes than it says.
    #[error("the server returned less than was requested")]
    TooLittle,
    /// The server answers with another status.
    #[error("the server answers {0}")]
    Status(StatusCode),
    /// There is no answer.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Refusal {
    /// Whether the server is overloaded, or failed: the request may succeed if it is repeated.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Call(_) | Self::TooLittle => true,
            Self::Status(StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) => true,
            Self::Status(status) => status.is_server_error(),
            _ => false,
        }
    }
}

impl Version {
    /// Returns the version in an answer; `None` if the server names none.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let version =
            Self { etag: headers.get(header::ETAG).cloned(), modified: headers.get(header::LAST_MODIFIED).cloned() };
        (version.etag.is_some() || version.modified.is_some()).then_some(version)
    }

    /// Returns the header that makes the server refuse another version.
    pub fn condition(&self) -> Option<(HeaderName, HeaderValue)> {
        // A weak tag may also match other content, and HTTP forbids it in this header.
        match self.etag.as_ref().filter(|etag| !etag.as_bytes().starts_with(b"W/")) {
            Some(etag) => Some((header::IF_MATCH, etag.clone())),
            None => self.modified.clone().map(|modified| (header::IF_UNMODIFIED_SINCE, modified)),
        }
    }

    /// Returns the version as text.
    pub fn shown(&self) -> String {
        let text = |what: &str, value: &Option<HeaderValue>| {
            value.as_ref().map(|value| format!("{what} {}", String::from_utf8_lossy(value.as_bytes())))
        };
        let parts = [text("ETag", &self.etag), text("Last-Modified", &self.modified)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Returns the size of the whole file in the answer to a request for its first byte.
pub(super) fn size<B>(answer: &Response<B>) -> Result<u64, Refusal> {
    match answer.status() {
        StatusCode::PARTIAL_CONTENT => {
            let (_, size) = content_range(answer.headers()).ok_or(Refusal::NoContentRange)?;
            size.ok_or(Refusal::NoSize)
        }
        StatusCode::OK => Err(Refusal::NoRanges),
        StatusCode::RANGE_NOT_SATISFIABLE => Err(Refusal::Empty),
        status => Err(Refusal::Status(status)),
    }
}

/// Checks that an answer has the range of the version and size that were opened.
pub(super) fn check<B>(answer: &Response<B>, range: ByteRange, size: u64, version: &Version) -> Result<(), Refusal> {
    match answer.status() {
        StatusCode::PARTIAL_CONTENT => {}
        StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE => return Err(Refusal::Changed),
        StatusCode::OK => return Err(Refusal::NoMoreRanges),
        status => return Err(Refusal::Status(status)),
    }
    if Version::of(answer.headers()).as_ref() != Some(version) {
        return Err(Refusal::OtherVersion);
    }
    if content_range(answer.headers()) != Some((range, Some(size))) {
        return Err(Refusal::OtherRange);
    }
    match answer.headers().get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(Refusal::Encoded),
        _ => Ok(()),
    }
}

/// Parses `bytes FIRST-LAST/SIZE`; the size may be `*`, unknown.
fn content_range(headers: &HeaderMap) -> Option<(ByteRange, Option<u64>)> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let end = last.checked_add(1).filter(|end| *end > first)?;
    let size = match size {
        "*" => None,
        size => Some(number(size).filter(|size| *size >= end && i64::try_from(*size).is_ok())?),
    };
    Some((ByteRange::between(first, end), size))
}

/// Parses digits; `u64::from_str` would accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::mem::discriminant;

    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)]) -> Response<()> {
        let builder = Response::builder().status(status);
        headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(()).unwrap()
    }

    #[test]
    fn only_the_requested_range_of_the_opened_version_is_accepted() {
        let good = [("etag", "\"v1\""), ("content-range", "bytes 10-19/100")];
        let version = Version::of(answer(206, &good).headers()).unwrap();
        let check = |answer: &Response<()>| check(answer, ByteRange::new(10, 10), 100, &version);
        check(&answer(206, &good)).unwrap();
        for (status, headers, why) in [
            (206, vec![good[0], ("content-range", "bytes 10-18/100")], Refusal::OtherRange),
            (206, vec![good[0], ("content-range", "bytes 10-19/101")], Refusal::OtherRange),
            (206, vec![good[0], ("content-range", "bytes +10-19/100")], Refusal::OtherRange),
            (206, vec![good[0]], Refusal::OtherRange),
            (206, vec![("etag", "\"v2\""), good[1]], Refusal::OtherVersion),
            (206, vec![good[1]], Refusal::OtherVersion),
            (206, vec![good[0], good[1], ("content-encoding", "gzip")], Refusal::Encoded),
            (200, vec![good[0]], Refusal::NoMoreRanges),
            (412, vec![], Refusal::Changed),
            (416, vec![], Refusal::Changed),
            (403, vec![], Refusal::Status(StatusCode::FORBIDDEN)),
        ] {
            let refused = check(&answer(status, &headers)).unwrap_err();
            assert_eq!(discriminant(&refused), discriminant(&why), "{refused:?}");
            assert!(!refused.is_passing(), "{refused:?}");
        }
        assert!(check(&answer(503, &[])).unwrap_err().is_passing());
    }

    #[test]
    fn a_weak_tag_is_compared_and_never_a_condition() {
        let weak = answer(206, &[("etag", "W/\"v1\""), ("last-modified", "Mon, 23 Nov 2026 10:00:00 GMT")]);
        let version = Version::of(weak.headers()).unwrap();
        assert_eq!(version.condition().unwrap().0, header::IF_UNMODIFIED_SINCE);
        assert_eq!(Version::of(answer(206, &[]).headers()), None);
    }
}
