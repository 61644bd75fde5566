//! How far a load is: its process says so at the drive's nodes, where any machine of the room reads it.

use std::time::Duration;

use cheetah_kit::clock::now_ms;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::file::SetNode;
use crate::lease::holder;
use crate::node::note::{read, store};
use crate::session::Session;

/// The name of the note.
const NOTE: &str = "load";
/// The pause between two notes.
const TELL: Duration = Duration::from_secs(2);

/// How far a load is, as its process said last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LoadProgress {
    /// When it was said, in milliseconds since 1970.
    pub at_ms: u64,
    /// Bytes of the image that were sent to the nodes. Those that the source could not read are among them.
    pub done_bytes: u64,
    /// Bytes of the image.
    pub total_bytes: u64,
    /// Bytes that the source could not read; `None` if an earlier process began the load, and only that one knows.
    pub unreadable_bytes: Option<u64>,
    /// The ranges that they are in.
    pub unreadable_ranges: Option<usize>,
    /// The process.
    pub writer: String,
}

impl LoadProgress {
    /// That of this process, which begins to load an image of this size.
    pub(super) fn begun(total_bytes: u64) -> Self {
        let writer = holder();
        Self { total_bytes, unreadable_bytes: Some(0), unreadable_ranges: Some(0), writer, ..Self::default() }
    }

    /// That of this process, which goes on at an offset with a load that another process began.
    pub(super) fn resumed(total_bytes: u64, at: u64) -> Self {
        Self { total_bytes, done_bytes: at, writer: holder(), ..Self::default() }
    }

    /// The last word of the process that holds the lease, or, if none does, of the process that ended. `None` if it is of another
    /// load.
    pub(crate) async fn latest(
        nodes: &[SetNode],
        (total_bytes, writer): (u64, Option<&str>),
        session: &Session,
    ) -> Option<Self> {
        let found = read::<Self>(nodes, NOTE, session).await;
        Self::choose(found, total_bytes, writer)
    }

    fn choose(found: Vec<Self>, total_bytes: u64, writer: Option<&str>) -> Option<Self> {
        let is_of_it = |told: &Self| {
            let is_possible = told.done_bytes.max(told.unreadable_bytes.unwrap_or(0)) <= total_bytes;
            told.total_bytes == total_bytes && is_possible && writer.is_none_or(|writer| writer == told.writer)
        };
        found.into_iter().filter(is_of_it).max_by_key(|told| told.at_ms)
    }
}

/// Takes what a load has done so far, and passes it on to the nodes.
#[derive(Debug, Clone)]
pub struct Teller(watch::Sender<LoadProgress>);

impl Teller {
    /// Notes the bytes that were sent.
    pub fn done(&self, bytes: u64) {
        self.0.send_if_modified(|told| std::mem::replace(&mut told.done_bytes, bytes) != bytes);
    }

    /// Notes what this process could not read of the source: bytes, and the ranges that they are in.
    pub fn unreadable(&self, bytes: u64, ranges: usize) {
        self.0.send_if_modified(|told| {
            let is_all = told.unreadable_bytes.is_some();
            if is_all {
                (told.unreadable_bytes, told.unreadable_ranges) = (Some(bytes), Some(ranges));
            }
            is_all
        });
    }
}

/// Tells a drive's nodes how far a load is, while there is news.
#[derive(Debug)]
pub(super) struct Telling {
    teller: Teller,
    task: JoinHandle<()>,
    nodes: Vec<SetNode>,
    session: Session,
}

impl Telling {
    /// Begins to tell of a load, from here on.
    pub fn start(nodes: Vec<SetNode>, from: LoadProgress, session: Session) -> Self {
        let (teller, news) = watch::channel(from);
        let task = tokio::spawn(keep_telling(news, nodes.clone(), session.clone()));
        Self { teller: Teller(teller), task, nodes, session }
    }

    /// What the load tells its progress to.
    pub fn teller(&self) -> Teller {
        self.teller.clone()
    }

    /// Leaves the last word at the nodes: the load goes on no further.
    pub async fn end(mut self) {
        self.task.abort();
        // An older word must not follow.
        (&mut self.task).await.ok();
        let last = self.teller.0.borrow().clone();
        leave(last, &self.nodes, &self.session).await;
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_telling(mut news: watch::Receiver<LoadProgress>, nodes: Vec<SetNode>, session: Session) {
    loop {
        let now = news.borrow_and_update().clone();
        leave(now, &nodes, &session).await;
        sleep(TELL).await;
        if news.changed().await.is_err() {
            return;
        }
    }
}

/// Leaves it at every node that takes it. A load does not depend on that.
async fn leave(now: LoadProgress, nodes: &[SetNode], session: &Session) {
    store(nodes, (NOTE, &LoadProgress { at_ms: now_ms(), ..now }), session).await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(at_ms: u64, done_bytes: u64, writer: &str) -> LoadProgress {
        LoadProgress { at_ms, done_bytes, total_bytes: 100, writer: writer.into(), ..LoadProgress::default() }
    }

    #[test]
    fn the_latest_word_of_the_holder_of_the_lease_counts_and_that_of_another_load_does_not() {
        let found = || vec![told(3, 30, "a"), told(7, 70, "b"), told(5, 50, "a")];
        assert_eq!(LoadProgress::choose(found(), 100, Some("a")).unwrap().done_bytes, 50);
        assert_eq!(LoadProgress::choose(found(), 100, None).unwrap().done_bytes, 70);
        assert_eq!(LoadProgress::choose(found(), 100, Some("c")), None);
        assert_eq!(LoadProgress::choose(found(), 200, Some("a")), None, "an image of another size");
        assert_eq!(LoadProgress::choose(vec![told(1, 101, "a")], 100, None), None, "a node may say anything");
    }

    #[tokio::test]
    async fn progress_is_news_only_if_it_is_another_and_a_rest_does_not_count_what_was_unreadable_before() {
        let both = [(LoadProgress::begun(9000), (Some(512), Some(1))), (LoadProgress::resumed(9000, 0), (None, None))];
        for (from, expected) in both {
            let (send, mut news) = watch::channel(from);
            let teller = Teller(send);
            teller.done(0);
            assert!(!news.has_changed().unwrap());
            teller.done(4096);
            teller.unreadable(512, 1);
            let now = news.borrow_and_update().clone();
            assert_eq!((now.done_bytes, (now.unreadable_bytes, now.unreadable_ranges)), (4096, expected));
        }
    }
}
