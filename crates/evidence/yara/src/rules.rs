//! The atoms of rules, and the rules without.

use std::collections::{BTreeMap, BTreeSet};

use yara_x_parser::ast::{AST, Item, Pattern, Rule, RuleFlags};

use crate::atom::Atom;
use crate::condition::Condition;
use crate::need::{Atoms, Need, literal};
use crate::{expression, hex, text};

/// The maximum number of atoms of all rules: those of rules beyond it are left out.
pub const ATOMS_MAX: usize = 20_000;
/// The maximum size of a file with rules, in bytes: positions in it are numbers of 32 bits.
pub const FILE_BYTES_MAX: usize = 1 << 30;

/// Rules, divided into what can be searched anywhere, and what cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// The atoms: in every file that a rule matches, and that is not among the central ones, at least one occurs.
    pub atoms: BTreeSet<Atom>,
    /// The rules without atoms, in the order of files and rules.
    pub central: Vec<Central>,
}

/// A rule that must be tried on every file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Central {
    /// The number of its file, from 0.
    pub file: usize,
    /// Its name; `None` stands for all rules of the file.
    pub rule: Option<String>,
    /// Why it has no atoms.
    pub why: Why,
}

/// Why a rule has no atoms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its condition may hold where none of its strings is found.
    Condition,
    /// Its strings have too few bytes that are fixed.
    Strings,
    /// There are too many atoms.
    TooMany,
    /// The file is not understood, or includes others.
    NotParsed,
}

/// Divides the rules in files, whose texts these are. Private rules are no results, and only count where others refer to them.
pub fn split(files: &[&str]) -> Split {
    let mut found = Split::default();
    for (file, source) in files.iter().enumerate() {
        split_file(file, source, &mut found);
    }
    found
}

fn split_file(file: usize, source: &str, found: &mut Split) {
    let whole_file = Central { file, rule: None, why: Why::NotParsed };
    if source.len() > FILE_BYTES_MAX {
        found.central.push(whole_file);
        return;
    }
    let parsed = AST::from(source);
    if !parsed.errors().is_empty() || parsed.items().any(|item| matches!(item, Item::Include(_))) {
        found.central.push(whole_file);
        return;
    }
    let mut known = BTreeMap::new();
    for rule in parsed.rules() {
        let (need, why) = of_rule(rule, &known);
        if !rule.flags.contains(RuleFlags::Private) {
            let central = match &need {
                Some(atoms) if found.atoms.len() + new_ones(atoms, &found.atoms) > ATOMS_MAX => Some(Why::TooMany),
                Some(atoms) => {
                    found.atoms.extend(atoms.iter().cloned());
                    None
                }
                None => Some(why),
            };
            let name = rule.identifier.name;
            found.central.extend(central.map(|why| Central { file, rule: Some(name.to_owned()), why }));
        }
        known.insert(rule.identifier.name.to_owned(), need);
    }
}

/// The number of atoms that are not among others.
fn new_ones(atoms: &Atoms, others: &Atoms) -> usize {
    atoms.iter().filter(|atom| !others.contains(*atom)).count()
}

/// What a rule needs, and the reason if that is nothing.
fn of_rule(rule: &Rule<'_>, known: &BTreeMap<String, Need>) -> (Need, Why) {
    let strings = rule.patterns.as_deref().unwrap_or_default();
    let needs: Vec<_> = strings.iter().map(of_string).collect();
    let need = Condition::new(strings, &needs, known).need(&rule.condition);
    if need.is_some() {
        return (need, Why::Condition);
    }
    // Would it have atoms if each of its strings had one?
    let ideal = vec![literal(b"ideal", false); strings.len()];
    let is_split = Condition::new(strings, &ideal, known).need(&rule.condition).is_some();
    (None, if is_split { Why::Strings } else { Why::Condition })
}

/// What a string needs.
fn of_string(string: &Pattern<'_>) -> Need {
    match string {
        Pattern::Text(found) => text::need(&found.text.value, &found.modifiers),
        Pattern::Regexp(found) => expression::need(&found.regexp, &found.modifiers),
        Pattern::Hex(found) => hex::need(&found.sub_patterns),
    }
}
