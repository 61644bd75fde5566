//! An object in a bucket, to be written: the requests of S3's protocol.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use cheetah_error::next::{Acquisition, Files};
use cheetah_error::{Error, Result};
use cheetah_kit::percent::{COMPONENT, encode};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use ring::digest::{self, SHA256};
use tokio::time::sleep;

use super::http::{CallError, HttpClient, client, next_piece, send};
use super::location::Location;
use super::s3::answers::{ListedPart, PartsPage, Refusal, TEXT_BYTES_MAX, upload_id};
use super::s3::xml::escaped;
use super::{PAUSE, PAUSE_MAX};

/// The number of times that a request is sent, if it fails temporarily.
const ATTEMPTS: u32 = 8;
/// The maximum size of an answer: the list of 1000 parts has half a MiB.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// The maximum size of all pages of a list of parts.
const LIST_BYTES_MAX: usize = 4 * ANSWER_BYTES_MAX;
/// The maximum number of connections that are kept.
const CONNECTIONS_MAX: usize = 16;
/// A store answers a request with content once it has stored it: this many times later than it would send content.
const PATIENCE_FACTOR: u32 = 6;

/// The metadata by which an object is known to be the result of an upload.
const TOKEN: &str = "x-amz-meta-cheetah-upload";
const CHECKSUM: &str = "x-amz-checksum-sha256";

/// An object in a bucket, to be written.
#[derive(Clone)]
pub struct ObjectTarget {
    location: Location,
    client: HttpClient,
    patience: Duration,
}

/// An object that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExistingObject {
    /// Its size in bytes.
    pub size: u64,
    /// The token of the upload that made it.
    pub token: Option<String>,
}

/// A part that the store has confirmed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoredPart {
    /// Counted from 1.
    pub number: u32,
    pub bytes: u64,
    /// In base64, as the protocol has it.
    pub sha256: String,
    pub etag: String,
}

