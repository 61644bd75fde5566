//! What a search is: its source, and what is searched for. It goes on only if it is the same.

use std::fmt;

use cheetah_device::around::is_local;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result, list};
use cheetah_image::hash::hex;
use cheetah_kit::clock::now_s;
use cheetah_search::{Atoms, BlockKey, KnownFiles, Order};
use futures::stream;
use futures::{StreamExt as _, TryStreamExt as _};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

/// The version of the journal.
pub const VERSION: u32 = 1;
/// The number and the size of the samples of a source, from its first byte to its last.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 4096;
/// The samples that are read at once.
const SAMPLES_AT_ONCE: usize = 16;
/// Samples begin at multiples of this.
const SECTOR_BYTES: u64 = 512;

/// What a search is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The version of the journal.
    pub version: u32,
    /// The version of the program: another one may find something else.
    pub program: String,
    /// The source, as the user wrote it.
    pub source: String,
    /// Its size.
    pub size_bytes: u64,
    /// The id of the drive, or the serial number of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<String>,
    /// Digests of samples of its content, or the one of a whole compressed file; `None` where it cannot be read, or is not there yet.
    pub samples: Vec<Option<String>>,
    /// When the search began, in seconds since 1970 (UTC).
    pub begun_s: u64,
    /// What is searched for.
    pub asked: Asked,
}

/// What is searched for: digests of what may be long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The words, and the atoms of rules.
    pub words: String,
    /// The expressions.
    pub expressions: String,
    /// The kinds of data, of headers, and of compressed data.
    pub kinds: Vec<String>,
    /// The known files.
    pub known: String,
    /// The encodings.
    pub encodings: Vec<String>,
    /// Whether the case of letters is ignored.
    pub ignore_case: bool,
    /// The bytes around hits.
    pub context_bytes: usize,
    /// What is done beside, such as carving.
    pub also: Vec<String>,
}

/// What a search is made of.
#[derive(Clone, Copy)]
pub struct WhatToSearch<'a> {
    /// The source, as the user wrote it.
    pub source: &'a str,
    /// Its content.
    pub device: &'a DynDevice,
    /// The id of the drive, or the serial number of the disk.
    pub drive: Option<&'a str>,
    /// The digest of the whole file, if that was read when it was opened: a compressed one, of which samples would cost another pass.
    pub digest: Option<&'a str>,
    /// The ranges that it does not have yet.
    pub absent: &'a [ByteRange],
    /// What is searched for.
    pub order: &'a Order,
    /// The known files whose blocks are searched for.
    pub known: Option<&'a KnownFiles>,
    /// What is done beside, such as carving.
    pub also: &'a [&'a str],
}

/// What differs between two searches; as text, a noun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// The version of the program, or of the journal.
    #[error("the version of cheetah")]
    Version,
    /// The name of the source.
    #[error("the source")]
    Source,
    /// The size of the source.
    #[error("the size of the source")]
    Size,
    /// The content of the source, or the drive.
    #[error("the content of the source")]
    Content,
    /// Too little of the source can be read to compare it.
    #[error("the part of the source that can be read, which is too little to compare it")]
    TooLittleToCompare,
    /// The words.
    #[error("the words")]
    Words,
    /// The expressions.
    #[error("the expressions")]
    Expressions,
    /// The kinds of data, of headers, or of compressed data.
    #[error("the kinds of data")]
    Kinds,
    /// The known files.
    #[error("the known files")]
    Known,
    /// The encodings.
    #[error("the encodings")]
    Encodings,
    /// Whether case is ignored.
    #[error("whether case is ignored")]
    IgnoreCase,
    /// The bytes around hits.
    #[error("the bytes shown around hits")]
    Context,
    /// What is done beside.
    #[error("what else is done with the hits")]
    Also,
}

/// The search in a folder is another one; as text, what differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherSearch(pub Vec<Difference>);

impl fmt::Display for OtherSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&list(&all))
    }
}

impl std::error::Error for OtherSearch {}

impl Start {
    /// What the search is. Reads samples of the source.
    ///
    /// # Errors
    ///
    /// If the source fails as a whole.
    pub async fn of(what: &WhatToSearch<'_>) -> Result<Self> {
        let size_bytes = what.device.geometry().size;
        let samples = match what.digest {
            Some(digest) => vec![Some(digest.to_owned())],
            None => samples(what.device, size_bytes, what.absent).await?,
        };
        Ok(Self {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            source: what.source.into(),
            size_bytes,
            drive: what.drive.map(str::to_owned),
            samples,
            begun_s: now_s(),
            asked: Asked::of(what),
        })
    }

