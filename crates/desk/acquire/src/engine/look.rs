//! Looking for what is in doubt about a source while it is read.

use std::time::Duration;

use cheetah_image::Source;
use cheetah_source::{doubts, unexamined};
use tokio::task::JoinHandle;

/// A look for doubts about a source, in a task of its own.
pub struct Look {
    /// How long it may take; `None` if it is over.
    patience: Option<Duration>,
    task: Option<JoinHandle<Vec<String>>>,
    /// What was in doubt when the source was opened.
    notes: Vec<String>,
}

impl Look {
    /// A look that is to begin, and may take `patience`.
    pub const fn pending(patience: Duration) -> Self {
        Self { patience: Some(patience), task: None, notes: Vec::new() }
    }

    /// A look that is over.
    pub const fn done() -> Self {
        Self { patience: None, task: None, notes: Vec::new() }
    }

    /// Begins it, unless it is over.
    pub fn begin(&mut self, source: &Source) {
        let Some(patience) = self.patience else { return };
        self.give_up();
        let source = source.clone();
        self.notes.clone_from(&source.notes);
        self.task = Some(tokio::spawn(async move { doubts(&source, patience).await }));
    }

    /// Whether it has begun, and is not over.
    pub const fn is_going_on(&self) -> bool {
        self.task.is_some()
    }

    /// Waits for its end, and returns what is in doubt, a sentence each; forever if it has not begun. Cancel-safe.
    pub async fn over(&mut self) -> Vec<String> {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let found = task.await.unwrap_or_else(|_| {
            let failed = unexamined("the look at them failed");
            self.notes.iter().cloned().chain([failed]).collect()
        });
        *self = Self::done();
        found
    }

    /// Gives it up, because the source is lost. It may begin again.
    pub fn give_up(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cheetah_device::memory::Memory;
    use cheetah_device::{ByteRange, Data, Device, Geometry, Io};
    use cheetah_image::{Identity, Kind};

    use super::*;

    #[tokio::test]
    async fn a_look_that_was_given_up_begins_again_and_one_that_is_over_does_not() {
        let identity = Identity::new(Kind::Nbd, "nbd://host/", 512);
        let mut source = Source::new(Arc::new(Memory::new(vec![0; 512])), identity, "host".into());
        source.notes.push("a part may be missing".into());
        let mut look = Look::pending(Duration::from_secs(60));
        assert!(!look.is_going_on());
        look.begin(&source);
        look.give_up();
        assert!(!look.is_going_on());
        look.begin(&source);
        assert_eq!(look.over().await, ["a part may be missing"]);
        look.begin(&source);
        assert!(!look.is_going_on());
    }

    /// A device whose reads panic.
    struct Broken;

    impl Device for Broken {
        fn geometry(&self) -> Geometry {
            Geometry { size: 512, writable: false, block_preferred: 512 }
        }

        fn read(&self, _: ByteRange) -> Io<'_, Data> {
            panic!("a look that fails")
        }
    }

    #[tokio::test]
    async fn a_look_that_failed_is_a_doubt() {
        let mut source = Source::new(Arc::new(Broken), Identity::new(Kind::Nbd, "nbd://host/", 512), "host".into());
        source.notes.push("a part may be missing".into());
        let mut look = Look::pending(Duration::from_secs(60));
        look.begin(&source);
        let failed = "not all of its partition tables and file systems were examined for where they end: the look at them \
                      failed";
        assert_eq!(look.over().await, ["a part may be missing", failed]);
    }
}
