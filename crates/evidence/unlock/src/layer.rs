//! The layer that shows opened volumes in their places.

use std::sync::Arc;

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, Data, Device, DynDevice, Extent, Io, Result, try_io};

use crate::opened::Opened;

/// Volumes of a device that were opened together. Clones share them.
#[derive(Clone, Default)]
pub struct OpenedVolumes(Arc<[Opened]>);

impl OpenedVolumes {
    /// Takes volumes that do not overlap, in any order.
    pub(crate) fn new(mut volumes: Vec<Opened>) -> Self {
        volumes.sort_by_key(Opened::range);
        Self(volumes.into())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Shows them in `below`, which has the offsets of the device: each sector where it lies encrypted.
    pub fn over(&self, below: DynDevice) -> DynDevice {
        match self.is_empty() {
            true => below,
            false => Arc::new(Decrypted { below, volumes: self.clone() }),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Opened> {
        self.0.iter()
    }

    /// The parts of a range in order, each with the volume that it lies in.
    fn parts(&self, range: ByteRange) -> Vec<(Option<&Opened>, ByteRange)> {
        let (mut parts, mut at) = (Vec::new(), range.offset);
        for volume in self.iter() {
            let Some(inside) = volume.range().intersection(range) else { continue };
            let before = ByteRange::between(at, inside.offset);
            parts.extend((!before.is_empty()).then_some((None, before)));
            parts.push((Some(volume), inside));
            at = inside.end();
        }
        let after = ByteRange::between(at, range.end());
        parts.extend((!after.is_empty()).then_some((None, after)));
        parts
    }

    async fn read(&self, below: &dyn Device, range: ByteRange) -> Result<Data> {
        let mut content = Data::new();
        let reads = self.parts(range).into_iter().map(|(volume, part)| async move {
            match volume {
                Some(volume) => volume.read(below, part).await,
                None => below.read(part).await,
            }
        });
        for data in futures::future::try_join_all(reads).await? {
            content.append(data);
        }
        Ok(content)
    }
}

/// A device in which the opened volumes read decrypted, each where it lies encrypted. Read-only.
struct Decrypted {
    below: DynDevice,
    volumes: OpenedVolumes,
}

impl Layer for Decrypted {
    type Below = DynDevice;
    const READS: Reads = Reads::Handled;
    const WRITES: Writes = Writes::Refused;

    fn below(&self) -> &DynDevice {
        &self.below
    }

    fn on_read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range));
        match self.volumes.parts(range).as_slice() {
            [] | [(None, _)] => self.below.read(range),
            _ => Io::later(self.volumes.read(&*self.below, range)),
        }
    }

    /// What is fetched below is encrypted.
    fn on_take_prefetched(&self, _range: ByteRange) -> Vec<(u64, Data)> {
        Vec::new()
    }

    /// Holes and zeros below are none in a volume: they are decrypted too.
    fn on_extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        match self.volumes.parts(range).as_slice() {
            [] | [(None, _)] => self.below.extents(range),
            _ => Io::ok(vec![Extent::data(range.len)]),
        }
    }
}
