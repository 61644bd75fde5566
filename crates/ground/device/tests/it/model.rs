//! Every stack of layers against a `Vec` of bytes.

use std::sync::Arc;

use cheetah_device::linear::Linear;
use cheetah_device::memory::Memory;
use cheetah_device::overlay::Overlay;
use cheetah_device::placement::{Layout, Placement};
use cheetah_device::readonly::ReadOnly;
use cheetah_device::stripe::Stripe;
use cheetah_device::window::Window;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Extent, Geometry, Io, Zeroing};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

const UNIT: u64 = 4096;

/// An operation. Offsets are fractions of the device's size, so that one list fits any device.
#[derive(Debug, Clone)]
enum Step {
    Read(Index, Index),
    Write(Index, Vec<u8>, bool),
    Zero(Index, Index),
    Trim(Index, Index),
    Flush,
    Extents(Index, Index),
}

fn step() -> impl Strategy<Value = Step> {
    let any_range = || (any::<Index>(), any::<Index>());
    let content = prop_oneof![
        vec(any::<u8>(), 0..100),
        (any::<u8>(), 1usize..20_000).prop_map(|(seed, len)| pattern(seed, len)),
    ];
    prop_oneof![
        3 => any_range().prop_map(|(at, len)| Step::Read(at, len)),
        4 => (any::<Index>(), content, any::<bool>()).prop_map(|(at, data, fua)| Step::Write(at, data, fua)),
        1 => any_range().prop_map(|(at, len)| Step::Zero(at, len)),
        1 => any_range().prop_map(|(at, len)| Step::Trim(at, len)),
        1 => Just(Step::Flush),
        1 => any_range().prop_map(|(at, len)| Step::Extents(at, len)),
    ]
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::Linear), (0u32..3).prop_map(|bits| Layout::Stripe { unit: UNIT << bits })]
}

/// Generates sizes of children that suit any layout above.
fn sizes() -> impl Strategy<Value = Vec<u64>> {
    vec((UNIT << 2)..(UNIT << 4), 1..5)
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    // A prime period, so that no two units of a stripe are equal.
    (0..len).map(|i| (i % 251) as u8 ^ seed).collect()
}

fn range_of(at: Index, len: Index, size: u64) -> ByteRange {
    let start = at.index(size as usize + 1) as u64;
    ByteRange::new(start, len.index((size - start) as usize + 1) as u64)
}

fn spread(layout: Layout, children: Vec<DynDevice>) -> DynDevice {
    match layout {
        Layout::Linear => Arc::new(Linear::new(children).unwrap()),
        Layout::Stripe { unit } => Arc::new(Stripe::new(unit, children).unwrap()),
    }
}

fn memories(sizes: &[u64]) -> Vec<Arc<Memory>> {
    let seeded = |(seed, size): (usize, &u64)| Arc::new(Memory::new(pattern(seed as u8 + 1, *size as usize)));
    sizes.iter().enumerate().map(seeded).collect()
}

fn dynamic(memories: &[Arc<Memory>]) -> Vec<DynDevice> {
    memories.iter().map(|memory| Arc::clone(memory) as DynDevice).collect()
}

/// Makes every operation yield to the executor first, as on a network.
struct Slow(DynDevice);

impl Device for Slow {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            tokio::task::yield_now().await;
            self.0.read(range).await
        })
    }
    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        Io::later(async move {
            tokio::task::yield_now().await;
            self.0.write(offset, data, fua).await
        })
    }
}

async fn all_of(device: &dyn Device) -> Vec<u8> {
    device.read(ByteRange::new(0, device.geometry().size)).await.unwrap().into_bytes().to_vec()
}

fn in_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test);
}

