//! Checks, for tests, which operations a device hands on to the one below it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{ByteRange, Data, Device, DynDevice, Extent, Fill, Geometry, Io, Result, Zeroing};

/// Bytes in the device below.
pub const SIZE: u64 = 1 << 20;
/// The range that is asked for.
const RANGE: ByteRange = ByteRange::new(64 << 10, 8 << 10);
/// The content of the device below.
const BYTE: u8 = 0x5a;

/// An operation, hint or capability of a [`Device`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// [`Device::read`].
    Read,
    /// [`Device::write`].
    Write,
    /// [`Device::write`] with force unit access.
    WriteFua,
    /// [`Device::lend_mut`].
    LendMut,
    /// [`Device::zero`], with all its flags.
    Zero,
    /// [`Device::trim`].
    Trim,
    /// [`Device::flush`].
    Flush,
    /// [`Device::cache`].
    Cache,
    /// [`Device::extents`].
    Extents,
    /// [`Device::lend`].
    Lend,
    /// [`Device::take_prefetched`].
    TakePrefetched,
    /// [`Device::answers_at_once`].
    AnswersAtOnce,
}

/// The operations that a layer without writes does not hand on.
pub const CHANGES: &[Operation] =
    &[Operation::Write, Operation::WriteFua, Operation::LendMut, Operation::Zero, Operation::Trim, Operation::Flush];

/// Fails unless the device that `wrap` makes hands on every operation but those `kept`, and none of those. Also fails
/// if its size or the content it reads is not that of the device below.
///
/// # Panics
///
/// If the check fails.
pub async fn assert_hands_on(wrap: impl FnOnce(DynDevice) -> DynDevice, kept: &[&[Operation]]) {
    use Operation as Op;
    let below = Arc::new(Recorder::default());
    let device = wrap(below.clone());
    assert_eq!(device.geometry().size, SIZE);
    assert_eq!(device.geometry().block_preferred, below.geometry().block_preferred);
    let content = device.read(RANGE).await.map(|data| data == [BYTE; RANGE.len as usize][..]);
    assert!(content == Ok(true), "the content is not that of the device below: {content:?}");
    let mut runs = 0;
    let lent = device.lend(RANGE, &mut |shown| runs = shown.len());
    let capabilities = [
        (Op::Extents, device.extents(RANGE).await == Ok(Recorder::extents_of(RANGE))),
        (Op::Lend, lent == Some(Ok(())) && runs == 1),
        (Op::TakePrefetched, device.take_prefetched(RANGE).iter().map(|(at, _)| *at).eq([RANGE.end()])),
        (Op::AnswersAtOnce, device.answers_at_once()),
    ];
    let fua = Zeroing { keep_allocated: true, fast_only: true, fua: true };
    let _ = device.cache(RANGE).await;
    let _ = device.write(RANGE.offset, Data::from(vec![BYTE]), false).await;
    let _ = device.write(RANGE.offset, Data::from(vec![BYTE]), true).await;
    let _ = device.lend_mut(RANGE, &mut |_| 0);
    let _ = device.zero(RANGE, fua).await;
    let _ = device.trim(RANGE).await;
    let _ = device.flush().await;
    let asked = below.calls.lock().clone();
    let found = capabilities.iter().filter(|(_, found)| *found).map(|(operation, _)| *operation);
    // A layer that fetches may read as often as it likes.
    let (reads, others): (Vec<_>, Vec<_>) = asked.into_iter().partition(|operation| *operation == Op::Read);
    let handed_on: Vec<_> = reads.into_iter().take(1).chain(found).chain(others).collect();
    let all = [Op::Read, Op::Extents, Op::Lend, Op::TakePrefetched, Op::AnswersAtOnce];
    let all = all.into_iter().chain([Op::Cache, Op::Write, Op::WriteFua, Op::LendMut, Op::Zero, Op::Trim, Op::Flush]);
    let expected: Vec<_> = all.filter(|operation| !kept.iter().any(|kept| kept.contains(operation))).collect();
    assert_eq!(handed_on, expected, "handed on, and expected to be");
}

/// A device with every capability that records its calls.
#[derive(Default)]
struct Recorder {
    calls: Mutex<Vec<Operation>>,
}

impl Recorder {
    fn extents_of(range: ByteRange) -> Vec<Extent> {
        vec![Extent { len: range.len / 2, hole: false, zero: true }, Extent::data(range.len - range.len / 2)]
    }

    fn note<T>(&self, operation: Operation, answer: T) -> Io<'_, T> {
        self.calls.lock().push(operation);
        Io::ok(answer)
    }
}

impl Device for Recorder {
    fn geometry(&self) -> Geometry {
        Geometry { size: SIZE, writable: true, block_preferred: 512 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.note(Operation::Read, Bytes::from(vec![BYTE; range.len as usize]).into())
    }

    fn write(&self, _offset: u64, _data: Data, fua: bool) -> Io<'_, ()> {
        self.note(if fua { Operation::WriteFua } else { Operation::Write }, ())
    }

    fn zero(&self, _range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        match how {
            Zeroing { keep_allocated: true, fast_only: true, fua: true } => self.note(Operation::Zero, ()),
            _ => Io::ok(()),
        }
    }

    fn trim(&self, _range: ByteRange) -> Io<'_, ()> {
        self.note(Operation::Trim, ())
    }

    fn flush(&self) -> Io<'_, ()> {
        self.note(Operation::Flush, ())
    }

    fn cache(&self, _range: ByteRange) -> Io<'_, ()> {
        self.note(Operation::Cache, ())
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        Io::ok(Self::extents_of(range))
    }

    fn lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        show(&[&vec![BYTE; range.len as usize]]);
        Some(Ok(()))
    }

    fn lend_mut(&self, _range: ByteRange, _fill: &mut Fill<'_>) -> Option<Result<()>> {
        self.calls.lock().push(Operation::LendMut);
        None
    }

    fn take_prefetched(&self, range: ByteRange) -> Vec<(u64, Data)> {
        vec![(range.end(), Data::from(vec![BYTE; 4096]))]
    }

    fn answers_at_once(&self) -> bool {
        true
    }
}
