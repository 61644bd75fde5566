//! The sentences, and the table of the next steps in the guide.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use cheetah_error::next::{Acquisition, Drive, Node};
use cheetah_error::{Error, Next};
use cheetah_testing::reference::compare;
use serde_json::Value;

use crate::samples::all;
use crate::{clause, sentence};

const MEND: &str = "UPDATE=1 cargo test -p cheetah-words reference";
/// The page with the table, below docs/reference.
const PAGE: &str = "../guide/when-things-go-wrong.md";
const BEGIN: &str =
    "<!-- Generated from crates/desk/words. To write it again: UPDATE=1 cargo test -p cheetah-words reference -->\n";
const END: &str = "<!-- The end of what is generated -->\n";

#[test]
fn an_error_is_followed_by_its_next_step() {
    let error = Error::failed("the journal a.acquire is damaged").next(Acquisition::BeginAgain);
    assert_eq!(sentence(&error), "the journal a.acquire is damaged; begin again with --restart");
    assert_eq!(sentence(&Error::failed("out of order")), "out of order");
}

#[test]
fn next_steps_follow_each_other_in_their_order() {
    let error = Error::failed("no node answers at lab-1").next(Node::CheckNode).next(Drive::BringBackOrRepair);
    let expected = "no node answers at lab-1; is `cheetah node` running there, and listening on that address?; bring it \
                    back, or see `cheetah repair`";
    assert_eq!(sentence(&error), expected);
}

#[test]
fn each_step_has_an_example_and_a_name_of_its_own() {
    let named: Vec<_> = all().iter().map(name).collect();
    let distinct: BTreeSet<_> = named.iter().cloned().collect();
    assert_eq!(named.len(), distinct.len(), "{named:?}");
    assert_eq!(distinct, meanings().into_keys().collect());
}

#[test]
fn each_step_can_be_sent() {
    for next in all() {
        let sent = serde_json::to_string(&next).unwrap();
        assert_eq!(serde_json::from_str::<Next>(&sent).unwrap(), next, "{sent}");
    }
}

#[test]
fn the_guide_has_the_table_of_the_reference_of_next_steps() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference").join(PAGE);
    let page = fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has the beginning of the table");
    let (_, after) = rest.split_once(END).expect("the page has the end of the table");
    let text = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
    compare(&BTreeMap::from([(PAGE.to_owned(), text)]), None, MEND);
}

fn table() -> String {
    let mut table = "| what is wrong | the error goes on with | `step` |\n|---|---|---|\n".to_owned();
    let meanings = meanings();
    for next in all() {
        let name = name(&next);
        let clause = clause(&next).replace('|', "\\|");
        table.push_str(&format!("| {} | {clause} | `{name}` |\n", meanings[&name]));
    }
    table
}

fn name(next: &Next) -> String {
    serde_json::to_value(next).unwrap()["step"].as_str().unwrap().to_owned()
}

/// What each step is about, by its name: the descriptions in its schema.
fn meanings() -> BTreeMap<String, String> {
    let schema = schemars::schema_for!(Next).to_value();
    let mut meanings = BTreeMap::new();
    note(&schema, &mut meanings);
    meanings
}

fn note(schema: &Value, meanings: &mut BTreeMap<String, String>) {
    if let Some(name) = schema.pointer("/properties/step/const").and_then(Value::as_str) {
        meanings.insert(name.to_owned(), schema["description"].as_str().unwrap().replace('\n', " "));
    }
    match schema {
        Value::Object(members) => members.values().for_each(|member| note(member, meanings)),
        Value::Array(items) => items.iter().for_each(|item| note(item, meanings)),
        _ => {}
    }
}
