//! The description of the control API in docs/reference: generated from the paths and the types, and compared with the
//! committed one and with a node.

use cheetah_control::api::{
    Draining, ErrorBody, ExportStatus, Join, Joined, LeaseGrant, LeaseRenewal, LeaseRequest, NewExport, NewMap,
    NewNote, Notes, Status, StoredMap,
};
use cheetah_control::jobs::{JobLine, JobStarted, NewJob};
use cheetah_control::receipt::Receipt;
use cheetah_control::routes;
use cheetah_probe::far::routes as far;
use cheetah_probe::far::{Arrivals, BulkReceived, FarInfo, ReceiveRequest, Receiving, SendReply, SendRequest};
use cheetah_testing::reference::{compare, unlink};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::node::{raw, start};

const MEND: &str = "UPDATE=1 cargo test -p cheetah-node openapi";

const ABOUT: &str = "The control API of a node: HTTP and JSON, and HTTPS with a certificate of both sides in a room. \
An agent has the requests below /v1/probe and /v1/room, at the port after its NBD port. /v1/join is at an examiner's \
machine that waits for nodes. GET is for examiners and analysts, except of jobs; everything else is for examiners.";

/// What a body consists of.
#[derive(Clone, Copy)]
enum Content {
    Nothing,
    Json(Type),
    /// Values of JSON, one in each line.
    Lines(Type),
    Other(&'static str),
}

/// A type of JSON.
#[derive(Clone, Copy)]
struct Type {
    name: &'static str,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

fn of<T: JsonSchema>() -> Content {
    Content::Json(type_of::<T>())
}

fn type_of<T: JsonSchema>() -> Type {
    let name = std::any::type_name::<T>().rsplit("::").next().unwrap();
    Type { name, schema: SchemaGenerator::subschema_for::<T> }
}

/// A request.
struct Operation {
    method: &'static str,
    path: &'static str,
    does: &'static str,
    query: &'static [(&'static str, &'static str)],
    body: Content,
    answer: (u16, Content),
    refusals: &'static [(u16, &'static str)],
}

impl Operation {
    const fn new(method: &'static str, path: &'static str, does: &'static str) -> Self {
        let (body, answer) = (Content::Nothing, (204, Content::Nothing));
        Self { method, path, does, query: &[], body, answer, refusals: &[] }
    }

    fn asks(self, query: &'static [(&'static str, &'static str)]) -> Self {
        Self { query, ..self }
    }

    fn takes(self, body: Content) -> Self {
        Self { body, ..self }
    }

    fn gives(self, status: u16, content: Content) -> Self {
        Self { answer: (status, content), ..self }
    }

    fn refuses(self, refusals: &'static [(u16, &'static str)]) -> Self {
        Self { refusals, ..self }
    }
}

const CONFIRM: (&str, &str) = ("confirm_s", "Seconds, at most 300, until the export is deleted unless it is confirmed");
const NO_EXPORT: (u16, &str) = (404, "There is no such export");
const NO_JOB: (u16, &str) = (404, "There is no such job, or it has ended");
const BUSY: (u16, &str) = (429, "Not now: too many at once");