/// Performs `steps` on `device` and on a `Vec`, and compares the results. A trimmed range may read as anything, so it
/// is overwritten in both.
async fn compare(device: &dyn Device, steps: Vec<Step>) {
    let mut model = all_of(device).await;
    let size = model.len() as u64;
    let indices = |range: ByteRange| range.offset as usize..range.end() as usize;
    for step in steps {
        match step {
            Step::Read(at, len) => {
                let range = range_of(at, len, size);
                let read = device.read(range).await.unwrap();
                assert!(read == model[indices(range)], "{range} differs");
            }
            Step::Write(at, mut data, fua) => {
                let start = at.index(model.len());
                data.truncate(model.len() - start);
                model[start..start + data.len()].copy_from_slice(&data);
                device.write(start as u64, data.into(), fua).await.unwrap();
            }
            Step::Zero(at, len) => {
                let range = range_of(at, len, size);
                model[indices(range)].fill(0);
                device.zero(range, Zeroing::default()).await.unwrap();
            }
            Step::Trim(at, len) => {
                let range = range_of(at, len, size);
                device.trim(range).await.unwrap();
                model[indices(range)].fill(7);
                device.write(range.offset, vec![7; range.len as usize].into(), false).await.unwrap();
            }
            Step::Flush => device.flush().await.unwrap(),
            Step::Extents(at, len) => {
                let range = range_of(at, len, size);
                let extents = device.extents(range).await.unwrap();
                assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), range.len);
                check_zeros(&model[indices(range)], &extents);
            }
        }
    }
    assert!(all_of(device).await == model, "the contents differ in the end");
}

