//! Jobs of a node over its control API.

use std::io::ErrorKind;
use std::num::NonZeroUsize;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::api::NewExport;
use cheetah_control::jobs::{
    Digest, JOB_BODY_BYTES_MAX, JobLine, NewJob, OrderAtoms, ScanStatus, SearchOrder, Stretch, UnitPlace, Units, Work,
};
use cheetah_control::receipt::Asked;
use cheetah_control::{ControlClient, ControlError};
use cheetah_nbd::server::Exports as _;
use cheetah_node::{Node, NodeConfig, Scan};
use cheetah_search::CONTEXT_BYTES_MAX;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::node::{loopback, raw, refusal, start};

const UNIT: u64 = 64 << 10;
const UNITS: u64 = 32;

/// A node with this number of threads for jobs, and an export with bytes that are all 7.
async fn lending(threads: usize) -> (Node, ControlClient) {
    let config =
        NodeConfig { scan: NonZeroUsize::new(threads).map(Scan::with), ..NodeConfig::new(8 << 20, loopback(0)) };
    let node = Node::start(config).unwrap();
    let client = ControlClient::new(node.http_address(), None);
    client.create_export(&NewExport::reserved("e", UNITS * UNIT)).await.unwrap();
    let export = node.exports().open("e", &[]).unwrap();
    export.device.write(0, vec![7; (UNITS * UNIT) as usize].into(), false).await.unwrap();
    (node, client)
}

fn job(node: &Node) -> NewJob {
    let units = vec![UnitPlace { export: 0, text: 0 }];
    let stretches = vec![Stretch { rounds: UNITS, units, export_step: UNIT, text_step: UNIT }];
    let units = Units { unit_bytes: UNIT, stretches };
    let work = Work::Digest(Digest::default());
    NewJob { instance: node.status().instance, export: "e".into(), units, work, key: None }
}

#[tokio::test]
async fn a_node_lends_its_processor_only_if_told() {
    let (node, client) = start();
    assert_eq!(client.status().await.unwrap().scan, None);
    assert_eq!(refusal(client.start_job(&job(&node)).await.unwrap_err()).0, 501);
    let (node, client) = lending(2).await;
    let id = client.start_job(&job(&node)).await.unwrap().id;
    assert_eq!(client.status().await.unwrap().scan, Some(ScanStatus { threads: 2, jobs: 1, recipient: None }));
    client.cancel_job(&id).await.unwrap();
}

#[tokio::test]
async fn a_node_that_is_told_to_lend_more_threads_than_it_may_lends_as_many_as_it_may() {
    let (_node, client) = lending(100_000).await;
    assert_eq!(client.status().await.unwrap().scan, Some(ScanStatus { threads: 64, jobs: 0, recipient: None }));
}

