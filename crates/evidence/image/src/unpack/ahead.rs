//! Unpacks the chunks around small reads before they are asked for.
//!
//! Tools that read a file system come back to the neighbourhood of what they have read. One thread, which gives way to others,
//! unpacks it while a processor is idle. What it cannot keep up with is left out.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};

use cheetah_device::ByteRange;

use super::{Chunked, Unpacking};

/// The size of an aligned window around a read, in bytes: some chunks, read from the disk together in little more time than one.
const WINDOW_BYTES: u64 = 256 << 10;
/// The maximum number of windows that wait.
const WAITING_MAX: usize = 32;
/// The thread's niceness: it gets a tenth of a processor that others want.
const NICENESS: i32 = 10;

/// The thread, started by the first small read. It ends when this is dropped.
#[derive(Default)]
pub(super) struct Ahead(OnceLock<Option<SyncSender<u64>>>);

impl Ahead {
    /// Has the window around a read unpacked, unless too many wait.
    pub(super) fn look_around<C: Chunked>(&self, of: &Arc<Unpacking<C>>, range: ByteRange) {
        if let Some(windows) = self.0.get_or_init(|| start(Arc::downgrade(of))) {
            // Full, or the thread has ended: then the read unpacks what it needs itself, as it does anyway.
            let _ = windows.try_send(range.offset / WINDOW_BYTES);
        }
    }
}

/// Starts the thread; `None` if there can be none.
fn start<C: Chunked>(of: Weak<Unpacking<C>>) -> Option<SyncSender<u64>> {
    let (windows, asked) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("unpack-ahead".into());
    thread.spawn(move || unpack(&of, &asked)).ok().map(|_| windows)
}

fn unpack<C: Chunked>(of: &Weak<Unpacking<C>>, asked: &Receiver<u64>) {
    // Without it, the thread competes with others.
    let _ = cheetah_kit::thread::lower_priority(NICENESS);
    for window in asked {
        let Some(of) = of.upgrade() else { return };
        let end = of.image().size();
        let window = ByteRange::new(window * WINDOW_BYTES, WINDOW_BYTES);
        of.unpack_here(ByteRange::between(window.offset.min(end), window.end().min(end)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::Work;
    use super::super::{Blocking, Limits};
    use super::*;
    use cheetah_device::Data;
    use std::ops::Range;
    use std::time::{Duration, Instant};

    const CHUNK: u64 = 32 << 10;

    /// An image of ones.
    struct Ones(u64);

    impl Chunked for Ones {
        fn size(&self) -> u64 {
            self.0
        }

        fn range(&self, chunk: u64) -> ByteRange {
            ByteRange::between(chunk * CHUNK, ((chunk + 1) * CHUNK).min(self.0))
        }

        fn holding(&self, range: ByteRange) -> Range<u64> {
            range.offset / CHUNK..range.end().div_ceil(CHUNK)
        }

        fn unpack(&self, work: &mut Work, _: Blocking) {
            for chunk in work.runs().into_iter().flatten() {
                work.put(chunk, Ok(Data::from(vec![1; self.range(chunk).len as usize])));
            }
        }
    }

    fn held(image: &Arc<Unpacking<Ones>>) -> Vec<u64> {
        let count = image.image().0.div_ceil(CHUNK);
        (0..count)
            .filter(|chunk| image.cache.claim(*chunk..chunk + 1, 0, super::super::Keep::Briefly).is_some())
            .collect()
    }

    fn image(ahead_bytes: u64) -> Arc<Unpacking<Ones>> {
        // The last window is cut short, and so is its last chunk.
        let size = 3 * WINDOW_BYTES + CHUNK + 100;
        Unpacking::new(Ones(size), Limits { cache_bytes: 1 << 20, ahead_bytes, threads: 1, at_once: 1 })
    }

    fn until(image: &Arc<Unpacking<Ones>>, expected: &[u64]) {
        let end = Instant::now() + Duration::from_secs(60);
        while held(image) != expected {
            assert!(Instant::now() < end, "{:?}", held(image));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_small_read_has_its_window_unpacked_and_a_large_one_has_not() {
        let image = image(1 << 20);
        image.at_once(ByteRange::new(2 * CHUNK + 7, 4096)).unwrap().unwrap();
        until(&image, &[0, 1, 2, 3, 4, 5, 6, 7]);
        image.at_once(ByteRange::new(3 * WINDOW_BYTES, 1)).unwrap().unwrap();
        until(&image, &[0, 1, 2, 3, 4, 5, 6, 7, 24, 25]);
        assert!(
            image.at_once(ByteRange::new(WINDOW_BYTES, super::super::SMALL_MAX + 1)).is_none(),
            "more than a chunk"
        );
    }

    #[test]
    fn without_a_budget_nothing_is_unpacked_ahead() {
        let image = image(0);
        image.at_once(ByteRange::new(0, 4096)).unwrap().unwrap();
        assert!(image.ahead.0.get().is_none());
        assert_eq!(held(&image), [0]);
    }
}
