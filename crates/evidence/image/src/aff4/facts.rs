//! A container's metadata: the triples of `information.turtle`.

use std::collections::HashMap;

use oxrdf::{NamedOrBlankNode, Term, Triple};
use oxttl::{TurtleParser, TurtleSyntaxError};

/// The vocabulary of AFF4 Standard v1.0, section 2.
pub const SCHEMA: &str = "http://aff4.org/Schema#";

const TYPE: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type";

/// The maximum number of triples. A disk image has about a hundred.
const FACTS_MAX: usize = 50_000;

/// The maximum length of an expanded name, in bytes: a short document can repeat a long prefix many times.
const NAME_LEN_MAX: usize = 4 << 10;

/// The maximum length of a value, in bytes: notes may be long.
const VALUE_LEN_MAX: usize = 64 << 10;

/// The maximum size of all triples, in bytes.
const KEPT_LEN_MAX: usize = 16 << 20;

/// The maximum depth of nested brackets. The parser keeps some hundred bytes for each, and has no limit of its own.
const DEPTH_MAX: usize = 100;

/// The object of a triple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// Another subject.
    Iri(String),
    /// A literal.
    Literal {
        /// Its text.
        value: String,
        /// Its type, without the prefix [`SCHEMA`].
        datatype: String,
    },
}

/// All triples, by subject.
#[derive(Debug, Default)]
pub struct Facts {
    by_subject: HashMap<String, Vec<(String, Object)>>,
}

/// Why a Turtle document is refused.
#[derive(Debug, thiserror::Error)]
pub enum BadTurtle {
    /// It is not Turtle.
    #[error(transparent)]
    Syntax(#[from] TurtleSyntaxError),
    /// Its brackets are nested too deep for the parser.
    #[error("its brackets are nested deeper than {DEPTH_MAX}")]
    TooDeep,
    /// It has too many triples.
    #[error("it has more than {FACTS_MAX} statements")]
    TooMany,
    /// A name or a value is too long.
    #[error("it has a name of more than {NAME_LEN_MAX} bytes, or a value of more than {VALUE_LEN_MAX}")]
    TooLong,
    /// All triples together are too large.
    #[error("it has more than {} MiB of statements", KEPT_LEN_MAX >> 20)]
    TooLarge,
}

impl Facts {
    /// Parses a Turtle document. Triples of other vocabularies than AFF4's are ignored.
    ///
    /// # Errors
    ///
    /// If it is not Turtle, or exceeds a limit.
    pub fn parse(turtle: &[u8]) -> Result<Self, BadTurtle> {
        if is_deeper(turtle, DEPTH_MAX) {
            return Err(BadTurtle::TooDeep);
        }
        let mut facts = Self::default();
        let mut kept: usize = 0;
        for (count, triple) in TurtleParser::new().for_slice(turtle).enumerate() {
            let triple = triple?;
            if count >= FACTS_MAX {
                return Err(BadTurtle::TooMany);
            }
            // Ignored triples count too: parsing them takes time.
            if !is_short(&triple) {
                return Err(BadTurtle::TooLong);
            }
            let predicate = match triple.predicate.as_str() {
                TYPE => "type",
                other => match other.strip_prefix(SCHEMA) {
                    Some(name) => name,
                    None => continue,
                },
            };
            let NamedOrBlankNode::NamedNode(subject) = triple.subject else { continue };
            let object = match triple.object {
                Term::NamedNode(node) => Object::Iri(node.into_string()),
                Term::Literal(literal) => {
                    let datatype = short(literal.datatype().as_str()).to_owned();
                    Object::Literal { value: literal.value().to_owned(), datatype }
                }
                _ => continue,
            };
            let subject = subject.into_string();
            kept += subject.len() + predicate.len() + object.len();
            if kept > KEPT_LEN_MAX {
                return Err(BadTurtle::TooLarge);
            }
            facts.by_subject.entry(subject).or_default().push((predicate.to_owned(), object));
        }
        Ok(facts)
    }

