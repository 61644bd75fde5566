//! The task that follows the copy to its end.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use cheetah_device::DynDevice;
use cheetah_device::copy_on_read::CopyOnRead;
use cheetah_device::prefetch::Prefetch;
use cheetah_error::Result;
use tokio::sync::{oneshot, watch};

use super::FillStage;
use super::event::{FillEvent, Reporter};
use super::finish::{Finish, FinishedImage};
use super::record::FillRecord;

/// What follows the copy: it publishes the stage, and finishes the fill.
pub(super) struct Following {
    pub copy: Arc<CopyOnRead>,
    pub ahead: Option<Weak<Prefetch>>,
    pub drive: DynDevice,
    pub record: Arc<FillRecord>,
    pub stages: watch::Sender<FillStage>,
}

impl Following {
    /// Runs until the fill is over, or `stop` is dropped.
    pub(super) async fn run(self, reporter: Reporter, stop: oneshot::Receiver<Infallible>) {
        let finished = tokio::select! {
            biased;
            _ = stop => return,
            finished = self.finish() => match finished {
                Some(finished) => finished,
                None => return,
            },
        };
        let recorded = match finished {
            Ok(image) => image.record(&self.record, &reporter).await,
            Err(error) => Err(error),
        };
        self.stages.send_replace(match recorded {
            Ok(image) => FillStage::Complete(image),
            Err(error) => {
                reporter.report_or_warn(FillEvent::Failed { why: error.to_string() }).await;
                FillStage::Failed(error)
            }
        });
    }

    /// Waits for the copy to end, and reads it back. `None` if it was closed before its end.
    async fn finish(&self) -> Option<Result<FinishedImage>> {
        let mut progress = self.copy.progress();
        loop {
            let now = progress.borrow_and_update().clone();
            let done = now.is_done();
            self.stages.send_replace(FillStage::Copying(now));
            if done {
                break;
            }
            progress.changed().await.ok()?;
        }
        let forget = |range| {
            self.copy.forget(&[range]);
            // In this order, since prefetch reads from the copy.
            if let Some(ahead) = self.ahead.as_ref().and_then(Weak::upgrade) {
                ahead.forget(range);
            }
        };
        let (drive, coverage) = (self.drive.clone(), self.copy.coverage());
        let finish = Finish { drive, record: &self.record, coverage, forget: &forget };
        Some(finish.run(|progress| drop(self.stages.send_replace(FillStage::Checking(progress)))).await)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use cheetah_device::copy_on_read::{self, CopyOnReadConfig};
    use cheetah_device::coverage::State;
    use cheetah_device::memory::Memory;
    use cheetah_device::prefetch::PrefetchConfig;
    use cheetah_device::{ByteRange, Coverage, Data, Device, Error as DeviceError, Geometry, Io};
    use cheetah_error::Error;
    use cheetah_image::{HashChoice, Identity, Kind};
    use parking_lot::Mutex;
    use tokio::sync::mpsc;

    use super::super::{FillObserver, begin};
    use super::*;
    use crate::file::tests::example;
    use crate::file::{DriveFile, ImageState, coverage};

    const SIZE: u64 = 3 << 20;

    /// A source that can be disconnected.
    struct Removable(Memory, AtomicBool);

    impl Device for Removable {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            match self.1.load(Ordering::Relaxed) {
                false => self.0.read(range),
                true => Io::fail(DeviceError::Lost { device: "disk".into(), range, why: "removed".into() }),
            }
        }
    }

    /// A drive that has all of its source.
    struct Copied {
        _dir: tempfile::TempDir,
        file: DriveFile,
        content: Vec<u8>,
        source: Arc<Removable>,
        drive: Arc<Memory>,
        record: Arc<FillRecord>,
        copy: Arc<CopyOnRead>,
    }

    impl Copied {
        async fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let mut file = DriveFile { path: dir.path().join("case.drive"), ..example() };
            begin(&mut file, "nbd://h", &Identity::new(Kind::Nbd, "nbd://h", SIZE), HashChoice::NONE).unwrap();
            let content: Vec<u8> = (0..SIZE).map(|at| (at * 31 % 251) as u8).collect();
            let source = Arc::new(Removable(Memory::new(content.clone()), AtomicBool::new(false)));
            let drive = Arc::new(Memory::new(vec![0; SIZE as usize]));
            let record = Arc::new(FillRecord::open(&file, Coverage::new(SIZE), Reporter::default()).unwrap());
            let (config, coverage) = (CopyOnReadConfig::new("disk"), Coverage::new(SIZE));
            let copy = CopyOnRead::start(source.clone(), drive.clone(), coverage, record.clone(), config).unwrap();
            copy.progress().wait_for(copy_on_read::Progress::is_done).await.unwrap();
            Self { _dir: dir, file, content, source, drive, record, copy }
        }