fn operations() -> Vec<Operation> {
    let bytes = Content::Other("application/octet-stream");
    vec![
        Operation::new("get", routes::STATUS, "Returns the node's status.").gives(200, of::<Status>()),
        Operation::new("post", routes::EXPORTS, "Creates an export.")
            .asks(&[CONFIRM])
            .takes(of::<NewExport>())
            .gives(201, of::<ExportStatus>())
            .refuses(&[(409, "The name is taken"), (503, "The node is draining or ends"), (507, "There is no room")]),
        Operation::new("delete", routes::EXPORT, "Deletes an export and wipes its memory.")
            .asks(&[
                ("lease", "The token of its write lease, if it is leased"),
                ("drive", "The drive's id, for the receipt"),
                ("nonce", "Random letters and digits, for the receipt"),
            ])
            .gives(200, of::<Receipt>())
            .refuses(&[NO_EXPORT, (409, "It is leased to another")]),
        Operation::new("put", routes::CONFIRMED, "Confirms that the creator of an export has recorded it: it stays.")
            .asks(&[CONFIRM])
            .refuses(&[NO_EXPORT]),
        Operation::new("post", routes::LEASE, "Acquires the write lease of an export.")
            .takes(of::<LeaseRequest>())
            .gives(200, of::<LeaseGrant>())
            .refuses(&[NO_EXPORT, (409, "Another holds it")]),
        Operation::new("put", routes::LEASE, "Renews the lease.")
            .takes(of::<LeaseRenewal>())
            .gives(200, of::<LeaseGrant>())
            .refuses(&[NO_EXPORT, (409, "It was lost to another, or has expired")]),
        Operation::new("delete", routes::LEASE, "Releases the lease.")
            .asks(&[("token", "The lease's token")])
            .refuses(&[NO_EXPORT]),
        Operation::new("get", routes::MAP, "Returns the map stored with an export.")
            .gives(200, of::<StoredMap>())
            .refuses(&[(404, "There is no such export, or it holds no map")]),
        Operation::new("put", routes::MAP, "Stores a map with an export whose lease is held.")
            .takes(of::<NewMap>())
            .refuses(&[
                NO_EXPORT,
                (409, "No lease, or not a later epoch"),
                (413, "Too long"),
                (507, "There is no room"),
            ]),
        Operation::new("get", routes::NOTES, "Returns the notes of an export.")
            .gives(200, of::<Notes>())
            .refuses(&[NO_EXPORT]),
        Operation::new("put", routes::NOTES, "Stores a note with an export.").takes(of::<NewNote>()).refuses(&[
            NO_EXPORT,
            (413, "Too long"),
            (507, "Too many notes"),
        ]),
        Operation::new(
            "put",
            routes::DRAINING,
            "Marks the node as about to leave: it takes no new exports, and writers move their parts elsewhere.",
        )
        .takes(of::<Draining>()),
        Operation::new("delete", routes::DRAINING, "Takes the mark back."),
        Operation::new("post", routes::JOBS, "Starts a job on an export, if the node lends its processor.")
            .takes(of::<NewJob>())
            .gives(201, of::<JobStarted>())
            .refuses(&[
                (400, "It is beyond the limits, or its key is none for this run of the node"),
                (403, "The node is lent no keys, or the key came in clear"),
                NO_EXPORT,
                (409, "This is another run of the node"),
                (413, "Too long"),
                BUSY,
                (501, "The node does not lend its processor"),
                (507, "Keys were lent for too many tasks on this export"),
            ]),
        Operation::new(
            "get",
            routes::JOB_LINES,
            "Returns lines of a job's results, and forgets those before. A job whose lines nobody asks for within a minute is ended.",
        )
        .asks(&[
            ("from", "The number of the first line, from 0"),
            ("wait_s", "Seconds, at most 30, to wait for many lines or the last one"),
        ])
        .gives(200, Content::Lines(type_of::<JobLine>()))
        .refuses(&[NO_JOB, (410, "The line is forgotten, or not there yet")]),
        Operation::new("delete", routes::JOB, "Ends a job, and wipes its results.").refuses(&[NO_JOB]),
        Operation::new(
            "put",
            routes::REVOKED,
            "Replaces the list of revoked certificates of the room, in DER. Any member may send it.",
        )
        .takes(bytes)
        .refuses(&[(400, "The room has not signed it"), (409, "It is older than the one in use")]),
        Operation::new("get", routes::METRICS, "Returns metrics.")
            .gives(200, Content::Other("text/plain; version=0.0.4")),
        Operation::new("post", routes::JOIN, "Offers a node's memory to an examiner.")
            .takes(of::<Join>())
            .gives(200, of::<Joined>())
            .refuses(&[
                (403, "The caller is no node"),
                (409, "Another node answers at its address"),
                (502, "It cannot be reached back"),
                (503, "The drive waits for no more nodes"),
            ]),
        Operation::new("get", far::ABOUT, "Returns the name and the limits of a far end of measurements.")
            .gives(200, of::<FarInfo>()),
        Operation::new("post", far::RECEIVE, "Opens a UDP port that waits for a train of packets.")
            .takes(of::<ReceiveRequest>())
            .gives(201, of::<Receiving>())
            .refuses(&[BUSY]),
        Operation::new("get", far::RECEIVED, "Returns the packets that have arrived.")
            .gives(200, of::<Arrivals>())
            .refuses(&[(404, "The caller has no such train")]),
        Operation::new("delete", far::RECEIVED, "Closes the port."),
        Operation::new("post", far::SEND, "Sends a train of packets to the caller, and answers when it has left.")
            .takes(of::<SendRequest>())
            .gives(200, of::<SendReply>())
            .refuses(&[(409, "It could not be sent"), BUSY]),
        Operation::new(
            "get",
            far::BULK,
            "Returns random bytes, cut off after a while. The request has the type JSON, and no body.",
        )
        .asks(&[("bytes", "How many")])
        .gives(200, bytes)
        .refuses(&[BUSY]),
        Operation::new("put", far::BULK, "Receives bytes, and measures their rate.")
            .takes(bytes)
            .gives(200, of::<BulkReceived>())
            .refuses(&[BUSY]),
    ]
}

/// The names in braces of a path.
fn values(path: &str) -> impl Iterator<Item = &str> {
    path.split(['{', '}']).skip(1).step_by(2)
}

fn parameter(name: &str, place: &str, about: Option<&str>) -> Value {
    let mut parameter =
        json!({ "name": name, "in": place, "required": place == "path", "schema": { "type": "string" } });
    if let Some(about) = about {
        parameter["description"] = about.into();
    }
    parameter
}