    /// All subjects, sorted by name.
    pub fn subjects(&self) -> impl Iterator<Item = &str> {
        let mut subjects: Vec<_> = self.by_subject.keys().map(String::as_str).collect();
        subjects.sort_unstable();
        subjects.into_iter()
    }

    /// The objects of `subject` for this predicate, in document order.
    pub fn all<'a>(&'a self, subject: &str, predicate: &str) -> impl Iterator<Item = &'a Object> + use<'a> {
        let said = self.by_subject.get(subject).into_iter().flatten();
        let predicate = predicate.to_owned();
        said.filter(move |(name, _)| *name == predicate).map(|(_, object)| object)
    }

    /// Whether any triple has this subject.
    pub fn knows(&self, subject: &str) -> bool {
        self.by_subject.contains_key(subject)
    }

    /// Whether `subject` belongs to this AFF4 class.
    pub fn is_a(&self, subject: &str, class: &str) -> bool {
        self.classes(subject).any(|name| name == class)
    }

    /// The classes that `subject` belongs to.
    pub fn classes<'a>(&'a self, subject: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.all(subject, "type").filter_map(|object| match object {
            Object::Iri(iri) => Some(short(iri)),
            Object::Literal { .. } => None,
        })
    }

    /// The subject that `subject` refers to.
    pub fn iri(&self, subject: &str, predicate: &str) -> Option<&str> {
        self.all(subject, predicate).find_map(|object| match object {
            Object::Iri(iri) => Some(iri.as_str()),
            Object::Literal { .. } => None,
        })
    }

    /// A literal of `subject`, trimmed, unless empty.
    pub fn text(&self, subject: &str, predicate: &str) -> Option<&str> {
        self.all(subject, predicate).find_map(|object| match object {
            Object::Literal { value, .. } => Some(value.trim()).filter(|value| !value.is_empty()),
            Object::Iri(_) => None,
        })
    }

    /// A numeric literal of `subject`.
    pub fn number(&self, subject: &str, predicate: &str) -> Option<u64> {
        self.text(subject, predicate)?.parse().ok()
    }

    /// A literal of `subject` with this AFF4 type.
    pub fn typed(&self, subject: &str, predicate: &str, datatype: &str) -> Option<&str> {
        self.all(subject, predicate).find_map(|object| match object {
            Object::Literal { value, datatype: is } if is == datatype => Some(value.as_str()),
            _ => None,
        })
    }
}

/// Whether the brackets of a Turtle document are nested deeper than this. Texts, names and comments have no brackets.
fn is_deeper(turtle: &[u8], depth_max: usize) -> bool {
    let (mut depth, mut rest) = (0usize, turtle);
    while let [first, behind @ ..] = rest {
        rest = match first {
            b'[' | b'(' => {
                depth += 1;
                if depth > depth_max {
                    return true;
                }
                behind
            }
            b']' | b')' => {
                depth = depth.saturating_sub(1);
                behind
            }
            b'#' => behind_first(behind, b"\n"),
            b'<' => behind_first(behind, b">"),
            quote @ (b'"' | b'\'') => {
                let long = [*quote; 3];
                match rest.strip_prefix(&long) {
                    Some(text) => behind_text(text, &long),
                    None => behind_text(behind, &[*quote]),
                }
            }
            _ => behind,
        };
    }
    false
}

/// The bytes behind the first occurrence of `end`; none without one.
fn behind_first<'a>(bytes: &'a [u8], end: &[u8]) -> &'a [u8] {
    bytes
        .windows(end.len())
        .position(|window| window == end)
        .and_then(|at| bytes.get(at + end.len()..))
        .unwrap_or_default()
}

/// The bytes behind the end of a text, in which a backslash escapes the next character.
fn behind_text<'a>(mut bytes: &'a [u8], end: &[u8]) -> &'a [u8] {
    while !bytes.is_empty() {
        if let Some(behind) = bytes.strip_prefix(end) {
            return behind;
        }
        bytes = bytes.get(if bytes[0] == b'\\' { 2 } else { 1 }..).unwrap_or_default();
    }
    bytes
}

impl Object {
    fn len(&self) -> usize {
        match self {
            Self::Iri(iri) => iri.len(),
            Self::Literal { value, datatype } => value.len() + datatype.len(),
        }
    }
}

