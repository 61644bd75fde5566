//! Hashes of a whole image: one pass over the bytes, in threads of their own.
//!
//! BLAKE3 has a thread. MD5, SHA-1 and SHA-256 have one together where the processor makes all three in the time of MD5
//! ([`cheetah_kit::md5_sha`]), and one each elsewhere.

mod parts;

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use cheetah_device::Data;
use cheetah_kit::md5::Md5;
use cheetah_kit::md5_sha::Md5Sha;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use tokio::sync::mpsc;

use cheetah_error::{Error, Result};

use self::parts::Parts;

/// The queue depth of a hashing thread, in chunks. Bounds memory (all threads share the chunks), and lets a slow hash
/// lag a little before it holds up the copy.
const QUEUE_MAX: usize = 8;

cheetah_kit::named! {
    /// A hash of the whole image.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum HashKind {
        /// For old case files.
        Md5 = "md5",
        /// For old case files.
        Sha1 = "sha1",
        /// The hash that courts expect today.
        Sha256 = "sha256",
        /// The fastest by far.
        Blake3 = "blake3",
    }
}

impl HashKind {
    /// Returns the number of hexadecimal digits in a digest.
    pub const fn digits(self) -> usize {
        match self {
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 | Self::Blake3 => 64,
        }
    }
}

/// The hashes to compute: `all`, `none`, or names separated by commas (`md5,sha256`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashChoice {
    /// One flag for each of [`HashKind::ALL`].
    chosen: [bool; 4],
}

impl HashChoice {
    /// All hashes.
    pub const ALL: Self = Self { chosen: [true; 4] };
    /// No hash.
    pub const NONE: Self = Self { chosen: [false; 4] };

    /// Returns the chosen hashes, in the order in which they are printed.
    pub fn kinds(self) -> impl Iterator<Item = HashKind> {
        HashKind::ALL.into_iter().zip(self.chosen).filter_map(|(kind, chosen)| chosen.then_some(kind))
    }

    /// Adds a hash.
    #[must_use]
    pub const fn with(mut self, kind: HashKind) -> Self {
        self.chosen[kind as usize] = true;
        self
    }

    const fn has(self, kind: HashKind) -> bool {
        self.chosen[kind as usize]
    }
}

impl std::ops::BitAnd for HashChoice {
    type Output = Self;

    /// Returns the hashes chosen in both.
    fn bitand(self, other: Self) -> Self {
        self.kinds().filter(|kind| other.has(*kind)).fold(Self::NONE, Self::with)
    }
}

impl Default for HashChoice {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromStr for HashChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "all" => return Ok(Self::ALL),
            "none" => return Ok(Self::NONE),
            _ => {}
        }
        text.split(',').try_fold(Self::NONE, |choice, name| {
            let kind = HashKind::of_name(name.trim());
            kind.map(|kind| choice.with(kind)).ok_or_else(|| {
                Error::misuse(format!(
                    "'{name}' is not a hash; choose from md5, sha1, sha256, blake3, or say all or none"
                ))
            })
        })
    }
}

impl fmt::Display for HashChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.kinds().map(HashKind::name).collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(",") }.as_str())
    }
}

/// Hashes of the whole, in lower-case hexadecimal; `None` for those that were not computed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Hashes {
    /// MD5, 32 digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub md5: Option<String>,
    /// SHA-1, 40 digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha1: Option<String>,
    /// SHA-256, 64 digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// BLAKE3, 64 digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}

impl Hashes {
    /// Returns the digest of one kind, if it is known.
    pub fn get(&self, kind: HashKind) -> Option<&str> {
        match kind {
            HashKind::Md5 => self.md5.as_deref(),
            HashKind::Sha1 => self.sha1.as_deref(),
            HashKind::Sha256 => self.sha256.as_deref(),
            HashKind::Blake3 => self.blake3.as_deref(),
        }
    }

    /// Returns the kinds that are known.
    pub fn choice(&self) -> HashChoice {
        self.iter().fold(HashChoice::NONE, |choice, (kind, _)| choice.with(kind))
    }

    /// Returns the known digests, in the order in which they are printed.
    pub fn iter(&self) -> impl Iterator<Item = (HashKind, &str)> {
        HashKind::ALL.into_iter().filter_map(|kind| self.get(kind).map(|digest| (kind, digest)))
    }

