//! YARA rules, as they were read and divided: into atoms, which are searched where the bytes lie, and rules that have none.
//!
//! The process that tries rules divides them, so that there is one engine of them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cheetah_search::{Atoms, PatternKind, Search, WORDS_MAX};
use sha2::{Digest as _, Sha256};

use super::super::lister::{self, Lister, Message, SILENCE_MAX, Said, SplitRules};
use super::super::places::in_words;
use crate::answers::search::CentralRule;
use crate::failure::{Context as _, Failure, Result};
use crate::signals::Stop;

/// The maximum size of all files of rules, in bytes.
const FILES_BYTES_MAX: u64 = 64 << 20;
/// The maximum number of rules.
const RULES_MAX: usize = 1_000_000;

/// Rules.
pub struct RuleSet {
    /// What tries them.
    pub python: OsString,
    /// The name and the text of each file.
    pub files: Vec<(String, String)>,
    /// The rules without atoms.
    pub central: Vec<CentralRule>,
    /// The digest of the files.
    pub digest: String,
    /// The atoms, as words.
    pub atoms: Vec<String>,
    ignore_case: bool,
    /// The rules: the name of the file, and their own.
    names: Vec<(String, String)>,
}

impl RuleSet {
    /// Reads the files, and divides the rules in them; `None` if there are no files.
    pub async fn read(paths: &[PathBuf], stop: &mut Stop) -> Result<Option<Self>> {
        if paths.is_empty() {
            return Ok(None);
        }
        let python = lister::python(&lister::RULES).await?;
        let files = texts(paths)?;
        let mut set = Self {
            python: OsString::new(),
            digest: digest(&files),
            files,
            central: Vec::new(),
            atoms: Vec::new(),
            ignore_case: false,
            names: Vec::new(),
        };
        stop.unless("dividing the rules", set.divide(&python)).await?;
        if set.names.is_empty() {
            let names = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            return Err(Failure::misused(format!("{names}: there is no rule in it: nothing would be searched for")));
        }
        Ok(Some(Self { python, ..set }))
    }

    async fn divide(&mut self, python: &OsStr) -> Result<()> {
        let begin = SplitRules { split: &self.files };
        let begin = serde_json::to_vec(&begin).context("cannot hand the rules to what divides them")?;
        let mut lister = Lister::start(python, &begin, SILENCE_MAX).await?;
        loop {
            let message = match lister.next_alone().await? {
                Said::Message(Message::End(true)) => return Ok(()),
                Said::Message(message) => message,
                Said::Died(death) => return Err(not_divided(&in_words(death))),
            };
            if !self.take(message)? {
                return Err(not_divided(&in_words(lister.malformed().await?)));
            }
        }
    }

    /// Takes a message. Returns false if it makes no sense.
    fn take(&mut self, message: Message) -> Result<bool> {
        match message {
            // The compiler's sentence has several lines.
            Message::Refused(why) => {
                return Err(Failure::misused(why.split_whitespace().collect::<Vec<_>>().join(" ")));
            }
            Message::IgnoreCase(ignore_case) => self.ignore_case = ignore_case,
            Message::Atoms(atoms) => self.atoms.extend(atoms),
            Message::Names(names) => self.names.extend(names),
            Message::Central(rules) => {
                self.central.extend(rules.into_iter().map(|(file, rule, why)| CentralRule { file, rule, why }));
            }
            _ => return Ok(false),
        }
        Ok(self.atoms.len() <= WORDS_MAX && self.names.len().max(self.central.len()) <= RULES_MAX)
    }

    /// Whether atoms are searched for. If a rule has none, it is tried on every file, and so are the others.
    pub fn is_searched(&self) -> bool {
        self.central.is_empty() && !self.atoms.is_empty()
    }

    /// The atoms that are searched for.
    pub fn searched(&self) -> Atoms {
        match self.is_searched() {
            true => Atoms { words: self.atoms.clone(), ignore_case: self.ignore_case },
            false => Atoms::default(),
        }
    }

    /// The names of the rules.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|(_, rule)| rule.clone())
    }

    /// The rules as patterns of a search that has them.
    pub fn named(&self, search: &Search) -> Named {
        let first = search.patterns().iter().take_while(|pattern| pattern.kind != PatternKind::Rule).count();
        let numbers = self.names.iter().zip(first..);
        Named { numbers: numbers.map(|(name, number)| (name.clone(), number)).collect() }
    }
}

/// The rules as patterns of a search.
pub struct Named {
    numbers: HashMap<(String, String), usize>,
}

