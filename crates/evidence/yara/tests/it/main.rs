//! Atoms of rules: of each kind of string and condition, and of conditions at random, compared with a naive evaluation.

// Tests may panic.
#![allow(clippy::unwrap_used)]

mod conditions;
mod files;
mod property;
mod strings;

use cheetah_yara::{Split, Why, split};

/// A rule with strings `$a` "first word", `$b` "second word" and `$c` "third word".
fn rule(condition: &str) -> String {
    let strings = r#"$a = "first word" $b = "second word" $c = "third word""#;
    format!("rule tried {{ strings: {strings} condition: {condition} }}")
}

/// The atoms of a file with one rule, as text; or why it has none.
fn atoms(source: &str) -> Result<Vec<String>, Why> {
    let Split { atoms, central } = split(&[source]);
    match central.first() {
        Some(central) => Err(central.why),
        None => Ok(atoms.iter().map(|atom| atom.bytes.escape_ascii().to_string()).collect()),
    }
}
