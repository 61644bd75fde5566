//! The client beside a server with vices.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use cheetah_drive::Session;
use cheetah_image::Kind;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::link::LinkUse;

/// What the server does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vice {
    None,
    /// It answers each request with the whole file.
    NoRanges,
    /// It names no version.
    NoVersion,
    /// After the opening, it has another file, and heeds no condition.
    Changes,
    /// After the opening, it has another file, and answers 412.
    ChangesAndSaysSo,
    /// After the opening, it returns another range than was requested.
    OtherRange,
    /// Its Content-Length is right, and the connection ends before.
    Short,
    /// Its Content-Length is larger than the range.
    Long,
    /// After the opening, it says nothing, this many times.
    Stalls(usize),
    /// After the opening, it answers 503, this many times.
    Busy(usize),
    /// It redirects the opening.
    Redirects,
}

struct Server {
    vice: Vice,
    content: Vec<u8>,
    /// The file has been opened.
    is_open: AtomicBool,
    /// The number of requests since then.
    requests: AtomicUsize,
}

fn content() -> Vec<u8> {
    (0..3_000_000u32).map(|at| (at % 251) as u8).collect()
}

async fn serve(vice: Vice) -> (String, Arc<Server>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (is_open, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    let server = Arc::new(Server { vice, content: content(), is_open, requests });
    let serving = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(serving.clone(), stream));
        }
    });
    (format!("http://{address}/case/disk.raw"), server)
}

async fn converse(server: Arc<Server>, mut stream: TcpStream) {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    loop {
        let mut head = Vec::new();
        while let Ok(Some(line)) = lines.next_line().await {
            if line.is_empty() {
                break;
            }
            head.push(line);
        }
        if head.is_empty() {
            return;
        }
        let number = match server.is_open.load(Ordering::Acquire) {
            true => server.requests.fetch_add(1, Ordering::Relaxed) + 1,
            false => 0,
        };
        let Some(answer) = server.answer(&head, number) else {
            std::future::pending::<()>().await;
            return;
        };
        if writer.write_all(&answer).await.is_err() || server.vice == Vice::Short && number > 0 {
            return;
        }
    }
}

impl Server {
    /// Returns the answer to a request, which is the nth since the file was opened, or 0 before; `None` for silence.
    fn answer(&self, head: &[String], number: usize) -> Option<Vec<u8>> {
        let value = |name: &str| {
            let line =
                head.iter().find_map(|line| line.split_once(": ").filter(|(is, _)| is.eq_ignore_ascii_case(name)));
            line.map(|(_, value)| value.to_owned())
        };
        let simple = |status: &str, more: &str| {
            Some(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n{more}\r\n").into_bytes())
        };
        let (size, later) = (self.content.len(), number > 0);
        match self.vice {
            Vice::Stalls(times) if later && number <= times => return None,
            Vice::Busy(times) if later && number <= times => return simple("503 Service Unavailable", ""),
            Vice::ChangesAndSaysSo if later && value("if-match").as_deref() == Some("\"v1\"") => {
                return simple("412 Precondition Failed", "");
            }
            Vice::Redirects if !head[0].contains("/moved ") => return simple("302 Found", "location: /moved\r\n"),
            _ => {}
        }
        let etag = match self.vice {
            Vice::NoVersion => "",
            Vice::Changes if later => "etag: \"v2\"\r\n",
            _ => "etag: \"v1\"\r\n",
        };
        if self.vice == Vice::NoRanges {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n{etag}\r\n");
            return Some([head.as_bytes(), &self.content].concat());
        }
        let range = value("range").unwrap();
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (mut first, mut last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        if self.vice == Vice::OtherRange && later {
            (first, last) = (first + 1, last + 1);
        }
        let mut body = self.content[first..=last].to_vec();
        let mut len = body.len();
        if later {
            match self.vice {
                Vice::Short => drop(body.pop()),
                Vice::Long => {
                    body.push(0);
                    len += 1;
                }
                _ => {}
            }
        }
        let range = format!("content-range: bytes {first}-{last}/{size}\r\ncontent-length: {len}\r\n");
        Some([format!("HTTP/1.1 206 Partial Content\r\n{range}{etag}\r\n").as_bytes(), &body].concat())
    }
}

async fn open(vice: Vice, patience: Duration) -> Result<Evidence> {
    let (uri, server) = serve(vice).await;
    let opened = open_web(
        &uri,
        &SourceOptions::new(LinkUse::default(), Session::new(Default::default(), Arc::default(), patience)),
    )
    .await?;
    server.is_open.store(true, Ordering::Release);
    Ok(opened)
}

/// Long enough for any answer that comes.
const LONG: Duration = Duration::from_secs(60);
/// Short enough to wait for the error of a server that never recovers.
const SHORT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn any_range_reads_as_the_file_has_it() {
    let content = content();
    for vice in [Vice::None, Vice::Redirects, Vice::Busy(3)] {
        let opened = open(vice, LONG).await.unwrap();
        let device = opened.source.device;
        assert_eq!(device.geometry().size, content.len() as u64);
        for (offset, len) in [(0, 1), (0, 3_000_000), (999_999, 1_500_000), (2_999_999, 1), (5, 0)] {
            let range = ByteRange::new(offset, len);
            assert!(device.read(range).await.unwrap() == content[offset as usize..range.end() as usize], "{range}");
        }
        assert!(device.read(ByteRange::new(3_000_000, 1)).await.is_err());
        assert_eq!(opened.source.identity.kind, Kind::Http);
        let server = opened.source.identity.server.unwrap();
        assert_eq!(server.description.as_deref(), Some("ETag \"v1\""));
        let redirected: Vec<_> = server.redirections.iter().map(|to| to.rsplit('/').next().unwrap()).collect();
        assert_eq!(redirected, if vice == Vice::Redirects { vec!["moved"] } else { vec![] });
        assert!((opened.wire.unwrap())().received_bytes >= 3_000_000);
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_read_at_random_or_names_no_version_is_refused() {
    let error = open(Vice::NoRanges, LONG).await.err().unwrap();
    assert!(matches!(error.cause(), Some(Refusal::NoRanges)), "{error}");
    let error = open(Vice::NoVersion, LONG).await.err().unwrap();
    assert!(matches!(error.cause(), Some(Refusal::NoVersion)), "{error}");
}

#[tokio::test]
async fn a_change_or_another_range_is_an_error_and_never_content() {
    for vice in [Vice::Changes, Vice::ChangesAndSaysSo, Vice::OtherRange, Vice::Long] {
        let device = open(vice, LONG).await.unwrap().source.device;
        let error = device.read(ByteRange::new(100, 5000)).await.unwrap_err();
        assert!(matches!(error, DeviceError::Invalid(_)), "{vice:?}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_stalls_is_asked_again() {
    let content = content();
    let device = open(Vice::Stalls(1), Duration::from_millis(700)).await.unwrap().source.device;
    // The first request is silent for the whole patience, so this read fails, and the next one succeeds.
    let error = device.read(ByteRange::new(0, 10)).await.unwrap_err();
    assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
    assert!(device.read(ByteRange::new(0, 10)).await.unwrap() == content[..10]);
}

#[tokio::test]
async fn a_server_that_cuts_answers_off_is_lost_after_the_patience() {
    let device = open(Vice::Short, SHORT).await.unwrap().source.device;
    let error = device.read(ByteRange::new(0, 5000)).await.unwrap_err();
    assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
}
