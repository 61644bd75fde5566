//! Uploads beside a store with vices.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cheetah_device::Device as _;
use cheetah_error::next::{Acquisition, Files};
use parking_lot::Mutex;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::super::s3::answers::PART_NUMBER_MAX;
use super::super::s3::{Object, Settings};
use super::*;
use crate::upload::{Upload, UploadRecord};

const LEN: usize = (17 << 20) + 5;
/// How long a silent store is waited for.
const SHORT: Duration = Duration::from_secs(2);

/// What the store does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vice {
    None,
    /// It confirms another checksum than that of the part that it was sent.
    OtherChecksum,
    /// It answers each second part with 503.
    Busy,
    /// It refuses parts.
    Refuses,
    /// It completes an upload, and closes the connection without an answer.
    AnswerLost,
    /// It answers a completion with an error behind the status 200.
    ErrorBehind200,
    /// It says that an upload is complete, and does not make the object.
    MakesNothing,
    /// It lists other ETags than those that it confirmed.
    OtherEtags,
    /// Its list of parts never ends.
    EndlessList,
    /// It lists a part that no upload has.
    ImpossiblePart,
}

#[derive(Default)]
struct State {
    /// The token of each upload, and its parts.
    uploads: HashMap<String, (String, BTreeMap<u32, Vec<u8>>)>,
    object: Option<(String, Vec<u8>)>,
}

struct Store {
    vice: Vice,
    state: Mutex<State>,
    /// The number of parts that were sent.
    parts: AtomicUsize,
}

struct Call {
    line: String,
    headers: HashMap<String, String>,
    content: Vec<u8>,
}

