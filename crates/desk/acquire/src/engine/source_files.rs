//! Hashes of the files that a source is read from, made beside the pass over its content.
//!
//! Where the bytes of the files, in order, are the content, each file is hashed as the content passes. The content of an E01, say, is
//! not that of its files: on this machine they are read a second time, in the order in which the pass reads them, so most of their
//! bytes come from the page cache. Behind a link, segments of an E01 are hashed as they are read ([`HashedFiles`]).

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cheetah_custody::FileRead;
use cheetah_device::ByteRange;
use cheetah_device::path_text::path_to_text;
use cheetah_device::supervise;
use cheetah_image::hash::hex;
use cheetah_image::{
    BadRange, Evidence, HashChoice, HashKind, HashedFiles, Hashes, Kind, NotHashed, Source, SourceFile, Watching,
    regular,
};
use sha2::{Digest as _, Sha256};
use tokio::task::JoinHandle;

/// The number of bytes read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Watches the files of a source, before the first byte of them is read.
pub async fn watch(source: &Source) -> Watching {
    let files = source.files.clone();
    supervise::spawn_blocking(move || Watching::start(&files)).await.unwrap_or_default()
}

/// Watches the files of a source, and of the disks that it lies on.
pub async fn watch_all(evidence: &Evidence) -> Vec<Watching> {
    let mut watching = vec![watch(&evidence.source).await];
    for disk in &evidence.disks {
        watching.push(watch(disk).await);
    }
    watching
}

/// The hashes, while they are made. Dropping it ends that.
pub struct SourceFiles {
    files: Vec<SourceFile>,
    known: Option<String>,
    /// Whether the bytes of the only file are the content.
    is_content: bool,
    /// Whether the files are behind a link.
    is_remote: bool,
    hashed: Option<Arc<HashedFiles>>,
    stop: Arc<AtomicBool>,
    job: Option<JoinHandle<Vec<FileRead>>>,
}

impl SourceFiles {
    /// Starts with the files of a source, unless their hashes follow from those of the content: `hashes` are made of it.
    pub fn start(source: &Source, hashes: HashChoice) -> Self {
        let identity = &source.identity;
        let is_content = is_one_file(identity.kind) && identity.unreadable.is_empty();
        let (files, known, stop) =
            (source.files.clone(), identity.compressed_sha256.clone(), Arc::new(AtomicBool::new(false)));
        let is_remote = is_remote(source);
        let is_parts = !Self::parts(source, hashes).is_empty();
        let is_made = is_remote || is_parts || is_content && makes_sha256(hashes) || files.is_empty();
        let job = (!is_made && known.is_none()).then(|| {
            let (files, stop) = (files.clone(), stop.clone());
            tokio::task::spawn_blocking(move || {
                files.iter().enumerate().map(|(index, file)| hash(file, index == 0, &stop)).collect()
            })
        });
        Self { files, known, is_content, is_remote, hashed: source.hashed.clone(), stop, job }
    }

    /// The sizes of the files that are to be hashed as the content passes: those of a raw image, in parts or, if the SHA-256 of
    /// the content is not made, in one file; otherwise none.
    pub fn parts(source: &Source, hashes: HashChoice) -> Vec<u64> {
        let sizes: Vec<_> = source.files.iter().map(|file| file.size).collect();
        let is_raw = match source.identity.kind {
            Kind::Split => true,
            kind => is_one_file(kind) && !makes_sha256(hashes),
        };
        let is_content = is_raw && sizes.iter().sum::<u64>() == source.identity.size;
        if is_content { sizes } else { Vec::new() }
    }

    /// The files with their hashes, unless a part of a file could not be read.
    fn of_parts(&self, parts: Vec<String>, bad: &[BadRange]) -> Vec<FileRead> {
        let mut at = 0;
        let read = |(file, sha256): (&SourceFile, String)| {
            let range = ByteRange::new(at, file.size);
            at = range.end();
            let is_whole = !bad.iter().any(|bad| bad.range().intersection(range).is_some_and(|both| !both.is_empty()));
            FileRead {
                file: path_to_text(&file.path).into_owned(),
                size: file.size,
                sha256: is_whole.then_some(sha256),
                why_not: (!is_whole).then(|| NotMade::NotAllRead.to_string()),
            }
        };
        self.files.iter().zip(parts).map(read).collect()
    }

    /// The files with their hashes, or with what kept them from being hashed.
    fn of_files(&self, hashed: Vec<Result<String, NotHashed>>) -> Vec<FileRead> {
        let read = |(file, hashed): (&SourceFile, Result<String, NotHashed>)| {
            let (sha256, why_not) =
                hashed.map_or_else(|why| (None, Some(why.to_string())), |sha256| (Some(sha256), None));
            FileRead { file: path_to_text(&file.path).into_owned(), size: file.size, sha256, why_not }
        };
        self.files.iter().zip(hashed).map(read).collect()
    }

    /// Waits for the hashes. `content` has those of the content, of which the ranges `bad` could not be read; `parts` has those of
    /// its [`parts`](Self::parts).
    pub async fn finish(mut self, content: &Hashes, parts: Vec<String>, bad: &[BadRange]) -> Vec<FileRead> {
        if !parts.is_empty() {
            return self.of_parts(parts, bad);
        }
        if let Some(job) = self.job.take() {
            return job.await.unwrap_or_default();
        }
        if let Some(hashed) = self.hashed.take() {
            return self.of_files(hashed.finish().await);
        }
        let sha256 = self.known.take().or_else(|| content.sha256.clone().filter(|_| self.is_content && bad.is_empty()));
        let why_not = sha256.is_none().then(|| match self.is_remote {
            true => NotMade::InPieces.to_string(),
            false => NotMade::NotAllRead.to_string(),
        });
        let read = |file: &SourceFile| FileRead {
            file: path_to_text(&file.path).into_owned(),
            size: file.size,
            sha256: sha256.clone(),
            why_not: why_not.clone(),
        };
        self.files.iter().map(read).collect()
    }
}