fn content(content: Content, generator: &mut SchemaGenerator) -> Option<Value> {
    match content {
        Content::Nothing => None,
        Content::Json(of) => Some(json!({ "application/json": { "schema": (of.schema)(generator) } })),
        Content::Lines(of) => Some(json!({ "application/x-ndjson": { "schema": (of.schema)(generator) } })),
        Content::Other(kind) => Some(json!({ kind: {} })),
    }
}

fn described(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let path = values(operation.path).map(|name| parameter(name, "path", None));
    let query = operation.query.iter().map(|(name, about)| parameter(name, "query", Some(about)));
    let (status, answer) = operation.answer;
    let mut responses = Map::new();
    let mut good = json!({ "description": if status == 204 { "Done" } else { "The answer" } });
    if let Some(content) = content(answer, generator) {
        good["content"] = content;
    }
    responses.insert(status.to_string(), good);
    let error = content(of::<ErrorBody>(), generator);
    for (status, why) in operation.refusals {
        responses.insert(status.to_string(), json!({ "description": why, "content": error }));
    }
    responses.insert("default".to_owned(), json!({ "description": "Refused or failed", "content": error }));
    let mut described = json!({ "summary": operation.does, "responses": responses });
    let parameters: Vec<_> = path.chain(query).collect();
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(content) = content(operation.body, generator) {
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    described
}

fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for operation in operations() {
        let described = described(&operation, &mut generator);
        let of_path = paths.entry(operation.path).or_insert_with(|| Value::Object(Map::new()));
        assert!(of_path.get(operation.method).is_none(), "{} {} twice", operation.method, operation.path);
        of_path[operation.method] = described;
    }
    let mut schemas = Value::Object(generator.take_definitions(true));
    unlink(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Cheetah control API", "version": "1", "description": ABOUT, "license": { "name": "Apache-2.0" } },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

/// The same for people.
fn page() -> String {
    let mut page = format!(
        "# Control API\n\n{ABOUT}\n\nAn error has a fitting status, and a body with `error`, one sentence. Bodies are at most 64 KiB, \
         those with a map or a job a little more than 1 MiB. JSON must be declared as such (`content-type: application/json`). The types \
         are in [control-api.json](control-api.json), for OpenAPI.\n\n<!-- Generated from \
         crates/drive/node/tests/it/openapi.rs. To write it again: {MEND} -->\n\n| request | does | body | answer |\n|---|---|---|---|\n"
    );
    for operation in operations() {
        let query: Vec<_> = operation.query.iter().map(|(name, _)| format!("{name}=…")).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let shown = |content: Content| match content {
            Content::Nothing => String::new(),
            Content::Json(of) => format!("`{}`", of.name),
            Content::Lines(of) => format!("lines of `{}`", of.name),
            Content::Other(kind) => kind.to_owned(),
        };
        let (status, answer) = operation.answer;
        let mut answers = vec![format!("{status} {}", shown(answer)).trim_end().to_owned()];
        answers.extend(operation.refusals.iter().map(|(status, why)| format!("{status} {}", lower(why))));
        page.push_str(&format!(
            "| `{} {}{query}` | {} | {} | {} |\n",
            operation.method.to_uppercase(),
            operation.path,
            operation.does,
            shown(operation.body),
            answers.join("; ")
        ));
    }
    page
}

/// With a lower-case letter at the start.
fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

#[test]
fn the_reference_describes_the_control_api() {
    let json = serde_json::to_string_pretty(&openapi()).unwrap() + "\n";
    let files = [("control-api.json", json), ("control-api.md", page())];
    compare(&files.map(|(name, text)| (name.to_owned(), text)).into(), None, MEND);
}

#[test]
fn every_path_is_described() {
    let sources = [
        include_str!("../../../../wire/control/src/routes.rs"),
        include_str!("../../../../wire/probe/src/far/routes.rs"),
    ];
    let lines = sources.iter().flat_map(|source| source.lines()).filter(|line| line.starts_with("pub const "));
    let paths: Vec<_> = lines.filter_map(|line| line.split('"').nth(1)).collect();
    assert!(paths.len() >= 16, "{paths:?}");
    let operations = operations();
    for path in paths {
        assert!(operations.iter().any(|operation| operation.path == path), "{path} is not described");
    }
}

#[tokio::test]
async fn a_node_knows_every_request_that_is_described() {
    let (node, _) = start();
    // The first needs a room, and the other one is at an examiner's machine.
    let elsewhere = [routes::REVOKED, routes::JOIN];
    for operation in operations().iter().filter(|operation| !elsewhere.contains(&operation.path)) {
        let (method, path) = (operation.method.to_uppercase(), operation.path.replace(['{', '}'], ""));
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        let answer = raw(&node, request.as_bytes()).await;
        let is_known = !answer.contains("there is nothing here") && !answer.contains(" 405 ");
        assert!(answer.starts_with("HTTP/1.1 ") && is_known, "{method} {path}: {answer}");
    }
}