/// Whether all terms are within the limits.
fn is_short(triple: &Triple) -> bool {
    let is_name = |name: &str| name.len() <= NAME_LEN_MAX;
    let subject = match &triple.subject {
        NamedOrBlankNode::NamedNode(node) => is_name(node.as_str()),
        NamedOrBlankNode::BlankNode(node) => is_name(node.as_str()),
    };
    let object = match &triple.object {
        Term::Literal(literal) => literal.value().len() <= VALUE_LEN_MAX && is_name(literal.datatype().as_str()),
        Term::NamedNode(node) => is_name(node.as_str()),
        Term::BlankNode(node) => is_name(node.as_str()),
    };
    subject && object && is_name(triple.predicate.as_str())
}

/// Strips AFF4's prefix.
pub fn short(iri: &str) -> &str {
    iri.strip_prefix(SCHEMA).unwrap_or(iri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_the_document() {
        let facts = Facts::parse(
            br#"@prefix : <aff4://volume> .
            @prefix aff4: <http://aff4.org/Schema#> .
            @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
            <aff4://image> a aff4:Image, aff4:DiskImage ; aff4:dataStream <aff4://map> ; aff4:stored : ;
                aff4:size "1024"^^xsd:long ; aff4:hash "aa"^^aff4:SHA1 , "bb"^^aff4:MD5 ; aff4:diskModel " " .
            _:somebody aff4:size 7 . <aff4://image> <http://elsewhere/size> 9 ."#,
        )
        .unwrap();
        assert_eq!(facts.subjects().collect::<Vec<_>>(), ["aff4://image"]);
        assert!(facts.is_a("aff4://image", "DiskImage") && !facts.is_a("aff4://image", "Map"));
        assert_eq!(facts.iri("aff4://image", "stored"), Some("aff4://volume"));
        assert_eq!(facts.number("aff4://image", "size"), Some(1024));
        assert_eq!(facts.typed("aff4://image", "hash", "MD5"), Some("bb"));
        assert_eq!(facts.text("aff4://image", "diskModel"), None);
    }

    #[test]
    fn hostile_documents_are_refused() {
        assert!(matches!(Facts::parse(b"<a> <b"), Err(BadTurtle::Syntax(_))));
        let long = format!("<aff4://{}> a <http://aff4.org/Schema#Map> .", "x".repeat(NAME_LEN_MAX));
        assert!(matches!(Facts::parse(long.as_bytes()), Err(BadTurtle::TooLong)));
        let elsewhere = format!("@prefix p: <aff4://{}> . p:a p:b p:c .", "x".repeat(NAME_LEN_MAX));
        assert!(matches!(Facts::parse(elsewhere.as_bytes()), Err(BadTurtle::TooLong)));
        // 200 KiB that would be 80 MiB.
        let mut long = format!("@prefix p: <aff4://{}> . @prefix a: <{SCHEMA}> .", "x".repeat(4000));
        long.push_str(&"p:a a:b p:c . ".repeat(10_000));
        assert!(matches!(Facts::parse(long.as_bytes()), Err(BadTurtle::TooLarge)));
        for bracket in ["[:p ", "("] {
            let deep = format!("@prefix : <x:> .\n:a :p {}", bracket.repeat(1000));
            assert!(matches!(Facts::parse(deep.as_bytes()), Err(BadTurtle::TooDeep)), "{bracket}");
        }
        let text = "[".repeat(1000);
        let flat = format!(
            "# {text}\n@prefix : <x:> . :a :p \"{text}\\\"{text}\", \"\"\"\"{text}\"\"\", '{text}' . {}",
            ":a :p [], ( 1 2 ) . ".repeat(1000)
        );
        assert!(Facts::parse(flat.as_bytes()).is_ok());
        let mut many = "<aff4://a> <http://aff4.org/Schema#size> 1".to_owned();
        many.push_str(&",1".repeat(FACTS_MAX));
        many.push('.');
        assert!(matches!(Facts::parse(many.as_bytes()), Err(BadTurtle::TooMany)));
    }
}
