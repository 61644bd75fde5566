use super::*;
use crate::file::tests::example;
use crate::file::{DriveFile, MayDiffer};
use crate::fill::FillObserver;
use cheetah_device::Coverage;
use cheetah_device::copy_on_read::{CopyRecord as _, GRAIN};
use cheetah_device::coverage::State as Covered;
use cheetah_device::memory::Memory;
use cheetah_image::identity::Difference;
use cheetah_image::{HashChoice, Kind, ServedBy, Source};
use futures::FutureExt as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const URI: &str = "nbd://h";
const PATIENCE: Duration = Duration::from_secs(10);

/// A source and its server.
struct Server {
    identity: Mutex<Identity>,
    content: Mutex<Vec<u8>>,
    /// How often it was opened.
    opened: AtomicUsize,
    /// The number of further attempts to open it that fail.
    refuses: AtomicUsize,
    /// The number of reads, each time it is opened, after which the link is lost.
    reads: AtomicU64,
    events: Mutex<Vec<FillEvent>>,
}

impl Server {
    fn new(content: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            identity: Mutex::new(Identity::new(Kind::Nbd, URI, content.len() as u64)),
            content: Mutex::new(content),
            opened: AtomicUsize::new(0),
            refuses: AtomicUsize::new(0),
            reads: AtomicU64::new(u64::MAX),
            events: Mutex::default(),
        })
    }

    /// Changes the instance of the agent that serves it.
    fn instance(&self, instance: &str) {
        let (path, instance) = (Some("/dev/sda".to_owned()), Some(instance.to_owned()));
        self.identity.lock().server = Some(ServedBy { path, instance, ..ServedBy::default() });
    }

    fn opener(self: &Arc<Self>) -> OpenSource {
        let server = self.clone();
        Arc::new(move |_| {
            server.opened.fetch_add(1, Ordering::Relaxed);
            let refuses = server.refuses.load(Ordering::Relaxed);
            server.refuses.store(refuses.saturating_sub(1), Ordering::Relaxed);
            let memory = Memory::new(server.content.lock().clone());
            let device = Arc::new(Link { memory, reads_left: AtomicU64::new(server.reads.load(Ordering::Relaxed)) });
            let source = Source::new(device, server.identity.lock().clone(), "disk".into());
            async move { if refuses > 0 { Err(Error::failed("connection refused")) } else { Ok(source.into()) } }
                .boxed()
        })
    }

    /// The record of a drive that is filled from it, with the first `read` grains already copied.
    async fn record(&self, dir: &tempfile::TempDir, read: u64) -> Arc<FillRecord> {
        let identity = self.identity.lock().clone();
        let mut file = DriveFile { path: dir.path().join("case.drive"), size: identity.size, ..example() };
        file.sets.truncate(1);
        file.sets[0].nodes.truncate(1);
        (file.sets[0].size, file.sets[0].nodes[0].size) = (identity.size, identity.size);
        crate::fill::begin(&mut file, URI, &identity, HashChoice::NONE).unwrap();
        let record = Arc::new(FillRecord::open(&file, Coverage::new(identity.size), Reporter::default()).unwrap());
        let range = ByteRange::new(0, (read * GRAIN).min(identity.size));
        let mut coverage = Coverage::new(identity.size);
        coverage.set(range, Covered::Read);
        record.note_sent(range);
        record.passed(range, &Data::from(self.content.lock().clone()).slice(0, range.len));
        record.record(coverage).await.unwrap();
        record
    }

    fn source(self: &Arc<Self>, record: &Arc<FillRecord>) -> ReopeningSource {
        let reporter = Reporter::new(Some(Arc::new(Events(self.clone()))));
        ReopeningSource::new(self.opener(), record.clone(), reporter, PATIENCE)
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    /// How the source was recognised each time it came back.
    fn comparisons(&self) -> Vec<Comparison> {
        let events = self.events.lock();
        let back = events.iter().filter_map(|event| match event {
            FillEvent::Back { source } => Some(source.opening.comparison.clone()),
            _ => None,
        });
        back.collect()
    }
}

struct Events(Arc<Server>);

impl FillObserver for Events {
    fn vouch(&self, _read: u64, _digest: String) -> Result<()> {
        Ok(())
    }

    fn has_vouched(&self, _digest: &str) -> Result<bool> {
        Ok(true)
    }

    fn observe(&self, event: FillEvent) -> Result<()> {
        self.0.events.lock().push(event);
        Ok(())
    }
}

struct Link {
    memory: Memory,
    reads_left: AtomicU64,
}

impl Device for Link {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let left = self.reads_left.load(Ordering::Relaxed);
        self.reads_left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left > 0 {
            return self.memory.read(range);
        }
        Io::fail(DeviceError::Lost { device: "disk".into(), range, why: "pulled".into() })
    }
}

fn content(grains: u64) -> Vec<u8> {
    (0..grains * GRAIN).map(|at| (at / 64 % 251) as u8).collect()
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_until_a_lost_source_is_back() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(4)));
    let record = server.record(&dir, 2).await;
    let source = server.source(&record);
    source.connect(false).await.unwrap();
    // The link is lost at once, and is refused three times.
    source.inner.state.lock().open = Some(Arc::new(Link { memory: Memory::new(vec![]), reads_left: 0.into() }));
    server.refuses.store(3, Ordering::Relaxed);
    let read = source.read(ByteRange::new(3 * GRAIN, 10)).await.unwrap();
    assert!(read == content(4)[3 * GRAIN as usize..][..10]);
    assert_eq!(server.opened(), 5);
    let expected = Comparison::Samples { compared_bytes: 2 * GRAIN, of_bytes: 2 * GRAIN, differ_bytes_max: 0 };
    assert_eq!(server.comparisons(), [expected]);
}

