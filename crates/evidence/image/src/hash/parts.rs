//! Hashes of the parts of an image that several files hold, made from its content in one pass.

use std::thread::JoinHandle;

use cheetah_device::Data;
use cheetah_error::{Error, Result};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::{QUEUE_MAX, hex};

/// The SHA-256 of each part of a content, in a thread of its own.
pub(super) struct Parts {
    queue: mpsc::Sender<Data>,
    handle: JoinHandle<Vec<String>>,
}

impl Parts {
    /// Starts with the sizes of the parts in bytes, in order.
    pub fn start(sizes: Vec<u64>) -> Result<Self> {
        let (queue, mut pieces) = mpsc::channel::<Data>(QUEUE_MAX);
        let work = move || {
            let mut cut = Cut { sizes: sizes.into_iter(), left: 0, hash: None, done: Vec::new() };
            cut.next_part();
            while let Some(piece) = pieces.blocking_recv() {
                piece.runs().for_each(|bytes| cut.feed(bytes));
            }
            cut.done
        };
        let spawned = std::thread::Builder::new().name("hash-parts".into()).spawn(work);
        Ok(Self { queue, handle: spawned.map_err(|error| Error::io("starting a hashing thread", &error))? })
    }

    /// Queues the next data.
    pub async fn push(&self, data: &Data) -> Result<()> {
        self.queue.send(data.clone()).await.map_err(|_| died())
    }

    /// Waits for the end, and returns the hashes of the parts that were fed as a whole, in order.
    pub async fn finish(self) -> Result<Vec<String>> {
        let Self { queue, handle } = self;
        drop(queue);
        let joined = tokio::task::spawn_blocking(|| handle.join()).await;
        joined.map_err(|error| Error::failed(format!("hashing: {error}")))?.map_err(|_| died())
    }
}

fn died() -> Error {
    Error::failed("the thread that hashes parts ended before its work was done; this is a bug, please report it")
}

/// The state of the thread.
struct Cut {
    /// The sizes of the parts behind the current one.
    sizes: std::vec::IntoIter<u64>,
    /// The bytes left of the current part.
    left: u64,
    /// Its hash; `None` behind the last part.
    hash: Option<Sha256>,
    done: Vec<String>,
}

impl Cut {
    /// Goes on to the next part, past empty ones.
    fn next_part(&mut self) {
        self.hash = None;
        for size in self.sizes.by_ref() {
            if size > 0 {
                (self.left, self.hash) = (size, Some(Sha256::new()));
                return;
            }
            self.done.push(hex(&Sha256::digest([])));
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(hash) = self.hash.as_mut().filter(|_| !bytes.is_empty()) {
            let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            let (here, rest) = bytes.split_at(len);
            hash.update(here);
            (bytes, self.left) = (rest, self.left - len as u64);
            if self.left == 0 {
                self.done.extend(self.hash.take().map(|hash| hex(&hash.finalize())));
                self.next_part();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_part_has_its_own_hash_wherever_the_data_is_cut() {
        let content: Vec<u8> = (0..100_000u32).map(|at| (at * 31 % 251) as u8).collect();
        let sizes = [0, 1, 40_000, 0, 59_999, 0];
        let mut expected = Vec::new();
        let mut at = 0;
        for size in sizes {
            expected.push(hex(&Sha256::digest(&content[at..at + size as usize])));
            at += size as usize;
        }
        for piece in [1, 997, 40_001, 100_000] {
            let parts = Parts::start(sizes.to_vec()).unwrap();
            for piece in content.chunks(piece) {
                parts.push(&piece.to_vec().into()).await.unwrap();
            }
            assert_eq!(parts.finish().await.unwrap(), expected, "{piece}");
        }
    }
}
