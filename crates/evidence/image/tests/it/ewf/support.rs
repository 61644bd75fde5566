//! Test evidence, images of it made by libewf's programs, and comparison.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cheetah_device::{ByteRange, Device};
use cheetah_error::{Error, Result};
use cheetah_image::ewf::{BadSegment, Ewf};

use crate::need;

/// Deterministic pseudo-random numbers.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A small disk: text, zeros, noise and a pattern in turns of 48 KiB, so that most chunks contain two of them.
pub fn disk(len: usize) -> Vec<u8> {
    let mut noise = Noise(7);
    let mut disk = Vec::with_capacity(len + (48 << 10));
    for turn in 0.. {
        if disk.len() >= len {
            break;
        }
        let end = disk.len() + (48 << 10);
        while disk.len() < end {
            match turn % 5 {
                0 => disk.extend_from_slice(format!("entry {} of a log\n", noise.below(100_000)).as_bytes()),
                1 => disk.extend_from_slice(&noise.next().to_le_bytes()),
                2 | 3 => disk.extend_from_slice(&[0; 64]),
                _ => disk.extend_from_slice(b"PATTERN!"),
            }
        }
    }
    disk.truncate(len);
    disk
}

/// A folder with a raw image in it.
pub struct Desk {
    pub dir: tempfile::TempDir,
    pub raw: Vec<u8>,
}

impl Desk {
    pub fn new(len: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let raw = disk(len);
        std::fs::write(dir.path().join("source.raw"), &raw).unwrap();
        Self { dir, raw }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes an image with libewf's program, and returns the path of its first segment.
    pub fn acquire(&self, name: &str, args: &[&str]) -> PathBuf {
        let target = self.path(name);
        let mut command = Command::new(need::find("ewfacquire").unwrap());
        command.args(["-q", "-u", "-t"]).arg(&target).args(args).arg(self.path("source.raw"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        first_segment(&target)
    }
}

/// The first segment of the image that was made under the name `target`.
pub fn first_segment(target: &Path) -> PathBuf {
    let candidates = ["E01", "e01", "s01"].map(|extension| target.with_extension(extension));
    candidates.into_iter().find(|path| path.exists()).unwrap()
}

/// A runtime like that of the program.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// All bytes of a device, read in requests of `step` bytes, eight at a time.
pub fn read_all(device: &dyn Device, step: u64) -> cheetah_device::Result<Vec<u8>> {
    use futures::{StreamExt as _, TryStreamExt as _, stream};
    let size = device.geometry().size;
    let pieces: Vec<_> = ByteRange::new(0, size).split_at_multiples(step).collect();
    runtime().block_on(async {
        let reads = stream::iter(pieces.into_iter().map(|piece| device.read(piece))).buffered(8);
        let all = reads.try_fold(Vec::new(), |mut all, data| async move {
            all.extend_from_slice(&data.into_bytes());
            Ok(all)
        });
        all.await
    })
}

/// Reads one range.
pub fn read(device: &dyn Device, offset: u64, len: u64) -> cheetah_device::Result<Vec<u8>> {
    runtime().block_on(device.read(ByteRange::new(offset, len))).map(|data| data.into_bytes().to_vec())
}

/// Asserts that the image's content is `raw`, with requests of every size.
pub fn compare(path: &Path, raw: &[u8]) -> Ewf {
    let image = Ewf::open(path).unwrap();
    assert_eq!(image.geometry().size, raw.len() as u64, "{}", path.display());
    assert!(!image.geometry().writable);
    for step in [1 << 20, 77_777] {
        let image = Ewf::open(path).unwrap();
        assert!(read_all(&image, step).unwrap() == raw, "{} read in steps of {step}", path.display());
    }
    let runtime = runtime();
    let mut noise = Noise(99);
    for _ in 0..200 {
        let offset = noise.below(raw.len() as u64);
        let len = noise.below(100_000).min(raw.len() as u64 - offset);
        let data = runtime.block_on(image.read(ByteRange::new(offset, len))).unwrap();
        assert!(data == raw[offset as usize..(offset + len) as usize], "{} at {offset}+{len}", path.display());
    }
    image
}

/// All bytes of an image in memory, chunk by chunk.
pub fn read_memory(segments: Vec<Vec<u8>>) -> Result<Vec<u8>> {
    let image = Ewf::from_memory(segments)?;
    let mut all = Vec::new();
    for piece in ByteRange::new(0, image.info().size).split_at_multiples(image.info().chunk_size.into()) {
        let data = futures::executor::block_on(image.read(piece)).map_err(Error::device("reading"))?;
        all.extend_from_slice(&data.into_bytes());
    }
    Ok(all)
}

/// Returns the error of opening.
pub fn refusal(opened: Result<Ewf>) -> String {
    opened.err().expect("opening should have failed").to_string()
}

/// The segment for which an image is not opened.
pub fn bad_segment(opened: Result<Ewf>) -> BadSegment {
    let error = opened.err().expect("opening should have failed");
    error.cause::<BadSegment>().cloned().unwrap_or_else(|| panic!("no segment is named: {error}"))
}