fn check_zeros(bytes: &[u8], extents: &[Extent]) {
    let mut at = 0;
    for extent in extents {
        let end = at + extent.len as usize;
        assert!(!extent.zero || bytes[at..end].iter().all(|byte| *byte == 0), "said to be zero, and is not");
        at = end;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn linear_and_striped_devices_match_plain_memory(layout in layout(), sizes in sizes(), steps in vec(step(), 0..30)) {
        in_runtime(async {
            let slow = dynamic(&memories(&sizes)).into_iter().map(|child| Arc::new(Slow(child)) as DynDevice).collect();
            compare(&*spread(layout, slow), steps).await;
        });
    }

    /// Each byte is mapped to one place, in bounds, and no two bytes share one.
    #[test]
    fn each_byte_is_mapped_to_one_place_of_its_own(layout in layout(), sizes in sizes(), at in any::<Index>(), len in any::<Index>()) {
        let placement = Placement::new(layout, &sizes).unwrap();
        let mut taken: Vec<Vec<bool>> = sizes.iter().map(|size| vec![false; *size as usize]).collect();
        let mut next = 0;
        for piece in placement.map(ByteRange::new(0, placement.size())) {
            prop_assert_eq!(piece.at, next);
            prop_assert!(piece.range.fits(sizes[piece.child]));
            next += piece.range.len;
            for taken in &mut taken[piece.child][piece.range.offset as usize..piece.range.end() as usize] {
                prop_assert!(!std::mem::replace(taken, true));
            }
        }
        prop_assert_eq!(next, placement.size());

        // A range maps to one range of each child, whose parts come in order.
        let range = range_of(at, len, placement.size());
        let mut ends = vec![None; sizes.len()];
        for piece in placement.map(range) {
            prop_assert!(ends[piece.child].is_none_or(|end| end == piece.range.offset));
            ends[piece.child] = Some(piece.range.end());
        }
    }

    #[test]
    fn an_overlay_matches_plain_memory_and_leaves_its_base_untouched(
        layout in layout(), sizes in sizes(), steps in vec(step(), 0..40), in_file in any::<bool>(),
    ) {
        in_runtime(async {
            let memories = memories(&sizes);
            let before: Vec<_> = memories.iter().map(|memory| memory.snapshot()).collect();
            let base = spread(layout, dynamic(&memories));
            if in_file {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("changes");
                compare(&Overlay::in_file(Arc::new(ReadOnly::new(base)), &path).unwrap(), steps).await;
            } else {
                compare(&Overlay::in_memory(base, 64 << 20), steps).await;
            }
            let after: Vec<_> = memories.iter().map(|memory| memory.snapshot()).collect();
            assert!(before == after, "the base was written");
        });
    }

    #[test]
    fn a_window_matches_plain_memory_and_touches_nothing_outside(
        layout in layout(), sizes in sizes(), at in any::<Index>(), len in any::<Index>(), steps in vec(step(), 0..20),
    ) {
        in_runtime(async {
            let whole = spread(layout, dynamic(&memories(&sizes)));
            let before = all_of(&*whole).await;
            let range = range_of(at, len, whole.geometry().size);
            if range.is_empty() {
                return;
            }
            compare(&Window::new(Arc::clone(&whole), range).unwrap(), steps).await;
            let after = all_of(&*whole).await;
            assert!(after[..range.offset as usize] == before[..range.offset as usize]);
            assert!(after[range.end() as usize..] == before[range.end() as usize..]);
        });
    }

    /// Adjacent ranges share no block, so their writers do not disturb each other.
    #[test]
    fn overlay_writers_side_by_side_do_not_disturb_each_other(cuts in vec(1u64..3000, 2..20), in_file in any::<bool>()) {
        in_runtime(async {
            let size: u64 = cuts.iter().sum();
            let base: DynDevice = Arc::new(Slow(Arc::new(Memory::new(pattern(0, size as usize)))));
            let directory = tempfile::tempdir().unwrap();
            let overlay = match in_file {
                true => Overlay::in_file(base, &directory.path().join("changes")).unwrap(),
                false => Overlay::in_memory(base, 1 << 20),
            };
            let mut expected = Vec::new();
            let mut writes = Vec::new();
            for (seed, len) in cuts.iter().enumerate() {
                let data = pattern(seed as u8 + 1, *len as usize);
                writes.push(overlay.write(expected.len() as u64, data.clone().into(), false));
                expected.extend(data);
            }
            for done in futures::future::join_all(writes).await {
                done.unwrap();
            }
            assert!(all_of(&overlay).await == expected);
        });
    }

    /// With one child lost, exactly the ranges that touch it fail; all others return the right bytes.
    #[test]
    fn a_lost_child_fails_the_ranges_that_touch_it(
        layout in layout(), sizes in sizes(), lost in any::<Index>(), ranges in vec(any::<(Index, Index)>(), 1..20),
    ) {
        in_runtime(async {
            let memories = memories(&sizes);
            let intact = spread(layout, dynamic(&memories));
            let placement = Placement::new(layout, &sizes).unwrap();
            let lost = lost.index(sizes.len());
            let mut children = dynamic(&memories);
            children[lost] = Arc::new(Lost(children[lost].geometry().size));
            let broken = spread(layout, children);
            for (at, len) in ranges {
                let range = range_of(at, len, placement.size());
                let touched = placement.map(range).any(|piece| piece.child == lost);
                match broken.read(range).await {
                    Ok(data) => {
                        assert!(!touched, "{range} was made up");
                        assert!(data == intact.read(range).await.unwrap().into_bytes()[..]);
                    }
                    Err(error) => {
                        assert!(touched, "{range} is not on the lost child: {error}");
                        assert!(error.to_string().contains("node2") && error.errno() == 5, "{error}");
                    }
                }
                let data = vec![1; range.len as usize];
                assert_eq!(broken.write(range.offset, data.into(), false).await.is_err(), touched);
            }
            assert!(broken.flush().await.is_err());
        });
    }
}

/// A node that is gone.
struct Lost(u64);

impl Lost {
    fn error(&self, range: ByteRange) -> Error {
        Error::Lost { device: "node2".into(), range, why: "connection reset".into() }
    }
}

impl Device for Lost {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.0, writable: true, block_preferred: 4096 }
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::fail(self.error(range))
    }
    fn write(&self, offset: u64, data: Data, _fua: bool) -> Io<'_, ()> {
        Io::fail(self.error(ByteRange::new(offset, data.len())))
    }
    fn flush(&self) -> Io<'_, ()> {
        Io::fail(self.error(ByteRange::new(0, self.0)))
    }
}