#[tokio::test(start_paused = true)]
async fn reads_of_a_source_that_stays_away_fail_after_the_timeout_and_then_at_once() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(4)));
    let record = server.record(&dir, 2).await;
    let source = server.source(&record);
    server.reads.store(2, Ordering::Relaxed);
    source.connect(false).await.unwrap();
    server.refuses.store(usize::MAX, Ordering::Relaxed);
    let (begun, range) = (Instant::now(), ByteRange::new(3 * GRAIN, 10));
    let error = source.read(range).await.unwrap_err();
    assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
    assert!(begun.elapsed() >= PATIENCE && begun.elapsed() < PATIENCE * 2, "{:?}", begun.elapsed());
    let (again, opened) = (Instant::now(), server.opened());
    assert!(source.read(range).await.is_err() && source.read(range).await.is_err());
    assert_eq!(again.elapsed(), Duration::ZERO);
    assert!(server.opened() <= opened + 1, "an attempt that failed just now is not repeated");
    server.refuses.store(0, Ordering::Relaxed);
    server.reads.store(100, Ordering::Relaxed);
    tokio::time::advance(ATTEMPT_HOLDS).await;
    assert!(source.read(range).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_another_one_fails_reads_at_once() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(4)));
    let record = server.record(&dir, 2).await;
    let source = server.source(&record);
    server.reads.store(2, Ordering::Relaxed);
    source.connect(false).await.unwrap();
    server.reads.store(100, Ordering::Relaxed);
    server.identity.lock().size += 512;
    let (begun, range) = (Instant::now(), ByteRange::new(3 * GRAIN, 10));
    let refused =
        |how| DeviceError::Lost { device: source.inner.name.clone(), range, why: changed(URI, how).to_string().into() };
    let (then, now) = ("262144".to_owned(), "262656".to_owned());
    let larger = Change::Identity(Difference { what: "size", then, now, is_final: true });
    assert_eq!(source.read(range).await.unwrap_err(), refused(larger));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(server.events.lock().iter().any(|event| matches!(event, FillEvent::Changed { .. })));

    // Equal in all known properties, but not in content.
    server.identity.lock().size -= 512;
    server.content.lock()[4711] ^= 1;
    tokio::time::advance(ATTEMPT_HOLDS).await;
    assert_eq!(source.read(range).await.unwrap_err(), refused(Change::Content(ByteRange::new(0, GRAIN))));
    assert_eq!(server.source(&record).connect(true).await.unwrap_err().exit_code(), 3);
    server.content.lock()[4711] ^= 1;
    tokio::time::advance(ATTEMPT_HOLDS).await;
    assert!(source.read(range).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_sample_of_a_large_part_leaves_a_bound_in_the_drive_file() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(300)));
    let record = server.record(&dir, 256).await;
    server.source(&record).connect(false).await.unwrap();
    let saved = DriveFile::load(&dir.path().join("case.drive")).unwrap();
    let image = saved.image.clone().unwrap();
    // 64 of 256 grains, and 99.9 %.
    assert!((15..30).contains(&(image.differ_bytes_max / GRAIN)), "{image:?}");
    assert_eq!(image.note(), Some(MayDiffer { bytes_max: image.differ_bytes_max }));
    assert_eq!(
        MayDiffer { bytes_max: 66 << 20 }.to_string(),
        "the source was opened again while it was read; a sample of what it had sent before was compared, and no difference \
         was found; had more than 66MiB of that changed, a difference would have been found with 99.9 % probability"
    );
    assert_eq!(record.file(), saved);

    // If everything in a source is compared, no byte may differ.
    let opening = Opening {
        at_s: 0,
        at: 0,
        cause: Cause::Lost,
        instance: None,
        write_protected: None,
        vouched: vec![],
        comparison: Comparison::Digests { compared_bytes: 256 * GRAIN, unreadable_bytes: 0 },
        disks: vec![],
    };
    record.opened(&Opening { comparison: Comparison::SameInstance, ..opening.clone() }).unwrap();
    assert_eq!(record.file(), saved);
    record.opened(&opening).unwrap();
    assert_eq!(DriveFile::load(&saved.path).unwrap().image.unwrap().note(), None);
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_recognised_by_its_process_and_another_only_by_digests() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(4)));
    server.instance("1");
    let record = server.record(&dir, 2).await;
    // A new comparison would fail: nothing can be read.
    server.reads.store(0, Ordering::Relaxed);
    let found = server.source(&record).connect(false).await.unwrap().unwrap();
    assert_eq!(found.opening.comparison, Comparison::SameInstance);
    server.reads.store(100, Ordering::Relaxed);
    server.instance("2");
    let refusal = server.source(&record).connect(true).await.unwrap_err();
    assert_eq!(refusal.cause(), Some(&Change::OtherProcess), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn bytes_that_came_without_a_digest_count_as_different() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(4)));
    let record = server.record(&dir, 2).await;
    record.note_sent(ByteRange::new(3 * GRAIN, 512));
    let found = server.source(&record).connect(false).await.unwrap().unwrap();
    let (compared_bytes, of_bytes) = (2 * GRAIN, 2 * GRAIN + 512);
    let expected = Comparison::Samples { compared_bytes, of_bytes, differ_bytes_max: 512 };
    assert_eq!(found.opening.comparison, expected);
}
