//! Jobs of a node over its control API.

use std::num::NonZeroUsize;

use cheetah_control::api::NewExport;
use cheetah_control::jobs::{
    Digest, JOB_BODY_BYTES_MAX, JobLine, NewJob, OrderAtoms, ScanStatus, SearchOrder, Stretch, UnitPlace, Units, Work,
};
use cheetah_control::receipt::Asked;
use cheetah_control::{ControlClient, ControlError};
use cheetah_nbd::server::Exports as _;
use cheetah_node::{Node, NodeConfig, Scan};

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
    for order in [expressions("a+", 1), words("", 1), order(), alike] {
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