async fn call(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<Call> {
    let (mut line, mut headers) = (String::new(), HashMap::new());
    reader.read_line(&mut line).await.ok().filter(|len| *len > 0)?;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let len = headers.get("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    let mut content = vec![0; len];
    reader.read_exact(&mut content).await.ok()?;
    Some(Call { line, headers, content })
}

fn answer(status: &str, headers: &str, text: &str) -> Option<String> {
    Some(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{text}", text.len()))
}

impl Store {
    async fn converse(self: Arc<Self>, mut stream: TcpStream) {
        let (reader, mut writer) = stream.split();
        let mut reader = BufReader::new(reader);
        while let Some(call) = call(&mut reader).await {
            let Some(answer) = self.answer(&call) else { return };
            if writer.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// Returns the answer; `None` to close the connection.
    fn answer(&self, call: &Call) -> Option<String> {
        let mut words = call.line.split_whitespace();
        let (method, uri) = (words.next()?, words.next()?);
        let query: HashMap<_, _> = uri
            .split_once('?')
            .map_or("", |(_, query)| query)
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .collect();
        let mut state = self.state.lock();
        let state = &mut *state;
        let no_such = || answer("404 Not Found", "", "<Error><Code>NoSuchUpload</Code><Message>gone</Message></Error>");
        let Some(id) = query.get("uploadId") else {
            return match (method, &state.object) {
                ("POST", _) => {
                    let id = format!("id/{}", state.uploads.len());
                    state.uploads.insert(id.replace('/', "%2F"), (call.headers[TOKEN].clone(), BTreeMap::new()));
                    answer("200 OK", "", &format!("<R xmlns=\"x\"><UploadId>{id}</UploadId></R>"))
                }
                ("HEAD", Some((token, object))) => {
                    let (len, token) =
                        (object.len(), if token.is_empty() { String::new() } else { format!("{TOKEN}: {token}\r\n") });
                    Some(format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n{token}\r\n"))
                }
                _ => answer("404 Not Found", "", ""),
            };
        };
        let Some((token, parts)) = state.uploads.get_mut(*id) else { return no_such() };
        match method {
            "PUT" => {
                let sent = self.parts.fetch_add(1, Ordering::Relaxed) + 1;
                let sum = sha256(&call.content);
                assert_eq!(call.headers[CHECKSUM], sum);
                match self.vice {
                    Vice::Busy if sent.is_multiple_of(2) => {
                        return answer("503 Slow Down", "", "<Error><Code>SlowDown</Code></Error>");
                    }
                    Vice::Refuses => {
                        let text = "<Error><Code>AccessDenied</Code><Message>not you</Message></Error>";
                        return answer("403 Forbidden", "", text);
                    }
                    _ => {}
                }
                let confirmed = if self.vice == Vice::OtherChecksum { sha256(b"other") } else { sum };
                let etag = format!("\"{}\"", sent);
                parts.insert(query["partNumber"].parse().unwrap(), call.content.clone());
                answer("200 OK", &format!("etag: {etag}\r\n{CHECKSUM}: {confirmed}\r\n"), "")
            }
            "GET" => {
                let behind: u32 = query["part-number-marker"].parse().unwrap();
                let next = behind + 1;
                let page = |number: u32, more: &str| {
                    answer(
                        "200 OK",
                        "",
                        &format!(
                            "<R><IsTruncated>true</IsTruncated><NextPartNumberMarker>{next}</NextPartNumberMarker><Part>\
                             <PartNumber>{number}</PartNumber><Size>8388608</Size>{more}</Part></R>"
                        ),
                    )
                };
                match self.vice {
                    Vice::OtherEtags if parts.contains_key(&next) => return page(next, "<ETag>\"other\"</ETag>"),
                    Vice::EndlessList => return page(1, &" ".repeat(1 << 20)),
                    Vice::ImpossiblePart => return page(PART_NUMBER_MAX + 1, ""),
                    _ => {}
                }
                // A page for each part.
                let listed = parts.range(behind + 1..).take(1).map(|(number, part)| {
                    let (len, sum) = (part.len(), sha256(part));
                    format!(
                        "<NextPartNumberMarker>{number}</NextPartNumberMarker><IsTruncated>true</IsTruncated><Part><PartNumber>\
                         {number}</PartNumber><Size>{len}</Size><ChecksumSHA256>{sum}</ChecksumSHA256></Part>"
                    )
                });
                answer("200 OK", "", &format!("<R>{}</R>", listed.collect::<String>()))
            }
            "POST" => {
                if self.vice == Vice::ErrorBehind200 {
                    return answer(
                        "200 OK",
                        "",
                        "<Error><Code>EntityTooSmall</Code><Message>too small</Message></Error>",
                    );
                }
                if self.vice == Vice::MakesNothing {
                    return answer("200 OK", "", "<R></R>");
                }
                if state.object.is_some() && call.headers.get("if-none-match").is_some_and(|any| any == "*") {
                    return answer("412 Precondition Failed", "", "<Error><Code>PreconditionFailed</Code></Error>");
                }
                let whole = parts.values().flatten().copied().collect();
                state.object = Some((token.clone(), whole));
                state.uploads.remove(*id);
                if self.vice == Vice::AnswerLost { None } else { answer("200 OK", "", "<R></R>") }
            }
            "DELETE" => {
                state.uploads.remove(*id);
                answer("204 No Content", "", "")
            }
            _ => answer("405 Method Not Allowed", "", ""),
        }
    }
}

/// A store, and a folder for the record.
struct Bench {
    store: Arc<Store>,
    target: ObjectTarget,
    folder: tempfile::TempDir,
    content: Vec<u8>,
}

impl Bench {
    async fn new(vice: Vice) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
        let store = Arc::new(Store { vice, state: Mutex::default(), parts: AtomicUsize::new(0) });
        let serving = store.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().converse(stream));
            }
        });
        let settings = Settings { region: "here".to_owned(), endpoint, credentials: None };
        let location = Location::of_object(Object::parse("lab/case/x.raw", settings).unwrap()).unwrap();
        let target = ObjectTarget { location, client: client(1).unwrap(), patience: Duration::from_secs(60) };
        let content = (0..LEN as u32).map(|at| (at % 251) as u8).collect();
        Self { store, target, folder: tempfile::tempdir().unwrap(), content }
    }

    fn record(&self) -> Arc<UploadRecord> {
        Arc::new(UploadRecord::open(&self.folder.path().join("x.upload"), &self.target).unwrap())
    }

    async fn open(&self, record: &Arc<UploadRecord>) -> Result<Upload> {
        Upload::open(self.target.clone(), LEN as u64, false, record.clone()).await
    }

    /// Uploads the content, in pieces of a MiB.
    async fn upload(&self, record: &Arc<UploadRecord>) -> Result<()> {
        let upload = self.open(record).await?;
        for (number, piece) in self.content.chunks(1 << 20).enumerate() {
            let written = upload.write((number as u64) << 20, Bytes::copy_from_slice(piece).into(), false).await;
            written.map_err(Error::device("uploading"))?;
        }
        upload.store_rest(LEN as u64).await?;
        upload.complete().await
    }

    fn is_whole(&self) -> bool {
        self.store.state.lock().object.as_ref().is_some_and(|(_, object)| *object == self.content)
    }

    fn sent(&self) -> usize {
        self.store.parts.swap(0, Ordering::Relaxed)
    }
}

#[tokio::test]
async fn an_object_is_made_of_its_parts_also_if_the_store_is_busy_or_its_answer_is_lost() {
    for (vice, sent) in [(Vice::None, 3), (Vice::Busy, 5), (Vice::AnswerLost, 3)] {
        let bench = Bench::new(vice).await;
        bench.upload(&bench.record()).await.unwrap();
        assert!(bench.is_whole() && bench.sent() == sent, "{vice:?}");
    }
}

#[tokio::test]
async fn a_refusal_or_a_wrong_confirmation_is_an_error_that_names_the_object() {
    for vice in [Vice::OtherChecksum, Vice::Refuses, Vice::ErrorBehind200, Vice::MakesNothing] {
        let bench = Bench::new(vice).await;
        let error = bench.upload(&bench.record()).await.unwrap_err().to_string();
        assert!(error.contains("s3://lab/case/x.raw"), "{vice:?}: {error}");
        assert!(bench.store.state.lock().object.is_none());
    }
}

#[tokio::test]
async fn an_interrupted_upload_sends_only_the_parts_that_the_store_does_not_have() {
    let bench = Bench::new(Vice::None).await;
    let piece = |number: usize| Bytes::copy_from_slice(&bench.content[number << 20..(number + 1) << 20]).into();
    let record = bench.record();
    let upload = bench.open(&record).await.unwrap();
    for number in (0..8).rev().chain(9..16) {
        upload.write((number as u64) << 20, piece(number), false).await.unwrap();
    }
    drop((upload, record));
    assert_eq!(bench.sent(), 1, "the second part is not whole");
    bench.upload(&bench.record()).await.unwrap();
    assert!(bench.is_whole() && bench.sent() == 2);
    // The object is there, and only the record is left.
    bench.upload(&bench.record()).await.unwrap();
    assert_eq!(bench.sent(), 0);
}

#[tokio::test]
async fn a_part_that_differs_from_the_recorded_one_or_that_the_store_lost_is_sent_again() {
    let bench = Bench::new(Vice::None).await;
    let record = bench.record();
    let upload = bench.open(&record).await.unwrap();
    upload.write(0, Bytes::from(vec![1; 8 << 20]).into(), false).await.unwrap();
    upload.write(8 << 20, Bytes::copy_from_slice(&bench.content[8 << 20..16 << 20]).into(), false).await.unwrap();
    drop((upload, record));
    bench.store.state.lock().uploads.values_mut().for_each(|(_, parts)| drop(parts.remove(&2)));
    assert_eq!(bench.sent(), 2);
    bench.upload(&bench.record()).await.unwrap();
    assert!(bench.is_whole() && bench.sent() == 3);
}

#[tokio::test]
async fn a_part_that_the_store_lists_with_another_etag_is_sent_again() {
    let bench = Bench::new(Vice::OtherEtags).await;
    let record = bench.record();
    let upload = bench.open(&record).await.unwrap();
    upload.write(0, Bytes::copy_from_slice(&bench.content[..8 << 20]).into(), false).await.unwrap();
    drop((upload, record));
    assert_eq!(bench.sent(), 1);
    bench.upload(&bench.record()).await.unwrap();
    assert!(bench.is_whole() && bench.sent() == 3);
}

#[tokio::test]
async fn a_list_without_end_or_of_impossible_parts_is_an_error() {
    for vice in [Vice::EndlessList, Vice::ImpossiblePart] {
        let bench = Bench::new(vice).await;
        let record = bench.record();
        drop(bench.open(&record).await.unwrap());
        let error = bench.open(&record).await.err().unwrap().to_string();
        assert!(error.contains("s3://lab/case/x.raw"), "{error}");
    }
}

#[tokio::test]
async fn an_upload_whose_parts_had_another_size_is_aborted_and_begun_anew() {
    let bench = Bench::new(Vice::None).await;
    let record = bench.record();
    let larger = Upload::open(bench.target.clone(), 100_000 << 20, false, record.clone()).await.unwrap();
    drop((larger, record));
    assert_eq!(bench.store.state.lock().uploads.len(), 1);
    bench.upload(&bench.record()).await.unwrap();
    assert!(bench.is_whole() && bench.store.state.lock().uploads.is_empty());
}

#[tokio::test]
async fn a_completed_object_that_lost_bytes_is_not_taken_for_the_whole() {
    let bench = Bench::new(Vice::None).await;
    bench.upload(&bench.record()).await.unwrap();
    bench.store.state.lock().object.as_mut().unwrap().1.truncate(5);
    let error = bench.upload(&bench.record()).await.unwrap_err();
    assert!(error.is_evidence() && error.has_next(Acquisition::RemoveAndBeginAgain), "{error}");
}

#[tokio::test]
async fn an_upload_that_the_store_has_discarded_begins_anew() {
    let bench = Bench::new(Vice::None).await;
    let record = bench.record();
    drop(bench.open(&record).await.unwrap());
    drop(record);
    bench.store.state.lock().uploads.clear();
    bench.upload(&bench.record()).await.unwrap();
    assert!(bench.is_whole());
}

#[tokio::test]
async fn an_object_that_exists_or_appears_meanwhile_is_not_replaced() {
    let bench = Bench::new(Vice::None).await;
    let record = bench.record();
    let upload = bench.open(&record).await.unwrap();
    bench.store.state.lock().object = Some((String::new(), b"other".to_vec()));
    upload.write(0, bench.content.clone().into(), false).await.unwrap();
    upload.store_rest(LEN as u64).await.unwrap();
    for error in [upload.complete().await.unwrap_err(), Bench::new(Vice::None).await.taken().await] {
        assert!(error.is_misuse() && error.has_next(Files::Replace), "{error}");
    }
    assert!(!bench.is_whole());
    record.abort(&bench.target).await.unwrap();
    assert!(bench.store.state.lock().uploads.is_empty() && !bench.folder.path().join("x.upload").exists());
}

impl Bench {
    /// Returns the error for an object that exists before the upload.
    async fn taken(&self) -> Error {
        self.store.state.lock().object = Some((String::new(), Vec::new()));
        self.open(&self.record()).await.err().unwrap()
    }
}

#[tokio::test]
async fn a_slow_store_is_waited_for_and_a_silent_one_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/x", listener.local_addr().unwrap());
    let (client, location) = (client(1).unwrap(), Location::parse(&uri).unwrap());
    let content = Bytes::from(vec![0; 64 << 20]);
    let put = |patience| send(&client, &location, Request::put(&uri), content.clone(), patience);
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 1 << 20];
        // It takes longer for all of it than a silent server is waited for.
        for _ in 0..16 {
            stream.read_exact(&mut buffer).await.unwrap();
            sleep(SHORT / 10).await;
        }
        stream
    };
    let (answer, _stream) = tokio::join!(put(SHORT), serve);
    assert!(matches!(answer, Err(CallError::NoAnswer(_))));
}
