//! The hints and capabilities that each layer of this crate hands on to the device below it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cheetah_device::cache::{Cache, CacheConfig, CachePlace};
use cheetah_device::coverage::State;
use cheetah_device::coverage_filter::CoverageFilter;
use cheetah_device::layer::conformance::Operation::{AnswersAtOnce, Cache as Hint, Flush, Lend, TakePrefetched};
use cheetah_device::layer::conformance::Operation::{LendMut, Trim, Write, WriteFua, Zero};
use cheetah_device::layer::conformance::{CHANGES, SIZE, assert_hands_on};
use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::linear::Linear;
use cheetah_device::memory::Memory;
use cheetah_device::overlay::Overlay;
use cheetah_device::prefetch::{Prefetch, PrefetchConfig};
use cheetah_device::readonly::ReadOnly;
use cheetah_device::stripe::Stripe;
use cheetah_device::window::Window;
use cheetah_device::{ByteRange, Coverage, Data, Device, DynDevice, Error, Extent, Geometry, Io, Zeroing};

#[tokio::test]
async fn every_layer_hands_on_what_it_does_not_handle() {
    assert_hands_on(|below| Arc::new(ReadOnly::new(below)), &[CHANGES]).await;
    assert_hands_on(|below| Arc::new(CoverageFilter::new(below, read_throughout(), "case42", "when read")), &[CHANGES])
        .await;
    // The prefetcher takes hints itself, and reports its own prefetched data.
    let prefetch = |below| Prefetch::new(below, PrefetchConfig::default()) as DynDevice;
    assert_hands_on(prefetch, &[&[Hint, LendMut, TakePrefetched]]).await;
    // A hint is a fetch into the cache; content comes from there.
    let cache = |below| {
        let config = CacheConfig { place: CachePlace::Memory, budget_bytes: 1 << 20 };
        Cache::new(below, config).unwrap() as DynDevice
    };
    assert_hands_on(cache, &[CHANGES, &[Hint, Lend, AnswersAtOnce]]).await;
}

#[tokio::test]
async fn devices_with_offsets_or_content_of_their_own_hand_on_the_hints_that_still_apply() {
    let whole = ByteRange::new(0, SIZE);
    assert_hands_on(|below| Arc::new(Window::new(below, whole).unwrap()), &[]).await;
    let of_several = &[Lend, LendMut, AnswersAtOnce, TakePrefetched];
    assert_hands_on(|below| Arc::new(Linear::new(vec![below]).unwrap()), &[of_several]).await;
    assert_hands_on(|below| Arc::new(Stripe::new(4096, vec![below]).unwrap()), &[of_several]).await;
    // Prefetched data may have been written over here.
    let changed_here = &[Write, WriteFua, LendMut, Zero, Trim, Flush, Lend, TakePrefetched, AnswersAtOnce];
    assert_hands_on(|below| Arc::new(Overlay::in_memory(below, 1 << 20)), &[changed_here]).await;
}

#[tokio::test]
async fn a_window_translates_offsets_in_everything_it_hands_on() {
    let bytes: Vec<u8> = (0..=255).collect();
    let window = Window::new(Arc::new(Memory::new(bytes)), ByteRange::new(100, 50)).unwrap();
    let mut lent = Vec::new();
    window.lend(ByteRange::new(10, 3), &mut |runs| lent = runs.concat()).unwrap().unwrap();
    assert_eq!(lent, [110, 111, 112]);
    let outside = window.lend(ByteRange::new(49, 2), &mut |_| panic!("nothing is lent out of bounds"));
    assert!(matches!(outside, Some(Err(Error::OutOfBounds { .. }))), "{outside:?}");
}

#[tokio::test]
async fn content_that_may_not_be_read_is_handed_out_in_no_way() {
    let mut coverage = read_throughout();
    coverage.set(ByteRange::new(72 << 10, 512), State::Unread);
    let filter =
        CoverageFilter::new(Arc::new(Predicting(Memory::new(vec![0; SIZE as usize]))), coverage, "case42", "when read");
    let gap = ByteRange::new(72 << 10, 4096);
    assert!(matches!(filter.read(gap).await, Err(Error::Withheld { .. })));
    let lent = filter.lend(gap, &mut |_| panic!("a gap is not lent"));
    assert!(matches!(lent, Some(Err(Error::Withheld { .. }))), "{lent:?}");
    assert_eq!(filter.extents(gap).await, Ok(vec![Extent::data(4096)]));
    let before = ByteRange::between(gap.offset - 4096, gap.offset);
    assert!(filter.take_prefetched(before).is_empty(), "the data that follows is in the gap");
    assert_eq!(filter.take_prefetched(ByteRange::new(0, 4096)).len(), 1);
}

/// A layer that handles writes only.
struct OnlyWrites(Memory);

impl Layer for OnlyWrites {
    type Below = Memory;
    const READS: Reads = Reads::Handled;
    const WRITES: Writes = Writes::Handled;

    fn below(&self) -> &Memory {
        &self.0
    }

    fn on_write(&self, offset: u64, data: Data, _fua: bool) -> Io<'_, ()> {
        self.0.write(offset, Data::from(vec![b'w'; data.len() as usize]), false)
    }
}

#[tokio::test]
async fn a_layer_that_handles_an_operation_is_not_bypassed_by_others() {
    let layer = OnlyWrites(Memory::new(vec![b'.'; 8]));
    layer.zero(ByteRange::new(2, 2), Zeroing::default()).await.unwrap();
    layer.trim(ByteRange::new(5, 2)).await.unwrap();
    assert_eq!(layer.0.snapshot(), b"..ww....", "zeroing is a write, and trimming changes nothing");
    assert!(layer.lend(ByteRange::new(0, 8), &mut |_| ()).is_none() && !layer.answers_at_once());
    assert_eq!(layer.read(ByteRange::new(0, 3)).await.unwrap().into_bytes(), b"..w"[..]);
}

/// A device that counts the questions for its geometry.
struct Asked(Memory, AtomicUsize);

impl Device for Asked {
    fn geometry(&self) -> Geometry {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.0.read(range)
    }
}

#[test]
fn a_stack_of_layers_asks_the_lowest_device_once_for_its_geometry() {
    let lowest = Arc::new(Asked(Memory::new(vec![0; 8]), AtomicUsize::new(0)));
    let stack = (0..20).fold(lowest.clone() as DynDevice, |below, _| Arc::new(ReadOnly::new(below)));
    assert_eq!(stack.geometry().size, 8);
    assert_eq!(lowest.1.load(Ordering::Relaxed), 1);
}

/// A device that always has the data after a read at hand.
struct Predicting(Memory);

impl Device for Predicting {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.0.read(range)
    }

    fn take_prefetched(&self, range: ByteRange) -> Vec<(u64, Data)> {
        vec![(range.end(), Data::zeros(4096))]
    }
}

fn read_throughout() -> Coverage {
    let mut coverage = Coverage::new(SIZE);
    coverage.set(ByteRange::new(0, SIZE), State::Read);
    coverage
}