    fn set(&mut self, kind: HashKind, digest: String) {
        let field = match kind {
            HashKind::Md5 => &mut self.md5,
            HashKind::Sha1 => &mut self.sha1,
            HashKind::Sha256 => &mut self.sha256,
            HashKind::Blake3 => &mut self.blake3,
        };
        *field = Some(digest);
    }
}

/// A computation of several hashes in threads, all fed the same data in the same order.
pub struct Hashing {
    choice: HashChoice,
    threads: Vec<Thread>,
    parts: PartHashes,
    pushed_bytes: AtomicU64,
}

/// How the SHA-256 of parts is made.
enum PartHashes {
    /// There are none.
    None,
    /// The only part is the whole, of this many bytes.
    Whole(u64),
    /// In a thread of their own.
    Apart(Parts),
}

struct Thread {
    kinds: HashChoice,
    queue: mpsc::Sender<Data>,
    handle: JoinHandle<Vec<(HashKind, String)>>,
}

impl Hashing {
    /// Starts the threads of the chosen hashes.
    pub fn start(choice: HashChoice) -> Result<Self> {
        Self::start_with_parts(choice, Vec::new())
    }

    /// The same, and computes the SHA-256 of parts of the data, which have these sizes in bytes and follow each other.
    pub fn start_with_parts(choice: HashChoice, sizes: Vec<u64>) -> Result<Self> {
        let (made, parts) = match sizes[..] {
            [] => (choice, PartHashes::None),
            // A hash of the whole is made beside MD5.
            [size] => (choice.with(HashKind::Sha256), PartHashes::Whole(size)),
            _ => (choice, PartHashes::Apart(Parts::start(sizes)?)),
        };
        let threads = start_all(hashers(made, Md5Sha::new()))?;
        Ok(Self { choice, threads, parts, pushed_bytes: AtomicU64::new(0) })
    }

