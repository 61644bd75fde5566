//! A file on a web server or in an object store, read by requests for ranges.
//!
//! The file is opened at one version: each request names the version's tag or date, and each answer is compared with
//! it, so bytes of two versions are never mixed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error as DeviceError, Geometry, Io, Result as DeviceResult};
use cheetah_error::{Error, Kind, Result};
use cheetah_image::clean::clean;
use cheetah_image::{Evidence, Folder, LinkCounters, ServedBy, Source, coverage};
use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, header};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

mod answer;
mod http;
mod location;
pub(crate) mod s3;
pub(crate) mod target;

use answer::{Refusal, Version};
use http::{HttpClient, client, next_piece, send};
pub(crate) use location::Location;

use crate::options::SourceOptions;

/// The largest range that is requested at once. Larger reads become several concurrent requests.
const REQUEST_BYTES: u64 = 1 << 20;
/// The maximum number of requests in flight.
const REQUESTS_MAX: usize = 16;
/// The maximum number of redirections.
const REDIRECTIONS_MAX: usize = 5;
/// The pause before a request is repeated; it doubles each time, up to the maximum.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Opens the image in the file at `spec`.
///
/// # Errors
///
/// `Kind::Misuse` if `spec` is not a URI, or would carry evidence in clear beyond this machine. `Kind::Failed`
/// if the server cannot be reached, does not answer requests for ranges, or does not name the version of the file, or
/// if the image is in a format that is not read from a server.
pub(crate) async fn open_web(spec: &str, options: &SourceOptions) -> Result<Evidence> {
    let SourceOptions { link, ref session, apply_map, in_order, .. } = *options;
    let timeout = session.timeout;
    let location = Location::parse(spec)?;
    let server = Server::new(timeout)?;
    let file = match WebFile::open(&server, location.clone()).await? {
        Ok(file) => Arc::new(file),
        Err(refused) => {
            let advice = location.advice(refused.headers());
            return Err(Error::failed(format!(
                "{}: the server answers {}{advice}",
                location.shown(),
                refused.status()
            )));
        }
    };
    let transport = match file.location.is_encrypted() {
        true => "TLS 1.3, the server's certificate verified by name",
        false => "in clear, within this machine",
    };
    let served = ServedBy {
        export: clean(location.file_name()),
        description: Some(clean(&file.version.shown())),
        transport: Some(transport.to_owned()),
        redirections: file.redirections.clone(),
        ..ServedBy::default()
    };
    // A signature holds for one file.
    let folder = (!location.has_query())
        .then(|| Arc::new(WebFolder { server: server.clone(), first: location.clone() }) as Arc<dyn Folder>);
    let wire = move || {
        let received = server.received.load(Ordering::Relaxed);
        LinkCounters { received_bytes: received, content_bytes: received, reconnects: 0 }
    };
    let image = cheetah_image::OpenOptions {
        timeout,
        connections: link.connections,
        apply_map,
        in_order,
        ..Default::default()
    };
    let mut source =
        cheetah_image::open_behind(file, &location.shown(), location.file_name(), folder.clone(), &image).await?;
    source.identity.server = Some(served);
    // Acquisitions put the map of an incomplete image beside the object.
    if let Some(folder) = folder.filter(|_| apply_map && location.bucket().is_some()) {
        source = with_map(source, &*folder, location.file_name()).await?;
    }
    Ok(Evidence { wire: Some(Arc::new(wire)), ..source.into() })
}

/// Applies the coverage map beside an image, if there is one.
async fn with_map(source: Source, folder: &dyn Folder, image: &str) -> Result<Source> {
    let name = format!("{image}.map");
    let Some(map) = folder.open(&name).await? else { return Ok(source) };
    let (map_name, image_name) = (folder.location(&name), folder.location(image));
    let size = map.geometry().size;
    if size > coverage::MAP_LEN_MAX {
        return Err(Error::evidence(format!("{map_name}: too large for a coverage map")));
    }
    let bytes = map.read(ByteRange::new(0, size)).await.map_err(Error::device(format!("reading {map_name}")))?;
    coverage::apply(source, coverage::parse_map(bytes.into_bytes().into(), &map_name)?, (&map_name, &image_name))
}

/// The requests to a server, for one source: all files of a set share connections and limits.
#[derive(Clone)]
struct Server {
    client: HttpClient,
    /// How long the server may be silent, and how long failed requests are repeated.
    patience: Duration,
    requests: Arc<Semaphore>,
    received: Arc<AtomicU64>,
}

impl Server {
    fn new(patience: Duration) -> Result<Self> {
        let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
        Ok(Self { client: client(REQUESTS_MAX)?, patience, requests, received: Arc::default() })
    }
}

/// The folder of the first file of a set.
struct WebFolder {
    server: Server,
    first: Location,
}

