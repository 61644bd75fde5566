//! Jobs: work that a node does on the content of its own exports, if it lends its processor.
//!
//! A job is posted to [`JOBS`](crate::routes::JOBS). Its results are lines of JSON ([`JobLine`]), numbered from 0, which are read
//! from [`JOB_LINES`](crate::routes::JOB_LINES): a request for the lines from a number on says that those before have arrived, and
//! the node forgets them. So a client that lost its connection goes on where it was. A job whose lines are not read waits, and is
//! given up after [`ABANDONED_S`] seconds.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Seconds after which a job ends if its lines are not asked for.
pub const ABANDONED_S: u64 = 60;

/// The maximum time for which a request for lines waits for them, in seconds.
pub const LINES_WAIT_S_MAX: u64 = 30;

// A job is not given up while a request waits for its lines.
const _: () = assert!(LINES_WAIT_S_MAX < ABANDONED_S);

/// The largest body of a request with a job, in bytes: that of 100,000 words of 50 characters.
pub const JOB_BODY_BYTES_MAX: usize = (6 << 20) + (64 << 10);

/// The most words of an order.
pub const ORDER_WORDS_MAX: usize = 100_000;

/// The most expressions, finders and encodings of an order that are read, of each.
pub const ORDER_NAMES_MAX: usize = 1000;

/// The most places that the stretches of a job name: a client divides its units over jobs.
pub const JOB_PLACES_MAX: usize = 1000;

/// The most base64 digits of keys that are lent: those of the longest file of the age format that is read.
pub const LENT_KEY_DIGITS_MAX: usize = 5464;

/// The bytes of a chaining value of BLAKE3.
pub const VALUE_BYTES: usize = 32;

/// The most bytes that the hits in a unit take, so that these are fewer than those of the unit, and fit in a line. A hit takes its
/// own bytes, those of its context, and 100 more.
pub const fn hits_bytes_max(unit_bytes: u64) -> usize {
    const MAX: u64 = 256 << 10;
    // Not truncated: at most MAX.
    (if unit_bytes < MAX { unit_bytes } else { MAX }) as usize
}

/// A job for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// The instance of the node that holds the content: another one refuses.
    pub instance: String,
    /// The export.
    pub export: String,
    /// The units of the export to work on, in the order of the results. Together they are no larger than the export.
    pub units: Units,
    /// The work.
    pub work: Work,
    /// Keys of a sealed drive, with which the node opens the units for this job. Each unit of the job is a unit of the seal, whose
    /// trailer lies behind it in the export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<LentKey>,
}

/// Keys of a sealed drive that are lent to a node. It takes them over TLS, if its own role is `trusted-node`, keeps them in locked
/// memory, and wipes them at the end of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LentKey {
    /// The task of the examiner that the job is a part of: 32 hex digits. The node's receipt names it.
    pub task: String,
    /// The keys: an age file for the recipient in the node's [`ScanStatus`], in base64.
    pub age: String,
}

impl LentKey {
    /// Whether it is within the limits.
    pub fn is_valid(&self) -> bool {
        let is_digit = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
        self.task.len() == 32 && self.task.bytes().all(is_digit) && self.age.len() <= LENT_KEY_DIGITS_MAX
    }
}

/// Units of an export, each of which is worked on alone. Those of several nodes make up a text: the content of a drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Units {
    /// Bytes of a unit: a power of two from 4 KiB to 1 MiB.
    pub unit_bytes: u64,
    /// Their places, of which all stretches together name at most 1000.
    pub stretches: Vec<Stretch>,
}

/// The work of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Hashes units.
    Digest(Digest),
    /// Searches units.
    Search(SearchOrder),
}

/// Each unit becomes the chaining value of a subtree of BLAKE3, from which the client computes the hash of the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Digest {
    /// Bytes after which another text begins, a power of two above the unit; absent if all is one text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_bytes: Option<u64>,
}