    /// What differs of a search that `now` was begun from this one, of which some of the source `is_searched`.
    pub(super) fn differences(&self, now: &Self, is_searched: bool) -> Vec<Difference> {
        let is_other_version = (self.version, &self.program) != (now.version, &now.program);
        let content = match self.drive != now.drive {
            true => Some(Difference::Content),
            false => of_samples(&self.samples, &now.samples, is_searched),
        };
        let (then, asked) = (&self.asked, &now.asked);
        let compared = [
            (is_other_version, Difference::Version),
            (self.source != now.source, Difference::Source),
            (self.size_bytes != now.size_bytes, Difference::Size),
            (then.words != asked.words, Difference::Words),
            (then.expressions != asked.expressions, Difference::Expressions),
            (then.kinds != asked.kinds, Difference::Kinds),
            (then.known != asked.known, Difference::Known),
            (then.encodings != asked.encodings, Difference::Encodings),
            (then.ignore_case != asked.ignore_case, Difference::IgnoreCase),
            (then.context_bytes != asked.context_bytes, Difference::Context),
            (then.also != asked.also, Difference::Also),
        ];
        let differing = compared.into_iter().filter(|(differs, _)| *differs).map(|(_, difference)| difference);
        // Samples of sources of other sizes lie elsewhere.
        let content = content.filter(|_| self.size_bytes == now.size_bytes);
        differing.chain(content).collect()
    }
}

impl Asked {
    fn of(what: &WhatToSearch<'_>) -> Self {
        let order = what.order;
        let names = what.known.into_iter().flat_map(KnownFiles::files);
        let known: Vec<_> = names.map(|file| format!("{} {}", file.blocks, file.name).into_bytes()).collect();
        let blocks = BlockKey::to_bytes(&order.blocks);
        let known = known.iter().map(Vec::as_slice).chain([blocks.as_slice()]);
        Self {
            words: of_words(order),
            expressions: digest(order.expressions.iter().map(String::as_bytes)),
            kinds: order.finders.iter().map(|finder| finder.name().to_owned()).collect(),
            known: digest(known),
            encodings: order.encodings.iter().map(|encoding| encoding.name()).collect(),
            ignore_case: order.ignore_case,
            context_bytes: order.context_bytes,
            also: what.also.iter().map(|also| (*also).to_owned()).collect(),
        }
    }
}

/// The digest of words, and of atoms of rules, if there are any. The same rules may be divided otherwise later, by another version of
/// what divides them: files would then be taken for files without atoms that were only not searched for.
fn of_words(order: &Order) -> String {
    let Atoms { words: atoms, ignore_case } = &order.atoms;
    let kind: &[u8] = if *ignore_case { b"atoms in any case" } else { b"atoms" };
    let kind = (!atoms.is_empty()).then_some(kind);
    digest(order.words.iter().map(String::as_bytes).chain(kind).chain(atoms.iter().map(String::as_bytes)))
}

/// The SHA-256 of texts and their lengths.
fn digest<'a>(texts: impl Iterator<Item = &'a [u8]>) -> String {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_le_bytes());
        context.update(text);
    }
    hex(context.finish().as_ref())
}

/// Whether samples are of other content. What cannot be read now, or could not be then, does not count; at least half of what was read
/// then must be there to compare.
fn of_samples(then: &[Option<String>], now: &[Option<String>], is_searched: bool) -> Option<Difference> {
    let pairs = then.iter().zip(now).filter_map(|(then, now)| then.as_ref().zip(now.as_ref()));
    let (mut compared, mut differing) = (0, 0);
    for (then, now) in pairs {
        compared += 1;
        differing += usize::from(then != now);
    }
    let read = then.iter().flatten().count();
    match () {
        () if differing > 0 || then.len() != now.len() => Some(Difference::Content),
        () if is_searched && (compared == 0 || 2 * compared < read) => Some(Difference::TooLittleToCompare),
        () => None,
    }
}