#[tokio::test]
async fn lines_are_read_again_from_any_number_until_later_ones_are_asked_for() {
    let (node, client) = lending(1).await;
    node.exports().export("e").unwrap().corrupt(UNIT * 5);
    let id = client.start_job(&job(&node)).await.unwrap().id;
    let lines = client.job_lines(&id, 0, 30).await.unwrap();
    let of = |line: &JobLine| match line {
        JobLine::Values { from, .. } => (*from, "values"),
        JobLine::Unreadable { unit, .. } => (*unit, "unreadable"),
        JobLine::End { units } => (*units, "end"),
        JobLine::Failed { .. } => (0, "failed"),
        JobLine::Searched { unit, .. } | JobLine::TooManyHits { unit } | JobLine::Unopened { unit } => {
            (*unit, "searched")
        }
    };
    let expected = [(0, "values"), (5, "unreadable"), (6, "values"), (UNITS, "end")];
    assert_eq!(lines.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(client.job_lines(&id, 0, 0).await.unwrap(), lines, "the first answer may have been lost");
    assert_eq!(client.job_lines(&id, 2, 0).await.unwrap(), lines[2..]);
    assert_eq!(refusal(client.job_lines(&id, 1, 0).await.unwrap_err()).0, 410);
    assert_eq!(refusal(client.job_lines(&id, 5, 0).await.unwrap_err()).0, 410);
    assert_eq!(client.job_lines(&id, 4, 0).await.unwrap(), []);
    assert!(client.job_lines(&id, 4, 0).await.unwrap_err().is_not_found(), "it is forgotten");
    assert_eq!(client.status().await.unwrap().exports[0].read_bytes, 0, "a job is no read of a client");
}

#[tokio::test]
async fn a_job_on_an_export_that_is_deleted_fails_and_holds_no_memory_of_it() {
    let (node, client) = lending(1).await;
    let id = client.start_job(&job(&node)).await.unwrap().id;
    client.delete_export("e", None, &Asked::default()).await.unwrap();
    let last = client.job_lines(&id, 0, 30).await.unwrap().pop().unwrap();
    assert!(matches!(last, JobLine::Failed { .. } | JobLine::End { .. }), "{last:?}");
    assert_eq!(client.status().await.unwrap().memory.used_bytes, 0);
    assert!(client.start_job(&job(&node)).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn hostile_requests_about_jobs_are_refused() {
    let (node, client) = lending(1).await;
    let other = NewJob { instance: "0".repeat(32), ..job(&node) };
    assert!(client.start_job(&other).await.unwrap_err().is_conflict());
    let stretch = job(&node).units.stretches[0].clone();
    let endless = Stretch { rounds: u64::MAX, ..stretch.clone() };
    for (stretches, status) in [(vec![endless], 400), (vec![stretch; 20_000], 400)] {
        let units = Units { unit_bytes: UNIT, stretches };
        assert_eq!(refusal(client.start_job(&NewJob { units, ..job(&node) }).await.unwrap_err()).0, status);
    }
    for id in ["0", "%2e%2e", &"x".repeat(1000)] {
        assert!(matches!(client.job_lines(id, 0, 0).await, Err(ControlError::Refused { status: 404, .. })), "{id}");
    }
    let id = client.start_job(&job(&node)).await.unwrap().id;
    for query in ["from=-1", "from=x", "wait_s=99999999999999999999"] {
        let request =
            format!("GET /v1/jobs/{id}/lines?{query} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
        assert!(raw(&node, request.as_bytes()).await.starts_with("HTTP/1.1 400"), "{query}");
    }
    let longest = format!(
        "GET /v1/jobs/{id}/lines?from=0&wait_s={} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
        u64::MAX
    );
    assert!(raw(&node, longest.as_bytes()).await.starts_with("HTTP/1.1 200"), "it waits no longer than others");
    // Jobs whose results nobody takes.
    let mut taken = 1;
    let refused = loop {
        match client.start_job(&job(&node)).await {
            Ok(_) => taken += 1,
            Err(error) => break refusal(error).0,
        }
    };
    assert_eq!((taken, refused), (32, 429));
}

#[tokio::test]
async fn hostile_orders_of_searches_are_refused() {
    let (node, client) = lending(1).await;
    let version = node.status().version;
    let order = || SearchOrder { version: version.clone(), encodings: vec!["utf-8".into()], ..SearchOrder::default() };
    let words = |word: &str, count| SearchOrder { words: vec![word.to_owned(); count], ..order() };
    let atoms = |atom: &str, count| SearchOrder {
        atoms: OrderAtoms { words: vec![atom.to_owned(); count], ignore_case: false },
        ..order()
    };
    let expressions = |text: &str, count| SearchOrder { expressions: vec![text.to_owned(); count], ..order() };
    for (order, status) in [
        (words(&"x".repeat(JOB_BODY_BYTES_MAX), 1), 413),
        (words("x", 100_001), 400),
        (words(&"x".repeat(8193), 1), 400),
        (atoms("x", 100_001), 400),
        (atoms(&"x".repeat(8193), 1), 400),
        (SearchOrder { words: vec!["x".to_owned(); 100_000], ..atoms("x", 1) }, 400),
        (expressions("x", 65), 400),
        (SearchOrder { encodings: vec!["utf-8".into(); 1001], ..words("x", 1) }, 400),
        (SearchOrder { finders: vec![String::new(); 1001], ..words("x", 1) }, 400),
        (expressions(&"x".repeat((16 << 10) + 1), 1), 400),
        (SearchOrder { version: "0.0.0".into(), ..words("x", 1) }, 400),
    ] {
        let job = NewJob { work: Work::Search(order), ..job(&node) };
        assert_eq!(refusal(client.start_job(&job).await.unwrap_err()).0, status);
    }
    // What is found out later ends the job, and the node goes on.
    // Each ends with all shorter ones, so that an automaton would take too much memory.
    let alike = SearchOrder { words: (1..=2200).map(|len| "a".repeat(len)).collect(), ..order() };
    let blocks = |text: &str| SearchOrder { blocks: text.to_owned(), ..order() };
    let keys: Vec<u8> = (0..50_000u64).flat_map(|key| [key, !key, key].map(u64::to_le_bytes)).flatten().collect();
    let blocks = [blocks("?"), blocks(&STANDARD.encode(&keys[..23])), blocks(&STANDARD.encode(&keys))];
    for order in [expressions("a+", 1), words("", 1), order(), alike].into_iter().chain(blocks) {
        let job = NewJob { work: Work::Search(order), ..job(&node) };
        let id = client.start_job(&job).await.unwrap().id;
        // The machine may have something else to do for long.
        let lines = loop {
            let lines = client.job_lines(&id, 0, 30).await.unwrap();
            if !lines.is_empty() {
                break lines;
            }
        };
        assert!(matches!(lines[..], [JobLine::Failed { .. }]), "{lines:?}");
        client.cancel_job(&id).await.unwrap();
    }
    let most = SearchOrder { words: (0..100_000).map(|number| format!("{number:012}")).collect(), ..order() };
    let id = client.start_job(&NewJob { work: Work::Search(most), ..job(&node) }).await.unwrap().id;
    client.cancel_job(&id).await.unwrap();
    let job = NewJob { work: Work::Search(words("x", 1)), ..job(&node) };
    let id = client.start_job(&job).await.unwrap().id;
    let lines = client.job_lines(&id, 0, 30).await.unwrap();
    assert_eq!((lines.len() as u64, lines.last()), (UNITS + 1, Some(&JobLine::End { units: UNITS })));
}

/// All lines of a job.
async fn all_lines(client: &ControlClient, id: &str) -> Vec<JobLine> {
    let mut lines: Vec<JobLine> = Vec::new();
    while !lines.last().is_some_and(JobLine::is_last) {
        lines.extend(client.job_lines(id, lines.len() as u64, 30).await.unwrap());
    }
    lines
}

#[tokio::test]
async fn a_client_that_asks_for_endless_context_gets_no_more_than_a_node_returns() {
    let (node, client) = lending(1).await;
    let (place, word) = (3 * UNIT + UNIT / 2, "needle");
    let export = node.exports().open("e", &[]).unwrap();
    export.device.write(place, word.as_bytes().to_vec().into(), false).await.unwrap();
    let order = SearchOrder {
        version: node.status().version,
        words: vec![word.into()],
        encodings: vec!["utf-8".into()],
        context_bytes: usize::MAX,
        ..SearchOrder::default()
    };
    let id = client.start_job(&NewJob { work: Work::Search(order), ..job(&node) }).await.unwrap().id;
    let lines = all_lines(&client, &id).await;
    assert_eq!(lines.last(), Some(&JobLine::End { units: UNITS }));
    let hits = lines.iter().flat_map(|line| if let JobLine::Searched { hits, .. } = line { &hits[..] } else { &[] });
    let [hit] = hits.collect::<Vec<_>>()[..] else { panic!("{lines:?}") };
    let around = STANDARD.decode(&hit.base64).unwrap();
    assert_eq!((hit.at, hit.before, around.len()), (place, CONTEXT_BYTES_MAX, 2 * CONTEXT_BYTES_MAX + word.len()));
}

/// A request with a job, whose body is not sent yet.
struct Posted {
    stream: TcpStream,
    body: Vec<u8>,
}

impl Posted {
    async fn new(node: &Node) -> Self {
        let body = serde_json::to_vec(&job(node)).unwrap();
        let mut stream = TcpStream::connect(node.http_address()).await.unwrap();
        let head = format!(
            "POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\n\
             expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        Self { stream, body }
    }

    /// Waits until the node begins to read the body: then it asks for it.
    async fn is_asked_for(&mut self) {
        let mut said = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        self.stream.read_exact(&mut said).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&said), "HTTP/1.1 100 Continue\r\n\r\n");
    }

    /// Whether the node has said something that was not read yet.
    fn has_news(&self) -> bool {
        !matches!(self.stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends the body, and returns the answer.
    async fn answer(mut self) -> String {
        // The node may have given up waiting for it.
        let _ = self.stream.write_all(&self.body).await;
        let mut answer = Vec::new();
        let _ = self.stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Has a third request wait behind two whose bodies do not come. Returns whether none of them took longer than a body may.
async fn a_third_body_waits(node: &Node, client: &ControlClient) -> bool {
    let mut stalled = [Posted::new(node).await, Posted::new(node).await];
    for request in &mut stalled {
        request.is_asked_for().await;
    }
    let mut third = Posted::new(node).await;
    let others_are_answered = async || {
        for _ in 0..20 {
            client.status().await.unwrap();
        }
    };
    others_are_answered().await;
    if third.has_news() {
        others_are_answered().await;
        assert!(stalled.iter().any(Posted::has_news), "three bodies are read at once");
        return false;
    }
    let [first, second] = stalled;
    let first = first.answer().await;
    third.is_asked_for().await;
    let answers = [first, third.answer().await, second.answer().await];
    let is_late = |answer: &String| answer.is_empty() || answer.starts_with("HTTP/1.1 408");
    let is_taken = |answer: &String| answer.starts_with("HTTP/1.1 201");
    assert!(answers.iter().all(|answer| is_taken(answer) || is_late(answer)), "{answers:?}");
    answers.iter().all(is_taken)
}

#[tokio::test]
async fn the_bodies_of_two_jobs_are_read_at_once_and_a_third_waits_while_other_requests_are_answered() {
    let (node, client) = lending(1).await;
    // A body has ten seconds, which a machine may stand still for.
    for _ in 0..10 {
        if a_third_body_waits(&node, &client).await {
            return;
        }
    }
    panic!("bodies take too long each time");
}