/// Each unit is searched alone: the client gets the hits that its bytes decide, and its edges, with which it searches the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SearchOrder {
    /// The version of the client's program: a node of another one refuses, because it could find other hits.
    pub version: String,
    /// Words, at most 100,000.
    #[serde(deserialize_with = "order_words")]
    pub words: Vec<String>,
    /// Regular expressions whose matches have a maximum length, at most 64, each of at most 16 KiB.
    #[serde(deserialize_with = "order_names")]
    pub expressions: Vec<String>,
    /// The names of well-known kinds of data, at most 1000.
    #[serde(deserialize_with = "order_names")]
    pub finders: Vec<String>,
    /// The keys of blocks of known files, one after the other, in base64: of each the checksum of its first 512 bytes (CRC-64/NVME,
    /// little-endian), and the first 16 bytes of its BLAKE3. Blocks have 4096 bytes and begin at multiples of 512 in the text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub blocks: String,
    /// Literal bytes, one of which occurs wherever a rule matches.
    #[serde(default, skip_serializing_if = "OrderAtoms::is_empty")]
    pub atoms: OrderAtoms,
    /// The names of encodings, at most 1000.
    #[serde(deserialize_with = "order_names")]
    pub encodings: Vec<String>,
    /// Whether the case of letters is ignored.
    pub ignore_case: bool,
    /// The number of bytes before and after each hit to return.
    pub context_bytes: usize,
}

/// Literal bytes of an order. Of their hits, only the places are returned, without the bytes before and after them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OrderAtoms {
    /// The bytes, as words in windows-1252; with the words of the order at most 100,000.
    #[serde(deserialize_with = "order_words")]
    pub words: Vec<String>,
    /// Whether the case of letters in them is ignored.
    pub ignore_case: bool,
}

impl OrderAtoms {
    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

/// Reads the words of an order.
fn order_words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_seq(Texts { count_max: ORDER_WORDS_MAX })
}

/// Reads expressions or names of an order.
fn order_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_seq(Texts { count_max: ORDER_NAMES_MAX })
}

/// A list of texts. One that is longer is refused before it takes memory: a body has room for millions of empty texts.
struct Texts {
    count_max: usize,
}

impl<'de> Visitor<'de> for Texts {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} texts", self.count_max)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = access.next_element()? {
            if texts.len() == self.count_max {
                return Err(A::Error::invalid_length(self.count_max.saturating_add(1), &self));
            }
            texts.push(text);
        }
        Ok(texts)
    }
}

/// Units at regular distances: some, and as many in each further round, each a step after that of the round before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// The number of rounds.
    pub rounds: u64,
    /// The units of the first round.
    pub units: Vec<UnitPlace>,
    /// The step in the export, in bytes.
    pub export_step: u64,
    /// The step in the text, in bytes.
    pub text_step: u64,
}

/// The place of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnitPlace {
    /// Its offset in the export.
    pub export: u64,
    /// Its offset in the text, a multiple of the unit.
    pub text: u64,
}

impl Units {
    /// The places of the units, in order.
    pub fn places(&self) -> impl Iterator<Item = UnitPlace> + '_ {
        self.stretches.iter().flat_map(|stretch| (0..stretch.rounds).flat_map(|round| stretch.round(round)))
    }

    /// The number of units; `None` if it is beyond all bounds.
    pub fn count(&self) -> Option<u64> {
        self.stretches.iter().try_fold(0u64, |sum, stretch| {
            let units = stretch.rounds.checked_mul(stretch.units.len() as u64)?;
            sum.checked_add(units)
        })
    }
}

impl Stretch {
    /// The places of the units of a round.
    fn round(&self, round: u64) -> impl Iterator<Item = UnitPlace> + '_ {
        let by = move |first: u64, step: u64| first.saturating_add(step.saturating_mul(round));
        let place = move |first: &UnitPlace| UnitPlace {
            export: by(first.export, self.export_step),
            text: by(first.text, self.text_step),
        };
        self.units.iter().map(place)
    }

    /// The places of the units of the last round.
    pub fn last_round(&self) -> impl Iterator<Item = UnitPlace> + '_ {
        self.round(self.rounds.saturating_sub(1))
    }
}

/// A job that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobStarted {
    /// 32 hex digits, secret between node and client.
    pub id: String,
}