    /// Queues the next data for every hash; waits while one of them is too far behind.
    pub async fn push(&self, data: &Data) -> Result<()> {
        for thread in &self.threads {
            thread.queue.send(data.clone()).await.map_err(|_| died(thread.kinds))?;
        }
        if let PartHashes::Apart(parts) = &self.parts {
            parts.push(data).await?;
        }
        self.pushed_bytes.fetch_add(data.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Waits for the threads to see the end of the data, and collects their digests.
    pub async fn finish(self) -> Result<Hashes> {
        self.finish_with_parts().await.map(|(hashes, _)| hashes)
    }

    /// The same, with the SHA-256 of each part that was seen as a whole, in order.
    pub async fn finish_with_parts(self) -> Result<(Hashes, Vec<String>)> {
        let mut hashes = joined(self.threads).await?;
        let pushed_bytes = self.pushed_bytes.into_inner();
        let parts = match self.parts {
            PartHashes::None => Vec::new(),
            PartHashes::Whole(size) if size == pushed_bytes => hashes.sha256.iter().cloned().collect(),
            PartHashes::Whole(_) => Vec::new(),
            PartHashes::Apart(parts) => parts.finish().await?,
        };
        if !self.choice.has(HashKind::Sha256) {
            hashes.sha256 = None;
        }
        Ok((hashes, parts))
    }
}

fn start_all(hashers: Vec<(HashChoice, Hasher)>) -> Result<Vec<Thread>> {
    hashers.into_iter().map(|(kinds, hasher)| Thread::start(kinds, hasher)).collect()
}

/// Waits for the threads, and returns their digests.
async fn joined(threads: Vec<Thread>) -> Result<Hashes> {
    let (queues, threads): (Vec<_>, Vec<_>) =
        threads.into_iter().map(|thread| (thread.queue, (thread.kinds, thread.handle))).unzip();
    drop(queues);
    let join = || -> Result<Hashes> {
        threads.into_iter().try_fold(Hashes::default(), |mut hashes, (kinds, handle)| {
            let digests = handle.join().map_err(|_| died(kinds))?;
            let made = digests.into_iter().filter(|(kind, _)| kinds.has(*kind));
            made.for_each(|(kind, digest)| hashes.set(kind, digest));
            Ok(hashes)
        })
    };
    let joined = tokio::task::spawn_blocking(join).await;
    joined.map_err(|error| Error::failed(format!("hashing: {error}")))?
}

fn died(kinds: HashChoice) -> Error {
    Error::failed(format!("the {kinds} thread ended before its work was done; this is a bug, please report it"))
}

impl Thread {
    fn start(kinds: HashChoice, mut hasher: Hasher) -> Result<Self> {
        let (queue, mut pieces) = mpsc::channel::<Data>(QUEUE_MAX);
        let work = move || {
            while let Some(piece) = pieces.blocking_recv() {
                piece.runs().for_each(|bytes| hasher.feed(bytes));
            }
            hasher.digests()
        };
        let handle = std::thread::Builder::new()
            .name(format!("hash-{kinds}"))
            .spawn(work)
            .map_err(|error| Error::io("starting a hashing thread", &error))?;
        Ok(Self { kinds, queue, handle })
    }
}

/// Returns what each thread computes, and its state before the first byte. With `md5_sha`, SHA-1 and SHA-256 are made beside
/// MD5, where they take no time of their own.
fn hashers(choice: HashChoice, md5_sha: Option<Md5Sha>) -> Vec<(HashChoice, Hasher)> {
    let md5 = HashChoice::NONE.with(HashKind::Md5);
    let beside = choice & md5.with(HashKind::Sha1).with(HashKind::Sha256);
    let together = md5_sha.filter(|_| beside.has(HashKind::Md5) && beside != md5);
    let alone = choice.kinds().filter(|kind| together.is_none() || !beside.has(*kind));
    let mut hashers: Vec<_> = alone.map(|kind| (HashChoice::NONE.with(kind), Hasher::new(kind))).collect();
    hashers.extend(together.map(|state| (beside, Hasher::Md5Sha(Box::new(state)))));
    hashers
}

/// The state of a thread.
enum Hasher {
    Md5(Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Blake3(Box<blake3::Hasher>),
    /// Those three, whichever of them are chosen.
    Md5Sha(Box<Md5Sha>),
}

impl Hasher {
    fn new(kind: HashKind) -> Self {
        match kind {
            HashKind::Md5 => Self::Md5(Md5::new()),
            HashKind::Sha1 => Self::Sha1(sha1::Sha1::new()),
            HashKind::Sha256 => Self::Sha256(sha2::Sha256::new()),
            HashKind::Blake3 => Self::Blake3(Box::default()),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Md5Sha(hasher) => hasher.update(bytes),
        }
    }

    fn digests(self) -> Vec<(HashKind, String)> {
        match self {
            Self::Md5(hasher) => vec![(HashKind::Md5, hex(&hasher.finalize()))],
            Self::Sha1(hasher) => vec![(HashKind::Sha1, hex(&hasher.finalize()))],
            Self::Sha256(hasher) => vec![(HashKind::Sha256, hex(&hasher.finalize()))],
            Self::Blake3(hasher) => vec![(HashKind::Blake3, hex(hasher.finalize().as_bytes()))],
            Self::Md5Sha(hasher) => {
                let digests = hasher.finalize();
                vec![
                    (HashKind::Md5, hex(&digests.md5)),
                    (HashKind::Sha1, hex(&digests.sha1)),
                    (HashKind::Sha256, hex(&digests.sha256)),
                ]
            }
        }
    }
}

/// Returns bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the bytes that `text` shows in hexadecimal; `None` if it shows none.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok().filter(|pair| is_hex(pair, 2)));
    digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Whether `text` consists of `digits` lower-case hexadecimal digits.
pub fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hashes_equal_those_of_other_implementations() {
        let hashing = Hashing::start(HashChoice::ALL).unwrap();
        for piece in [&b"a"[..], b"b", b"c"] {
            hashing.push(&piece.to_vec().into()).await.unwrap();
        }
        let hashes = hashing.finish().await.unwrap();
        assert_eq!(hashes.md5.as_deref(), Some("900150983cd24fb0d6963f7d28e17f72"));
        assert_eq!(hashes.sha1.as_deref(), Some("a9993e364706816aba3e25717850c26c9cd0d89d"));
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hashes.sha256.as_deref(), Some(sha256));
        let blake3 = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
        assert_eq!(hashes.blake3.as_deref(), Some(blake3));
    }

    /// The hashes of a content in pieces, with MD5 and SHA together or in threads of their own.
    async fn hashes_of(choice: HashChoice, md5_sha: Option<Md5Sha>, content: &[u8]) -> Hashes {
        let threads = start_all(hashers(choice, md5_sha)).unwrap();
        for piece in content.chunks(70_001) {
            for thread in &threads {
                thread.queue.send(piece.to_vec().into()).await.unwrap();
            }
        }
        joined(threads).await.unwrap()
    }

    #[tokio::test]
    async fn every_choice_has_its_hashes_and_no_other_together_and_apart() {
        let content: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let all = Hashes {
            md5: Some(hex(&md5::Md5::digest(&content))),
            sha1: Some(hex(&sha1::Sha1::digest(&content))),
            sha256: Some(hex(&sha2::Sha256::digest(&content))),
            blake3: Some(hex(blake3::hash(&content).as_bytes())),
        };
        for chosen in 0..16 {
            let choice = HashChoice { chosen: std::array::from_fn(|kind| chosen >> kind & 1 == 1) };
            let expected = all.iter().filter(|(kind, _)| choice.has(*kind)).fold(
                Hashes::default(),
                |mut hashes, (kind, digest)| {
                    hashes.set(kind, digest.to_owned());
                    hashes
                },
            );
            assert_eq!(hashes_of(choice, None, &content).await, expected, "{choice}, apart");
            assert_eq!(hashes_of(choice, Md5Sha::new(), &content).await, expected, "{choice}, together");
        }
    }

    #[test]
    fn sha_is_made_beside_md5_where_the_processor_can_and_never_without_it() {
        let Some(state) = Md5Sha::new() else { return };
        let threads = |text: &str, md5_sha| -> Vec<String> {
            hashers(text.parse().unwrap(), md5_sha).into_iter().map(|(kinds, _)| kinds.to_string()).collect()
        };
        assert_eq!(threads("all", Some(state.clone())), ["blake3", "md5,sha1,sha256"]);
        assert_eq!(threads("md5,sha256", Some(state.clone())), ["md5,sha256"]);
        assert_eq!(threads("sha1,sha256", Some(state.clone())), ["sha1", "sha256"]);
        assert_eq!(threads("md5,blake3", Some(state)), ["md5", "blake3"]);
        assert_eq!(threads("all", None), ["md5", "sha1", "sha256", "blake3"]);
    }

    #[tokio::test]
    async fn a_part_that_is_the_whole_has_its_hash_and_the_hashes_are_those_chosen() {
        let content = vec![7; 200_001];
        let sha256 = hex(&sha2::Sha256::digest(&content));
        for (choice, size, has_part) in [
            ("md5", 200_001, true),
            ("none", 200_001, true),
            ("all", 200_001, true),
            ("md5", 200_002, false),
            ("sha256", 200_000, false),
        ] {
            let choice: HashChoice = choice.parse().unwrap();
            let hashing = Hashing::start_with_parts(choice, vec![size]).unwrap();
            for piece in content.chunks(70_001) {
                hashing.push(&piece.to_vec().into()).await.unwrap();
            }
            let (hashes, parts) = hashing.finish_with_parts().await.unwrap();
            assert_eq!(hashes.choice(), choice);
            assert_eq!(parts, if has_part { vec![sha256.clone()] } else { Vec::new() }, "{choice}, {size}");
        }
    }

    #[tokio::test]
    async fn runs_of_zeros_hash_like_zero_bytes() {
        let choice = HashChoice::NONE.with(HashKind::Sha256);
        let (run, bytes) = (Hashing::start(choice).unwrap(), Hashing::start(choice).unwrap());
        run.push(&Data::zeros(200_001)).await.unwrap();
        bytes.push(&vec![0; 200_001].into()).await.unwrap();
        assert_eq!(run.finish().await.unwrap(), bytes.finish().await.unwrap());
    }

    #[test]
    fn a_printed_choice_parses_to_itself() {
        for text in ["none", "md5", "md5,sha256", "md5,sha1,sha256,blake3"] {
            assert_eq!(text.parse::<HashChoice>().unwrap().to_string(), text);
        }
        assert_eq!("all".parse::<HashChoice>().unwrap(), HashChoice::ALL);
        for text in ["", "md4", "md5,,sha1", "All"] {
            assert_eq!(text.parse::<HashChoice>().unwrap_err().exit_code(), 2, "{text}");
        }
    }
}
