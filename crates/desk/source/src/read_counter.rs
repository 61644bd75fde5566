//! Counts the reads of a source below its layers, which shows the reads that the layers save or waste.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, Data, Device, DynDevice, Io, Result};

/// Counters of a device's reads.
#[derive(Debug, Default)]
pub struct ReadCounter {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl ReadCounter {
    /// Returns a read-only device that counts the reads of `inner`, and the counters.
    pub fn over(inner: DynDevice) -> (DynDevice, Arc<Self>) {
        let meter = Arc::new(Self::default());
        (Arc::new(Metered { inner, meter: Arc::clone(&meter) }), meter)
    }

    /// Returns the number of reads.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the bytes of those reads, failed ones included.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A device whose reads are counted.
struct Metered {
    inner: DynDevice,
    meter: Arc<ReadCounter>,
}

impl Metered {
    fn count(&self, range: ByteRange) {
        self.meter.requests.fetch_add(1, Ordering::Relaxed);
        self.meter.bytes.fetch_add(range.len, Ordering::Relaxed);
    }
}

impl Layer for Metered {
    type Below = DynDevice;
    const READS: Reads = Reads::Handled;
    const WRITES: Writes = Writes::Refused;

    fn below(&self) -> &DynDevice {
        &self.inner
    }

    fn on_read(&self, range: ByteRange) -> Io<'_, Data> {
        self.count(range);
        self.inner.read(range)
    }

    fn on_lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        let lent = self.inner.lend(range, show);
        if lent.is_some() {
            self.count(range);
        }
        lent
    }

    fn on_answers_at_once(&self) -> bool {
        self.inner.answers_at_once()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_device::memory::Memory;

    #[tokio::test]
    async fn reads_are_counted_and_writes_refused() {
        let (device, meter) = ReadCounter::over(Arc::new(Memory::new(vec![7; 4096])));
        for range in [ByteRange::new(0, 512), ByteRange::new(100, 1)] {
            device.read(range).await.expect("in bounds");
        }
        device.read(ByteRange::new(4096, 1)).await.expect_err("out of bounds");
        assert_eq!((meter.requests(), meter.bytes()), (3, 514));
        device.write(0, Data::zeros(1), false).await.expect_err("read-only");
    }
    #[tokio::test]
    async fn everything_but_changes_is_handed_on() {
        use cheetah_device::layer::conformance::{CHANGES, assert_hands_on};
        assert_hands_on(|below| ReadCounter::over(below).0, &[CHANGES]).await;
    }
}