/// A line of the results of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobLine {
    /// The chaining values of units that follow each other.
    Values {
        /// The number of the first unit, from 0.
        from: u64,
        /// The values, 32 bytes each, in base64.
        base64: String,
        /// The stamps with which the units were sealed, 8 bytes each, in base64, if they were opened with a lent key; all 0 for a unit
        /// of zeros that is not sealed. The client compares them with its seal record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stamps: Option<String>,
    },
    /// The result of the search of a unit.
    Searched {
        /// The number of the unit.
        unit: u64,
        /// Its first bytes, in base64: as many as decide about the hits at an edge.
        head: String,
        /// Its last bytes, as many.
        tail: String,
        /// The hits that its bytes decide, in order.
        hits: Vec<JobHit>,
        /// The stamp with which it was sealed, in 16 hex digits, if it was opened with a lent key; all 0 for a unit of zeros that is
        /// not sealed. The client compares it with its seal record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stamp: Option<String>,
    },
    /// A unit that the lent key does not open: it is damaged, altered, or sealed anew.
    Unopened {
        /// The number of the unit.
        unit: u64,
    },
    /// A unit with more hits than a node returns ([`hits_bytes_max`]).
    TooManyHits {
        /// The number of the unit.
        unit: u64,
    },
    /// A unit that the node cannot read, because its memory is damaged.
    Unreadable {
        /// The number of the unit.
        unit: u64,
        /// Why.
        why: String,
    },
    /// The last line of a job that is done.
    End {
        /// The number of units.
        units: u64,
    },
    /// The last line of a job that cannot go on.
    Failed {
        /// Why.
        why: String,
    },
}

impl JobLine {
    /// Whether no line follows.
    pub const fn is_last(&self) -> bool {
        matches!(self, Self::End { .. } | Self::Failed { .. })
    }
}

/// A hit in a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobHit {
    /// The offset of its first byte in the text.
    pub at: u64,
    /// Its length in bytes.
    pub len: usize,
    /// The index of its pattern: words, expressions and finders are counted in this order, each once.
    pub pattern: usize,
    /// The name of its encoding.
    pub encoding: String,
    /// The number of bytes before it that are returned.
    pub before: usize,
    /// Those bytes, its own, and those after it, in base64.
    pub base64: String,
}

/// The part of a node that works on jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScanStatus {
    /// The number of threads that work on jobs.
    pub threads: usize,
    /// The number of jobs that it has, those that wait included.
    pub jobs: usize,
    /// The recipient (`age1…`) for which keys that are lent to this run of the node are wrapped; absent if none are lent to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_with_more_words_than_the_most_is_none() {
        let read = |count| {
            let order = SearchOrder { words: vec![String::new(); count], ..SearchOrder::default() };
            serde_json::from_slice::<SearchOrder>(&serde_json::to_vec(&order).unwrap()).map(|order| order.words.len())
        };
        assert_eq!(read(ORDER_WORDS_MAX).unwrap(), ORDER_WORDS_MAX);
        read(ORDER_WORDS_MAX + 1).unwrap_err();
        let atoms = |count| {
            let atoms = OrderAtoms { words: vec![String::new(); count], ignore_case: true };
            let order = serde_json::to_vec(&SearchOrder { atoms, ..SearchOrder::default() }).unwrap();
            serde_json::from_slice::<SearchOrder>(&order).map(|order| order.atoms.words.len())
        };
        assert_eq!([atoms(0).ok(), atoms(3).ok()], [Some(0), Some(3)]);
        atoms(ORDER_WORDS_MAX + 1).unwrap_err();
    }

    #[test]
    fn an_order_with_more_expressions_finders_or_encodings_than_are_read_is_none() {
        let read =
            |order: SearchOrder| serde_json::from_slice::<SearchOrder>(&serde_json::to_vec(&order).unwrap()).is_ok();
        for (count, is_read) in [(ORDER_NAMES_MAX, true), (ORDER_NAMES_MAX + 1, false)] {
            let names = || vec![String::new(); count];
            assert_eq!(read(SearchOrder { expressions: names(), ..SearchOrder::default() }), is_read);
            assert_eq!(read(SearchOrder { finders: names(), ..SearchOrder::default() }), is_read);
            assert_eq!(read(SearchOrder { encodings: names(), ..SearchOrder::default() }), is_read);
        }
    }
}
