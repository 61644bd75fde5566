//! The schemas of the answers in docs/reference, and the page that lists them.

use std::collections::BTreeMap;

use cheetah_testing::reference::{compare, unlink};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

/// An answer in the reference.
pub struct Entry {
    /// The name of its schema.
    pub name: &'static str,
    /// The verb that prints it, with the options on which that depends.
    pub verb: &'static str,
    /// When.
    pub when: &'static str,
    /// Makes the schema.
    pub schema: fn(SchemaGenerator) -> Schema,
}

const MEND: &str = "UPDATE=1 cargo test -p cheetah reference";

const PAGE: &str = "# Answers for programs

With `--json`, a command prints JSON to stdout, one value on each line: events of long work, each with `event`, then the
answer. A command that fails prints [failed](json/failed.json) last, and its exit code says the same. Progress, warnings and
logs go to stderr.

Names say the unit: `_bytes`, `_s` (seconds), `_ms`, `_us`, `_ns`, `_bits_per_s`. Later versions may add fields, so ignore those
that you do not know.

`triage`, `run` and `bench` have no schema of their own, and a failure is [failed](json/failed.json) there, too:

* `triage` prints its progress, as objects with the field `progress` only, and at the end the content of
  [`summary.json`](../guide/triage.md#results). If not all could be read, or it was stopped, `failed` follows.
* `run` prints the event `part` for each part that ended: `number`, `begin`, `end`, `host`, `exit_code`, `seconds`, `problem`,
  `left_out`. At the end, `out` is the folder, `parts` the number of parts, and `failed` lists those that failed;
  with `--scheduler`, `placement` says how many `tasks` the cluster was given, and how many of these were [`placed`](../guide/cluster.md#where-the-work-is-done).
* `bench storage` prints its progress as `triage` does, and at the end the event `done`: `results`, `csv` and `report` are paths,
  and `parts` lists what was measured. `bench compare` prints the difference of two runs, and `bench report` the path of the `report`.

<!-- Generated from crates/desk/cheetah/src/answers. To write it again: UPDATE=1 cargo test -p cheetah reference -->

| command | printed | schema |
|---|---|---|
";

/// The page and the schemas, by their paths below docs/reference.
fn generated() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut page = PAGE.to_owned();
    for Entry { name, verb, when, schema } in super::all() {
        let verb = if verb == "each" { "each command".to_owned() } else { format!("`{verb}`") };
        page.push_str(&format!("| {verb} | {when} | [{name}](json/{name}.json) |\n"));
        let schema = schema(SchemaSettings::draft2020_12().for_serialize().into_generator());
        let mut schema = schema.to_value();
        unlink(&mut schema);
        let text = serde_json::to_string_pretty(&schema).unwrap();
        assert!(files.insert(format!("json/{name}.json"), text + "\n").is_none(), "two answers are named {name}");
    }
    files.insert("json.md".to_owned(), page);
    files
}

#[test]
fn the_reference_has_a_schema_of_each_answer() {
    compare(&generated(), Some("json"), MEND);
}

#[test]
fn each_field_of_an_answer_is_described() {
    let mut bare = Vec::new();
    for (name, text) in generated().iter().filter(|(name, _)| name.ends_with(".json")) {
        let schema: Value = serde_json::from_str(text).unwrap();
        note_bare(&schema, name, &mut bare);
    }
    assert!(bare.is_empty(), "no description: {bare:?}");
}

/// Notes the fields without a description. A tag needs none.
fn note_bare(schema: &Value, at: &str, bare: &mut Vec<String>) {
    if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
        let is_bare = |field: &Value| field.get("description").is_none() && field.get("const").is_none();
        bare.extend(fields.iter().filter(|(_, field)| is_bare(field)).map(|(name, _)| format!("{at}/{name}")));
    }
    match schema {
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| note_bare(member, &format!("{at}/{name}"), bare))
        }
        Value::Array(items) => items.iter().for_each(|item| note_bare(item, at, bare)),
        _ => {}
    }
}