        fn following(&self, ahead: Option<Weak<Prefetch>>) -> (Following, watch::Receiver<FillStage>) {
            let (stages, stage) = watch::channel(FillStage::Copying(self.copy.progress().borrow().clone()));
            let (copy, drive, record) = (self.copy.clone(), self.drive.clone(), self.record.clone());
            (Following { copy, ahead, drive, record, stages }, stage)
        }

        fn image_state(&self) -> ImageState {
            DriveFile::load(&self.file.path).unwrap().image.unwrap().state
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_chunk_that_differs_at_the_end_is_no_longer_served() {
        let copied = Copied::new().await;
        let Copied { file, content, source, drive, copy, .. } = &copied;
        let ahead = Prefetch::new(copy.clone(), PrefetchConfig::default());
        source.1.store(true, Ordering::Relaxed);
        let wrong = ByteRange::new(1 << 20, 1 << 20);
        drive.write(wrong.offset + 5, vec![0xff; 9].into(), false).await.unwrap();
        let (following, stage) = copied.following(Some(Arc::downgrade(&ahead)));
        let (_follow, stop) = oneshot::channel();
        following.run(Reporter::default(), stop).await;
        let FillStage::Failed(error) = stage.borrow().clone() else { panic!("{:?}", stage.borrow()) };
        assert!(error.is_evidence() && error.has_next(cheetah_error::next::Drive::FillAgain), "{error}");
        let recorded = coverage::load(file, SIZE).unwrap();
        assert!(recorded.in_state(State::Unread).eq([wrong]));

        assert!(ahead.read(ByteRange::new(wrong.end() - 1, 1)).await.is_err(), "the source is not there");
        assert!(ahead.read(ByteRange::new(wrong.end(), 1)).await.is_ok());
        source.1.store(false, Ordering::Relaxed);
        let read = ahead.read(wrong).await.unwrap();
        assert!(read == content[wrong.offset as usize..wrong.end() as usize], "it comes from the source again");
        copy.close().await.unwrap();
    }

    /// A log that is written while a test wants it to be.
    struct SlowLog {
        begun: mpsc::UnboundedSender<()>,
        go_on: Mutex<std::sync::mpsc::Receiver<Result<()>>>,
    }

    impl FillObserver for SlowLog {
        fn observe(&self, event: FillEvent) -> Result<()> {
            match event {
                FillEvent::Complete { .. } => {
                    self.begun.send(()).unwrap();
                    self.go_on.lock().recv().unwrap()
                }
                _ => Ok(()),
            }
        }

        fn vouch(&self, _read: u64, _digest: String) -> Result<()> {
            Ok(())
        }

        fn has_vouched(&self, _digest: &str) -> Result<bool> {
            Ok(true)
        }
    }

    #[tokio::test]
    async fn an_image_is_in_the_log_before_it_is_in_the_drive_file_and_a_stop_meanwhile_leaves_it_in_both() {
        for is_logged in [true, false] {
            let copied = Copied::new().await;
            let (begun, mut begins) = mpsc::unbounded_channel();
            let (answer, go_on) = std::sync::mpsc::channel();
            let reporter = Reporter::new(Some(Arc::new(SlowLog { begun, go_on: Mutex::new(go_on) })));
            let (following, stage) = copied.following(None);
            let (follow, stop) = oneshot::channel();
            let follower = tokio::spawn(following.run(reporter, stop));
            begins.recv().await.unwrap();
            assert_eq!(copied.image_state(), ImageState::Filling);
            drop(follow);
            answer.send(if is_logged { Ok(()) } else { Err(Error::failed("the disk is full")) }).unwrap();
            follower.await.unwrap();
            let expected = if is_logged { ImageState::Intact } else { ImageState::Filling };
            assert_eq!(copied.image_state(), expected);
            assert_eq!(matches!(&*stage.borrow(), FillStage::Complete(_)), is_logged);
            copied.copy.close().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_before_the_image_is_proven_leaves_the_drive_as_it_was() {
        let copied = Copied::new().await;
        let (following, _stage) = copied.following(None);
        let (follow, stop) = oneshot::channel();
        drop(follow);
        following.run(Reporter::default(), stop).await;
        assert_eq!(copied.image_state(), ImageState::Filling);
        copied.copy.close().await.unwrap();
    }
}