impl Folder for WebFolder {
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<DynDevice>>> {
        Box::pin(async move {
            let opened = WebFile::open(&self.server, self.first.beside(name)?).await?;
            Ok(opened.ok().map(|file| Arc::new(file) as DynDevice))
        })
    }

    fn location(&self, name: &str) -> String {
        self.first.beside(name).map_or_else(|_| name.to_owned(), |location| location.shown())
    }
}

/// A file on a web server, as a read-only device.
struct WebFile {
    server: Server,
    location: Location,
    name: Arc<str>,
    size: u64,
    version: Version,
    /// Where servers redirected the request to, in order.
    redirections: Vec<String>,
}

impl WebFile {
    /// Opens the file; returns the answer if the server says that there is none. Object stores say 403 to clients that
    /// may not list a folder.
    async fn open(server: &Server, mut location: Location) -> Result<std::result::Result<Self, Response<Incoming>>> {
        let name = location.shown();
        let failed = |why: String| Error::failed(format!("{name}: {why}"));
        let mut redirections = Vec::new();
        for _ in 0..=REDIRECTIONS_MAX {
            let request = Request::get(location.uri.clone()).header(header::RANGE, "bytes=0-0");
            let answer = send(&server.client, &location, request, Bytes::new(), server.patience)
                .await
                .map_err(|error| failed(error.to_string()))?;
            if answer.status().is_redirection() {
                location = location.redirected(answer.headers())?;
                redirections.push(location.shown());
                tracing::info!("{name}: the server redirects to {}", location.shown());
                continue;
            }
            if matches!(answer.status(), StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::FORBIDDEN) {
                return Ok(Err(answer));
            }
            let size = answer::size(&answer).map_err(|refusal| {
                let advice =
                    if answer.status().is_client_error() { location.advice(answer.headers()) } else { String::new() };
                failed(format!("{refusal}{advice}")).because(refusal)
            })?;
            let no_version = || Error::caused(Kind::Failed, Refusal::NoVersion).within(&name);
            let version = Version::of(answer.headers()).ok_or_else(no_version)?;
            let (server, name) = (server.clone(), name.into());
            return Ok(Ok(Self { server, location, name, size, version, redirections }));
        }
        Err(failed(format!("the server redirects more than {REDIRECTIONS_MAX} times")))
    }

    /// Reads a range of at most [`REQUEST_BYTES`]. Repeats requests that fail temporarily.
    async fn read_piece(&self, range: ByteRange) -> DeviceResult<Data> {
        // The semaphore is never closed.
        let _permit = self.server.requests.acquire().await.ok();
        let (begun, mut pause) = (Instant::now(), PAUSE);
        loop {
            let why = match self.request(range).await {
                Ok(bytes) => return Ok(bytes.into()),
                Err(refusal) if refusal.is_passing() => refusal.to_string(),
                Err(refusal) => return Err(DeviceError::Invalid(format!("{}: {refusal}", self.name).into())),
            };
            if begun.elapsed() + pause >= self.server.patience {
                return Err(DeviceError::Lost { device: self.name.clone(), range, why: why.into() });
            }
            tracing::debug!("{}: {range}: {why}; requesting it again", self.name);
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn request(&self, range: ByteRange) -> std::result::Result<Bytes, Refusal> {
        let mut request = Request::get(self.location.uri.clone())
            .header(header::RANGE, format!("bytes={}-{}", range.offset, range.end() - 1));
        if let Some((name, value)) = self.version.condition() {
            request = request.header(name, value);
        }
        let Server { client, patience, .. } = &self.server;
        let answer = send(client, &self.location, request, Bytes::new(), *patience).await?;
        answer::check(&answer, range, self.size, &self.version)?;
        // At most REQUEST_BYTES.
        let mut content = BytesMut::with_capacity(range.len as usize);
        let mut body = answer.into_body();
        while let Some(bytes) = next_piece(&mut body, *patience).await? {
            self.server.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if (content.len() + bytes.len()) as u64 > range.len {
                return Err(Refusal::TooMuch);
            }
            content.extend_from_slice(&bytes);
        }
        match content.len() as u64 == range.len {
            true => Ok(content.freeze()),
            false => Err(Refusal::TooLittle),
        }
    }
}

impl Device for WebFile {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match self.check(range) {
            Err(error) => Io::fail(error),
            Ok(()) if range.is_empty() => Io::ok(Data::new()),
            Ok(()) => Io::later(async move {
                let pieces = stream::iter(range.split_at_multiples(REQUEST_BYTES)).map(|piece| self.read_piece(piece));
                let join = |mut whole: Data, piece| {
                    whole.append(piece);
                    std::future::ready(Ok(whole))
                };
                pieces.buffered(REQUESTS_MAX).try_fold(Data::new(), join).await
            }),
        }
    }
}

#[cfg(test)]
mod tests;