#[test]
fn a_full_overlay_reports_no_space_and_still_takes_writes_that_need_none() {
    in_runtime(async {
        let overlay = Overlay::in_memory(Arc::new(Memory::new(vec![9; 1 << 20])), 16 << 10);
        overlay.write(0, vec![1; 8 << 10].into(), false).await.unwrap();
        let error = overlay.write(64 << 10, vec![2; 12 << 10].into(), false).await.unwrap_err();
        assert!(matches!(error, Error::NoSpace(_)), "{error}");
        assert!(overlay.read(ByteRange::new(64 << 10, 12 << 10)).await.unwrap() == vec![9; 12 << 10][..]);

        // Repeated writes to one place, and then zeros, take the room of the content they replace.
        for turn in 0..100 {
            overlay.write(turn, vec![3; 8 << 10].into(), false).await.unwrap();
        }
        overlay.zero(ByteRange::new(0, 1 << 20), Zeroing::default()).await.unwrap();
        overlay.write(64 << 10, vec![2; 12 << 10].into(), false).await.unwrap();
        assert_eq!(overlay.changed_bytes(), 1 << 20);
    });
}

#[test]
fn an_unreadable_range_can_be_written_over_in_an_overlay() {
    in_runtime(async {
        let overlay = Overlay::in_memory(Arc::new(Lost(1 << 20)), 1 << 20);
        overlay.write(1000, vec![5; 100].into(), false).await.unwrap();
        assert!(overlay.read(ByteRange::new(1000, 100)).await.unwrap() == [5; 100][..]);
        assert!(overlay.read(ByteRange::new(999, 2)).await.is_err());
    });
}

#[test]
fn an_overlay_refuses_an_existing_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(Overlay::in_file(Arc::new(Memory::new(vec![0; 10])), file.path()).is_err());
}

#[test]
fn a_read_only_device_refuses_every_change() {
    in_runtime(async {
        let memory = Arc::new(Memory::new(vec![1; 100]));
        let device = ReadOnly::new(Arc::clone(&memory) as DynDevice);
        assert!(!device.geometry().writable);
        let range = ByteRange::new(0, 10);
        let refusals = [
            device.write(0, vec![0; 10].into(), false).await,
            device.zero(range, Zeroing::default()).await,
            device.trim(range).await,
        ];
        assert!(refusals.iter().all(|refusal| *refusal == Err(Error::ReadOnly)));
        assert_eq!(memory.snapshot(), vec![1; 100]);
    });
}

#[test]
fn a_range_past_the_end_is_refused_by_every_layer() {
    in_runtime(async {
        let memory = || Arc::new(Memory::new(vec![1; 8192])) as DynDevice;
        let layers: [DynDevice; 4] = [
            Arc::new(Linear::new(vec![memory()]).unwrap()),
            Arc::new(Stripe::new(UNIT, vec![memory()]).unwrap()),
            Arc::new(Window::new(memory(), ByteRange::new(0, 8192)).unwrap()),
            Arc::new(Overlay::in_memory(memory(), 1 << 20)),
        ];
        for layer in layers {
            for range in [ByteRange::new(8192, 1), ByteRange::new(0, u64::MAX), ByteRange::new(u64::MAX, 2)] {
                assert_eq!(layer.read(range).await.err().map(|error| error.errno()), Some(22), "{range}");
                assert!(layer.zero(range, Zeroing::default()).await.is_err());
                assert!(layer.extents(range).await.is_err());
            }
            assert!(layer.write(8000, vec![0; 200].into(), false).await.is_err());
            assert!(layer.read(ByteRange::new(8192, 0)).await.unwrap().is_empty());
        }
        assert!(Window::new(memory(), ByteRange::new(8000, 200)).is_err());
    });
}
