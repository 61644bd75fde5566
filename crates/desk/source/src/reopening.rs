//! A remote source whose server cannot prove that it is the same process: it is opened again when a connection is lost,
//! and read again only if its identity and a sample of the bytes read before are the same.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::reconnect::Losses;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error as DeviceError, Extent, Geometry, Io, try_io};
use cheetah_drive::digests::digest;
use cheetah_error::{Error, Result};
use cheetah_image::{Evidence, Identity};
use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::read_sample::ReadSample;

/// Opens the source.
pub(crate) type Open = Box<dyn Fn() -> BoxFuture<'static, Result<Evidence>> + Send + Sync>;

/// Pages compared at once.
const AT_ONCE: usize = 8;
/// The pause between attempts to open the source.
const RETRY_EVERY: Duration = Duration::from_millis(250);
/// For how long other reads that waited for a failed attempt fail with its error, without an attempt of their own.
const ATTEMPT_HOLDS: Duration = Duration::from_millis(500);

/// The source; see the module.
pub(crate) struct Reopening {
    open: Open,
    identity: Identity,
    name: Arc<str>,
    geometry: Geometry,
    /// How long a read waits for a lost source.
    patience: Duration,
    state: Mutex<State>,
    sample: Mutex<ReadSample>,
    /// Held by the read that opens it again.
    turn: tokio::sync::Mutex<()>,
    /// The reads that failed because the source is lost.
    failures: Losses,
}

struct State {
    device: DynDevice,
    /// The number of devices before this one.
    nth: u64,
    /// Since when this device is lost.
    lost_at: Option<Instant>,
    /// When the last attempt failed, and why.
    failed: Option<(Instant, Arc<str>)>,
    /// Why another source is there now.
    gone: Option<Arc<str>>,
}

impl Reopening {
    /// Returns the source that was opened as `device`, and fails once a connection is lost. `open` opens it again. A read
    /// waits for it up to `patience`.
    pub fn over(device: DynDevice, identity: Identity, patience: Duration, open: Open) -> DynDevice {
        let geometry = device.geometry();
        Arc::new(Self {
            open,
            name: identity.location.as_str().into(),
            identity,
            geometry,
            patience,
            state: Mutex::new(State { device, nth: 0, lost_at: None, failed: None, gone: None }),
            sample: Mutex::new(ReadSample::new(geometry.size)),
            turn: tokio::sync::Mutex::default(),
            failures: Losses::default(),
        })
    }

    fn lost(&self, range: ByteRange, why: Arc<str>) -> DeviceError {
        let error = DeviceError::Lost { device: self.name.clone(), range, why };
        self.failures.log_failure(&error);
        error
    }

    /// Returns the device, and the number of devices before it.
    fn device(&self) -> std::result::Result<(DynDevice, u64), Arc<str>> {
        let state = self.state.lock();
        state.gone.clone().map_or_else(|| Ok((state.device.clone(), state.nth)), Err)
    }