/// Digests of samples of a source, several of which are read at once.
async fn samples(device: &DynDevice, size: u64, absent: &[ByteRange]) -> Result<Vec<Option<String>>> {
    let last = u128::from(size.saturating_sub(SAMPLE_BYTES));
    let sample = |number: u64| {
        // Not truncated: at most the size.
        let place = (last * u128::from(number) / u128::from(SAMPLES - 1)) as u64;
        let sample = ByteRange::between(place - place % SECTOR_BYTES, place.saturating_add(SAMPLE_BYTES).min(size));
        (!absent.iter().any(|absent| absent.intersection(sample).is_some())).then_some(sample)
    };
    let samples: Vec<Option<ByteRange>> = (0..SAMPLES.min(size)).map(sample).collect();
    let read = |sample: Option<ByteRange>| {
        let device = device.clone();
        async move {
            let Some(sample) = sample else { return Ok(None) };
            match device.read(sample).await {
                Ok(data) => Ok(Some(digest([data.into_bytes().as_ref()].into_iter()))),
                Err(error) if is_local(&error) => Ok(None),
                Err(error) => Err(Error::device("comparing the source")(error)),
            }
        }
    };
    stream::iter(samples.into_iter().map(read)).buffered(SAMPLES_AT_ONCE).try_collect().await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use cheetah_device::{Data, Device, Geometry, Io};
    use tokio::sync::Barrier;
    use tokio::time::timeout;

    use super::*;

    /// A device whose reads end when as many are under way.
    struct Together(Barrier);

    impl Device for Together {
        fn geometry(&self) -> Geometry {
            Geometry { size: 1 << 20, writable: false, block_preferred: 4096 }
        }

        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            Io::later(async move {
                self.0.wait().await;
                // Content that says where it is.
                let bytes = (range.offset..range.end()).map(|at| (at >> 9) as u8);
                Ok(Data::from(bytes.collect::<Vec<_>>()))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn samples_are_read_at_once_and_stand_in_their_order() {
        let of = async |at_once, absent: &[ByteRange]| {
            let device: DynDevice = Arc::new(Together(Barrier::new(at_once)));
            timeout(Duration::from_secs(60), samples(&device, 1 << 20, absent)).await.unwrap().unwrap()
        };
        let found = of(SAMPLES_AT_ONCE, &[]).await;
        assert_eq!((found.len(), found.iter().flatten().count()), (64, 64));
        assert_eq!(found, of(1, &[]).await);
        let absent = of(1, &[ByteRange::new(0, 512)]).await;
        assert_eq!((&absent[0], &absent[1..]), (&None, &found[1..]));
    }

    fn texts(samples: &[&str]) -> Vec<Option<String>> {
        samples.iter().map(|sample| (*sample != "-").then(|| (*sample).to_owned())).collect()
    }

    #[test]
    fn samples_that_cannot_be_read_do_not_count_and_at_least_half_must_be_compared() {
        let differs = |then: &[&str], now: &[&str]| of_samples(&texts(then), &texts(now), true);
        assert_eq!(differs(&["a", "b", "-"], &["a", "-", "c"]), None);
        assert_eq!(differs(&["a", "b"], &["a", "c"]), Some(Difference::Content));
        assert_eq!(differs(&["a", "b"], &["a"]), Some(Difference::Content));
        assert_eq!(differs(&["a", "b", "c"], &["a", "-", "-"]), Some(Difference::TooLittleToCompare));
        assert_eq!(differs(&["-", "-"], &["a", "b"]), Some(Difference::TooLittleToCompare));
        assert_eq!(of_samples(&texts(&["-"]), &texts(&["a"]), false), None);
    }

    #[test]
    fn atoms_of_rules_that_are_divided_otherwise_are_another_search() {
        let of = |words: &[&str], atoms: &[&str], ignore_case| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            of_words(&Order {
                words: owned(words),
                atoms: Atoms { words: owned(atoms), ignore_case },
                ..Order::default()
            })
        };
        let one = of(&["word"], &["atom"], false);
        assert_eq!(one, of(&["word"], &["atom"], false));
        for other in [
            of(&["word"], &[], false),
            of(&["word"], &["atom"], true),
            of(&["word"], &["atom", "other"], false),
            of(&["word", "atom"], &[], false),
            of(&["atom"], &["word"], false),
        ] {
            assert_ne!(one, other);
        }
        // As it was before there were atoms.
        assert_eq!(of(&["word"], &[], true), digest([b"word".as_slice()].into_iter()));
    }

    #[test]
    fn words_that_are_divided_otherwise_are_other_words() {
        let of = |texts: &[&str]| digest(texts.iter().map(|text| text.as_bytes()));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&[]), of(&[""]));
    }
}