impl Named {
    /// The number of the pattern of a rule in a file.
    pub fn number(&self, file: &str, rule: &str) -> Option<usize> {
        self.numbers.get(&(file.to_owned(), rule.to_owned())).copied()
    }
}

fn not_divided(why: &str) -> Failure {
    Failure::failed(format!("the rules could not be divided: {why}"))
}

/// The names and the texts of files.
fn texts(paths: &[PathBuf]) -> Result<Vec<(String, String)>> {
    let mut left_bytes = FILES_BYTES_MAX;
    let mut texts = Vec::with_capacity(paths.len());
    for path in paths {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(left_bytes + 1).read_to_end(&mut bytes));
        read.context(format_args!("cannot read {}", path.display()))?;
        left_bytes = left_bytes.checked_sub(bytes.len() as u64).ok_or_else(|| {
            Failure::misused(format!("the rules up to {} are too large: divide them", path.display()))
        })?;
        texts.push((name(path, paths), text(&bytes)));
    }
    Ok(texts)
}

/// The name of a file of rules, among all of them: that of the file, or the path if another one has the same.
fn name(path: &Path, paths: &[PathBuf]) -> String {
    let is_one = paths.iter().filter(|other| other.file_name() == path.file_name()).count() == 1;
    let name = path.file_name().filter(|_| is_one).unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The text of a file of rules. Bytes that are not UTF-8 become escapes, which in a string mean these bytes: with other characters in their
/// place, the rule would not match. A byte order mark is left out.
fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text += chunk.valid();
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

/// The SHA-256 of the files, in hexadecimal digits.
fn digest(files: &[(String, String)]) -> String {
    let mut hasher = Sha256::new();
    for text in files.iter().flat_map(|(name, text)| [name, text]) {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use cheetah_search::Order;

    use super::*;

    fn set(messages: &[&str]) -> (RuleSet, bool) {
        let mut set = RuleSet {
            python: OsString::new(),
            files: Vec::new(),
            central: Vec::new(),
            digest: String::new(),
            atoms: Vec::new(),
            ignore_case: false,
            names: Vec::new(),
        };
        let makes_sense =
            messages.iter().all(|message| set.take(serde_json::from_str(message).unwrap()).unwrap_or(false));
        (set, makes_sense)
    }

    #[test]
    fn atoms_are_searched_for_unless_a_rule_has_none() {
        const ATOMS: &str = r#"{"atoms":["This program","\u0081word"]}"#;
        let (split, makes_sense) = set(&[r#"{"ignore_case":true}"#, ATOMS, r#"{"names":[["a.yar","Dropper"]]}"#]);
        assert!(makes_sense && split.is_searched());
        let (words, encodings) = (vec!["word".into()], vec!["utf-8".parse().unwrap()]);
        let order = Order { words, encodings, atoms: split.searched(), ..Order::default() };
        assert!(order.atoms.ignore_case && order.atoms.words.len() == 2);
        let named = split.named(&Search::new(&order).unwrap().with_rules(split.names()));
        assert_eq!((named.number("a.yar", "Dropper"), named.number("b.yar", "Dropper")), (Some(2), None));
        let (central, _) = set(&[ATOMS, r#"{"central":[["a.yar","Large","condition"]]}"#]);
        assert!(!central.is_searched() && central.searched() == Atoms::default());
        assert!(!set(&[]).0.is_searched());
    }

    #[test]
    fn rules_that_do_not_compile_and_messages_about_files_are_refused() {
        assert!(!set(&[r#"{"refused":"a.yar: these YARA rules do not compile"}"#]).1);
        assert!(!set(&[r#"{"begin":0}"#]).1);
    }

    #[test]
    fn bytes_that_are_not_utf_8_stay_the_same_bytes_in_strings() {
        assert_eq!(text(b"$a = \"caf\xe9\" // \xc3\xbc"), "$a = \"caf\\xe9\" // \u{fc}");
        assert_eq!(text(b"\xef\xbb\xbfrule a"), "rule a");
    }

    #[test]
    fn files_of_the_same_name_are_told_apart_by_their_paths() {
        let paths = ["one/index.yar", "two/index.yar", "two/other.yar"].map(PathBuf::from);
        let names = paths.each_ref().map(|path| name(path, &paths));
        assert_eq!(names, ["one/index.yar", "two/index.yar", "other.yar"]);
    }

    #[test]
    fn files_with_the_same_text_divided_otherwise_have_another_digest() {
        let of = |files: &[(&str, &str)]| {
            digest(&files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect::<Vec<_>>())
        };
        assert_ne!(of(&[("a", "bc")]), of(&[("ab", "c")]));
        assert_eq!(of(&[("a", "bc")]).len(), 64);
    }
}