    async fn read_or_reopen(&self, range: ByteRange) -> cheetah_device::Result<Data> {
        let mut give_up_at = None;
        loop {
            let (device, nth) = self.device().map_err(|why| self.lost(range, why))?;
            match device.read(range).await {
                Ok(data) => {
                    self.sample.lock().note(range, &data);
                    return Ok(data);
                }
                Err(DeviceError::Lost { why, .. }) => {
                    if Instant::now() > *give_up_at.get_or_insert_with(|| Instant::now() + self.patience) {
                        return Err(self.lost(range, why));
                    }
                    self.reopen(nth).await.map_err(|why| self.lost(range, why))?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Replaces the device that `nth` others preceded, unless another read has done so. Fails with the reason.
    async fn reopen(&self, nth: u64) -> std::result::Result<(), Arc<str>> {
        let _turn = self.turn.lock().await;
        let lost_at = {
            let mut state = self.state.lock();
            if let Some(why) = &state.gone {
                return Err(why.clone());
            }
            if state.nth != nth {
                return Ok(());
            }
            if let Some((at, why)) = &state.failed
                && at.elapsed() < ATTEMPT_HOLDS
            {
                return Err(why.clone());
            }
            *state.lost_at.get_or_insert_with(Instant::now)
        };
        loop {
            let error = match self.attempt().await {
                Ok(device) => {
                    let mut state = self.state.lock();
                    *state = State { device, nth: nth + 1, lost_at: None, failed: None, gone: None };
                    return Ok(());
                }
                Err(error) => error,
            };
            let why: Arc<str> = error.to_string().into();
            if error.is_evidence() {
                tracing::error!("{}: gone for good: {why}", self.name);
                self.state.lock().gone = Some(why.clone());
                return Err(why);
            }
            if lost_at.elapsed() >= self.patience {
                self.state.lock().failed = Some((Instant::now(), why.clone()));
                return Err(why);
            }
            sleep(RETRY_EVERY).await;
        }
    }

    /// Opens the source and recognises it. `Kind::Evidence` means that it is another one.
    async fn attempt(&self) -> Result<DynDevice> {
        let silent = |_| Err(Error::failed(format!("no answer for {:?}", self.patience)));
        let evidence = timeout(self.patience, (self.open)()).await.unwrap_or_else(silent)?;
        if let Some(difference) = self.identity.differences(&evidence.source.identity).first() {
            return Err(another(difference));
        }
        let device = evidence.source.device;
        let compared = self.compare(&device).await?;
        tracing::info!("{}: the source is back; {compared} pages read before are equal", self.name);
        Ok(device)
    }

    /// Compares the sample with `device`; returns how many pages are equal.
    async fn compare(&self, device: &DynDevice) -> Result<usize> {
        let pages = self.sample.lock().pages();
        let read = |(page, known)| async move { (page, known, device.read(page).await) };
        let mut reads = std::pin::pin!(stream::iter(pages).map(read).buffer_unordered(AT_ONCE));
        let (mut equal, mut unreadable) = (0, None);
        while let Some((page, known, read)) = reads.next().await {
            match read {
                Ok(data) if digest(&data) == known => equal += 1,
                Ok(_) => return Err(another(format_args!("{page} has another content now"))),
                // A sector that has gone bad since then proves nothing.
                Err(error) if error.is_bad_sector() => unreadable = Some(error),
                Err(error) => return Err(Error::failed(error.to_string())),
            }
        }
        match unreadable {
            Some(error) if equal == 0 => Err(Error::failed(error.to_string())),
            _ => Ok(equal),
        }
    }
}

fn another(how: impl std::fmt::Display) -> Error {
    Error::evidence(format!("another source answers in its place: {how}; open it anew to read that one"))
}

impl Device for Reopening {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range));
        Io::later(self.read_or_reopen(range))
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        let Ok((device, _)) = self.device() else { return Io::ok(()) };
        Io::later(async move { device.cache(range).await })
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        let Ok((device, _)) = self.device() else { return Io::ok(vec![Extent::data(range.len)]) };
        Io::later(async move {
            match device.extents(range).await {
                // A read finds out whether the source is still there.
                Err(DeviceError::Lost { .. }) => Ok(vec![Extent::data(range.len)]),
                extents => extents,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cheetah_device::memory::Memory;
    use cheetah_image::{Kind, Source};
    use futures::FutureExt as _;

    use super::*;

    const SIZE: usize = 1 << 20;
    const PATIENCE: Duration = Duration::from_secs(10);

    /// A server, its content, and how many more attempts to open it fail.
    struct Server {
        identity: Mutex<Identity>,
        content: Mutex<Vec<u8>>,
        refuses: AtomicUsize,
        opened: AtomicUsize,
        /// Changed to lose all connections.
        life: Arc<AtomicUsize>,
    }

    struct Link {
        memory: Memory,
        born: usize,
        life: Arc<AtomicUsize>,
    }

    impl Device for Link {
        fn geometry(&self) -> Geometry {
            self.memory.geometry()
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            if self.born == self.life.load(Ordering::Relaxed) {
                return self.memory.read(range);
            }
            Io::fail(DeviceError::Lost { device: "disk".into(), range, why: "connection lost".into() })
        }
    }

    impl Server {
        fn new() -> Arc<Self> {
            let content = (0..SIZE).map(|at| (at / 100 % 251) as u8).collect();
            Arc::new(Self {
                identity: Mutex::new(Identity::new(Kind::Nbd, "nbd://h", SIZE as u64)),
                content: Mutex::new(content),
                refuses: AtomicUsize::new(0),
                opened: AtomicUsize::new(0),
                life: Arc::default(),
            })
        }

        fn link(&self) -> DynDevice {
            let (memory, life) = (Memory::new(self.content.lock().clone()), self.life.clone());
            Arc::new(Link { memory, born: life.load(Ordering::Relaxed), life })
        }

        fn lose(&self) {
            self.life.fetch_add(1, Ordering::Relaxed);
        }

        fn source(self: &Arc<Self>) -> DynDevice {
            let server = self.clone();
            let open = move || {
                server.opened.fetch_add(1, Ordering::Relaxed);
                let refuses = server.refuses.load(Ordering::Relaxed);
                server.refuses.store(refuses.saturating_sub(1), Ordering::Relaxed);
                let (device, identity) = (server.link(), server.identity.lock().clone());
                let source = Source::new(device, identity, "disk".into());
                async move { if refuses > 0 { Err(Error::failed("connection refused")) } else { Ok(source.into()) } }
                    .boxed()
            };
            Reopening::over(self.link(), self.identity.lock().clone(), PATIENCE, Box::new(open))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_until_the_same_source_is_back() {
        let server = Server::new();
        let source = server.source();
        source.read(ByteRange::new(0, 1 << 19)).await.unwrap();
        server.lose();
        server.refuses.store(3, Ordering::Relaxed);
        let read = source.read(ByteRange::new(1 << 19, 5000)).await.unwrap();
        assert!(read == server.content.lock()[1 << 19..][..5000]);
        assert_eq!(server.opened.load(Ordering::Relaxed), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn no_byte_of_another_source_is_read_even_after_the_first_comes_back() {
        type Change = fn(&Server);
        let changes: [Change; 3] = [
            |server| server.identity.lock().size += 512,
            |server| server.identity.lock().serial = Some("WD-1".into()),
            |server| server.content.lock()[4000] ^= 1,
        ];
        for change in changes {
            let server = Server::new();
            let (source, identity, content) =
                (server.source(), server.identity.lock().clone(), server.content.lock().clone());
            source.read(ByteRange::new(0, 8192)).await.unwrap();
            change(&server);
            server.lose();
            let error = source.read(ByteRange::new(1 << 19, 512)).await.unwrap_err();
            assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
            (*server.identity.lock(), *server.content.lock()) = (identity, content);
            assert!(source.read(ByteRange::new(0, 512)).await.is_err());
            assert_eq!(source.extents(ByteRange::new(0, 512)).await.unwrap(), [Extent::data(512)]);
            assert_eq!(server.opened.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reads_of_a_source_that_stays_away_fail_after_the_patience_and_succeed_once_it_is_back() {
        let server = Server::new();
        let source = server.source();
        server.lose();
        server.refuses.store(usize::MAX, Ordering::Relaxed);
        let (begun, range) = (Instant::now(), ByteRange::new(0, 512));
        let [first, second] = [source.read(range), source.read(range)];
        let (first, second) = futures::join!(first, second);
        assert!(first.is_err() && second.is_err());
        assert!(begun.elapsed() >= PATIENCE && begun.elapsed() < PATIENCE * 2, "{:?}", begun.elapsed());
        server.refuses.store(0, Ordering::Relaxed);
        tokio::time::advance(ATTEMPT_HOLDS).await;
        assert!(source.read(range).await.is_ok());
    }
}