/// The answer to a request.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl ObjectTarget {
    /// Parses `s3://BUCKET/KEY`, and reads the user's settings of the object store.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if it names no object, there are no credentials, or evidence would cross a network in clear.
    /// `Kind::Failed` if a file of settings or certificates cannot be read.
    pub fn parse(uri: &str, timeout: Duration) -> Result<Self> {
        let location = Location::parse(uri)?;
        if location.bucket().is_none() {
            return Err(Error::misuse(format!("{uri} is not an object; write s3://BUCKET/KEY")));
        }
        Ok(Self { location, client: client(CONNECTIONS_MAX)?, patience: timeout * PATIENCE_FACTOR })
    }

    /// Returns another object of the same folder.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn beside(&self, name: &str) -> Result<Self> {
        Ok(Self { location: self.location.beside(name)?, ..self.clone() })
    }

    /// Returns the name, as the user wrote it.
    pub fn shown(&self) -> String {
        self.location.shown()
    }

    /// Returns the name of the object within its folder.
    pub fn file_name(&self) -> &str {
        self.location.file_name()
    }

    /// Returns whether there is such an object.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if the store refuses to tell.
    pub async fn exists(&self) -> Result<bool> {
        Ok(self.find().await?.is_some())
    }

    /// Returns the size of the object in bytes; 0 if there is none.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if the store refuses to tell.
    pub async fn size(&self) -> Result<u64> {
        Ok(self.find().await?.map_or(0, |object| object.size))
    }

    /// Stores a small object, replacing any of that name.
    ///
    /// # Errors
    ///
    /// `Kind::Failed` if the store refuses it, or confirms another checksum.
    pub async fn put(&self, content: Bytes) -> Result<()> {
        let sha256 = sha256(&content);
        let answer = self.request(Method::PUT, "", &[(CHECKSUM, &sha256)], content).await?;
        self.check_sum(&self.accepted(answer)?, &sha256)
    }

    /// Looks for the object.
    pub(crate) async fn find(&self) -> Result<Option<ExistingObject>> {
        let answer = self.request(Method::HEAD, "", &[], Bytes::new()).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let answer = self.accepted(answer)?;
        let value = |name: &str| answer.headers.get(name)?.to_str().ok().map(str::to_owned);
        let size = value(header::CONTENT_LENGTH.as_str()).and_then(|size| size.parse().ok());
        let size = size.ok_or_else(|| self.failed("the store does not tell the size of the object"))?;
        Ok(Some(ExistingObject { size, token: value(TOKEN) }))
    }

    /// Begins an upload in parts, whose object will have this token. Returns its id.
    pub(crate) async fn begin(&self, token: &str) -> Result<String> {
        let headers = [("x-amz-checksum-algorithm", "SHA256"), (TOKEN, token)];
        let answer = self.accepted(self.request(Method::POST, "uploads=", &headers, Bytes::new()).await?)?;
        upload_id(&answer.text)
            .ok_or_else(|| self.failed("the store does not name the upload; it may not speak S3's protocol"))
    }

    /// Stores a part, whose checksum the store compares.
    pub(crate) async fn put_part(&self, id: &str, number: u32, content: Bytes, sha256: String) -> Result<StoredPart> {
        let bytes = content.len() as u64;
        let query = format!("partNumber={number}&uploadId={}", encode(id, COMPONENT));
        let answer = self.request(Method::PUT, &query, &[(CHECKSUM, &sha256)], content).await?;
        let answer = self.accepted(answer)?;
        self.check_sum(&answer, &sha256)?;
        let etag = answer.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let etag = etag.filter(|etag| etag.len() <= TEXT_BYTES_MAX);
        let etag = etag.ok_or_else(|| self.failed("the store names no ETag of a part"))?;
        Ok(StoredPart { number, bytes, sha256, etag })
    }

    /// Returns the parts that the store has of an upload; `None` if it does not know the upload.
    pub(crate) async fn list_parts(&self, id: &str) -> Result<Option<Vec<ListedPart>>> {
        let (mut parts, mut behind, mut bytes) = (Vec::new(), 0, 0);
        loop {
            let query = format!("part-number-marker={behind}&uploadId={}", encode(id, COMPONENT));
            let answer = self.request(Method::GET, &query, &[], Bytes::new()).await?;
            if answer.status == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let text = self.accepted(answer)?.text;
            bytes += text.len();
            if bytes > LIST_BYTES_MAX {
                return Err(self.failed("the store lists more parts than an upload can have"));
            }
            let page = PartsPage::parse(&text).map_err(|why| self.failed(why))?;
            parts.extend(page.parts);
            match page.next.filter(|next| *next > behind) {
                Some(next) => behind = next,
                None => return Ok(Some(parts)),
            }
        }
    }

    /// Makes the object of the parts, and checks that it is there. An existing one is replaced only with `replace`.
    pub(crate) async fn complete(&self, (id, token): (&str, &str), parts: &[StoredPart], replace: bool) -> Result<()> {
        let listed = parts.iter().map(|StoredPart { number, sha256, etag, .. }| {
            let (etag, sha256) = (escaped(etag), escaped(sha256));
            format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><ChecksumSHA256>{sha256}</ChecksumSHA256></Part>"
            )
        });
        let content = format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", listed.collect::<String>());
        let query = format!("uploadId={}", encode(id, COMPONENT));
        // Not every store heeds the condition.
        if !replace && self.find().await?.is_some_and(|object| object.token.as_deref() != Some(token)) {
            return Err(self.is_there());
        }
        let only_new: &[(&str, &str)] = if replace { &[] } else { &[(header::IF_NONE_MATCH.as_str(), "*")] };
        let answer = self.request(Method::POST, &query, only_new, content.into()).await;
        // The store may have completed it although its answer was lost, or is that to a repeated request.
        match (self.find().await?, answer) {
            (Some(object), _) if object.token.as_deref() == Some(token) => self.check_size(&object, parts),
            (_, Err(error)) => Err(error),
            (Some(_), Ok(answer)) if answer.status == StatusCode::PRECONDITION_FAILED => Err(self.is_there()),
            (_, Ok(answer)) => Err(match self.accepted(answer) {
                Err(error) => error,
                Ok(_) => self.failed("the store says that the upload is complete, but the object is not there"),
            }),
        }
    }

    /// Checks that an object has as many bytes as the parts of which it was made.
    pub(crate) fn check_size(&self, object: &ExistingObject, parts: &[StoredPart]) -> Result<()> {
        let size: u64 = parts.iter().map(|part| part.bytes).sum();
        match object.size == size {
            true => Ok(()),
            false => {
                Err(Error::evidence(format!("{} has {} bytes, where {size} were stored", self.shown(), object.size))
                    .next(Acquisition::RemoveAndBeginAgain))
            }
        }
    }

    /// Ends an upload and discards its parts; does nothing if the store does not know it.
    pub(crate) async fn abort(&self, id: &str) -> Result<()> {
        let query = format!("uploadId={}", encode(id, COMPONENT));
        let answer = self.request(Method::DELETE, &query, &[], Bytes::new()).await?;
        if answer.status == StatusCode::NOT_FOUND { Ok(()) } else { self.accepted(answer).map(drop) }
    }

    /// The error for an object that exists already.
    pub fn is_there(&self) -> Error {
        Error::misuse(format!("{} exists already", self.shown())).next(Files::Replace)
    }

    /// Sends a request, again if it fails temporarily.
    async fn request(&self, method: Method, query: &str, headers: &[(&str, &str)], content: Bytes) -> Result<Answer> {
        let (mut attempt, mut pause) = (1, PAUSE);
        loop {
            let uri = match query {
                "" => self.location.uri.to_string(),
                query => format!("{}?{query}", self.location.uri),
            };
            let request = Request::builder().method(method.clone()).uri(uri);
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let why = match send(&self.client, &self.location, request, content.clone(), self.patience).await {
                Ok(answer) => match self.received(answer).await {
                    Ok(answer) if !answer.is_passing() => return Ok(answer),
                    Ok(answer) => answer.why(),
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if attempt == ATTEMPTS {
                return Err(self.failed(&why));
            }
            tracing::debug!("{}: {why}; sending the request again", self.shown());
            sleep(pause).await;
            (attempt, pause) = (attempt + 1, (pause * 2).min(PAUSE_MAX));
        }
    }

    async fn received(&self, answer: Response<Incoming>) -> std::result::Result<Answer, CallError> {
        let (head, mut body) = answer.into_parts();
        let mut content = BytesMut::new();
        while let Some(bytes) = next_piece(&mut body, self.patience).await? {
            if content.len() + bytes.len() > ANSWER_BYTES_MAX {
                return Err(CallError::TooLarge);
            }
            content.extend_from_slice(&bytes);
        }
        let text = String::from_utf8_lossy(&content).into_owned();
        Ok(Answer { status: head.status, headers: head.headers, text })
    }

    /// Fails with what the store says, unless it has done what was requested.
    fn accepted(&self, answer: Answer) -> Result<Answer> {
        // The answer to a completion may be an error behind the status 200.
        if answer.status.is_success() && Refusal::parse(&answer.text).is_none() {
            return Ok(answer);
        }
        let advice =
            if answer.status.is_client_error() { self.location.advice(&answer.headers) } else { String::new() };
        Err(self.failed(&(answer.why() + &advice)))
    }

    /// Compares the checksum that the store confirms, if it names one, with that of the content.
    fn check_sum(&self, answer: &Answer, sha256: &str) -> Result<()> {
        match answer.headers.get(CHECKSUM) {
            Some(stored) if stored.as_bytes() != sha256.as_bytes() => {
                Err(self.failed("the store confirms another checksum than that of the content that was sent"))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, why: &str) -> Error {
        Error::failed(format!("{}: {why}", self.shown()))
    }
}

impl Answer {
    /// Whether the request may succeed if it is sent again.
    fn is_passing(&self) -> bool {
        self.status.is_server_error() && self.status != StatusCode::NOT_IMPLEMENTED
            || matches!(self.status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
            || Refusal::parse(&self.text).is_some_and(|refusal| refusal.is_passing())
    }

    fn why(&self) -> String {
        match Refusal::parse(&self.text) {
            Some(refusal) => format!("the store answers {}: {refusal}", self.status),
            None => format!("the store answers {}", self.status),
        }
    }
}

/// Returns the checksum of a content, as the protocol writes it.
pub(crate) fn sha256(content: &[u8]) -> String {
    STANDARD.encode(digest::digest(&SHA256, content))
}

#[cfg(test)]
mod tests;