/// Why the hash of a file was not made.
#[derive(Debug, thiserror::Error)]
enum NotMade {
    #[error("it was stopped")]
    Stopped,
    #[error("its size changed while it was read")]
    SizeChanged,
    #[error("its bytes were not all read")]
    NotAllRead,
    #[error("it was read over a link, in pieces, as its content was needed, and not as a whole")]
    InPieces,
    #[error("{0}")]
    Read(#[from] std::io::Error),
}

/// Whether the content of a source of this kind is the bytes of one file.
fn is_one_file(kind: Kind) -> bool {
    matches!(kind, Kind::Raw | Kind::Http)
}

fn makes_sha256(hashes: HashChoice) -> bool {
    hashes.kinds().any(|kind| kind == HashKind::Sha256)
}

/// Whether the files of a source are behind a link.
fn is_remote(source: &Source) -> bool {
    source.files.iter().any(SourceFile::is_remote)
}

impl Drop for SourceFiles {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn hash(file: &SourceFile, is_named: bool, stop: &AtomicBool) -> FileRead {
    let (sha256, why_not) = match sha256(&file.path, file.size, is_named, stop) {
        Ok(sha256) => (Some(sha256), None),
        Err(error) => (None, Some(error.to_string())),
    };
    FileRead { file: path_to_text(&file.path).into_owned(), size: file.size, sha256, why_not }
}

fn sha256(path: &Path, size: u64, is_named: bool, stop: &AtomicBool) -> Result<String, NotMade> {
    let mut file = if is_named { regular::open_named(path) } else { regular::open_beside(path) }?;
    let (mut hash, mut piece, mut len) = (Sha256::new(), vec![0; PIECE_BYTES], 0);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(NotMade::Stopped);
        }
        match file.read(&mut piece)? {
            0 if len == size => return Ok(hex(&hash.finalize())),
            0 => return Err(NotMade::SizeChanged),
            read => {
                hash.update(&piece[..read]);
                len += read as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_device::memory::Memory;
    use cheetah_image::Identity;

    #[tokio::test]
    async fn each_file_of_a_set_has_its_own_hash_and_one_that_changed_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            SourceFile { path, size: content.len() as u64 }
        };
        let mut files = vec![file("d.001", "abc"), file("d.002", "")];
        files.push(SourceFile { size: 9, ..file("d.003", "cut") });
        std::os::unix::fs::symlink(dir.path().join("d.001"), dir.path().join("d.004")).unwrap();
        files.push(SourceFile { path: dir.path().join("d.004"), size: 3 });
        let source = |kind| {
            let identity = Identity::new(kind, "d.001", 3);
            Source::new(Arc::new(Memory::new(vec![0; 3])), identity, "d".into())
        };
        let read = SourceFiles::start(&source(Kind::Split).with_files(files), HashChoice::ALL);
        let read = read.finish(&Hashes::default(), Vec::new(), &[]).await;
        let hashes: Vec<_> = read.iter().map(|file| file.sha256.as_deref().map(|digest| &digest[..8])).collect();
        assert_eq!(hashes, [Some("ba7816bf"), Some("e3b0c442"), None, None]);
        assert_eq!(read[2].why_not, Some(NotMade::SizeChanged.to_string()));
        assert_eq!(read[3].why_not, Some(regular::NotAFile::Link.to_string()));
        // A raw image is its file.
        let content = Hashes { sha256: Some("00".into()), ..Hashes::default() };
        let raw = |bad: &'static [BadRange]| {
            let read = SourceFiles::start(&source(Kind::Raw).with_files(vec![file("r", "abc")]), HashChoice::ALL);
            let content = content.clone();
            async move { read.finish(&content, Vec::new(), bad).await.remove(0).sha256 }
        };
        let bad = BadRange { offset: 0, len: 1, why: "bad".into(), corrupt: false };
        let bad: &'static [BadRange] = Box::leak(Box::new([bad]));
        assert_eq!((raw(&[]).await.as_deref(), raw(bad).await), (Some("00"), None));
    }

    #[test]
    fn files_whose_bytes_are_the_content_are_hashed_with_it() {
        let source = |kind, sizes: &[u64]| {
            let identity = Identity::new(kind, "d", 4);
            let files = sizes.iter().map(|size| SourceFile { path: "d".into(), size: *size }).collect();
            Source::new(Arc::new(Memory::new(vec![0; 4])), identity, "d".into()).with_files(files)
        };
        let md5 = HashChoice::NONE.with(HashKind::Md5);
        let parts = |kind, sizes: &[u64], hashes| SourceFiles::parts(&source(kind, sizes), hashes);
        assert_eq!(parts(Kind::Raw, &[4], md5), [4]);
        assert_eq!(parts(Kind::Split, &[3, 1], HashChoice::ALL), [3, 1]);
        // The content's SHA-256 is that of the only file.
        assert!(parts(Kind::Raw, &[4], HashChoice::ALL).is_empty());
        // The content is not the bytes of the file.
        assert!(parts(Kind::E01, &[4], md5).is_empty());
        assert!(parts(Kind::Raw, &[5], md5).is_empty());
        // A device has no files.
        assert!(parts(Kind::Block, &[], md5).is_empty());
    }
}
