//! A device that distributes its bytes over children without redundancy: the engine of `Linear` and `Stripe`.
//!
//! A request is split by the [`Placement`] and sent to the children at the same time, one request each: ranges that are
//! apart in the whole are adjacent on the child. Data read is interleaved, and data to write gathered, by reference; no
//! byte is copied.
//!
//! A child's error is the request's error, unchanged: it names the child and the range on it.

use futures::future::{join_all, try_join_all};
use smallvec::SmallVec;

use crate::device::DynDevice;
use crate::placement::{ChildRange, Layout, Placement};
use crate::{ByteRange, Data, Device, Error, Extent, Geometry, Io, Result, Zeroing};

/// Children, and the placement of bytes on them.
pub struct Spread {
    placement: Placement,
    children: Vec<DynDevice>,
    geometry: Geometry,
}

/// The part of a request for one child: always one range (see [`placement`](crate::placement)).
struct ChildRequest {
    child: usize,
    range: ByteRange,
}

/// The children a request goes to.
enum Route {
    /// None.
    Nowhere,
    /// One.
    One(ChildRange),
    /// Several.
    Many(SmallVec<[ChildRequest; 4]>),
}

impl Spread {
    pub(crate) fn new(layout: Layout, children: Vec<DynDevice>) -> Result<Self> {
        let geometries: Vec<Geometry> = children.iter().map(|child| child.geometry()).collect();
        let sizes: Vec<u64> = geometries.iter().map(|geometry| geometry.size).collect();
        let placement = Placement::new(layout, &sizes)?;
        let geometry = Geometry {
            size: placement.size(),
            writable: geometries.iter().all(|child| child.writable),
            block_preferred: geometries.iter().map(|child| child.block_preferred).max().unwrap_or(1),
        };
        Ok(Self { placement, children, geometry })
    }

    fn route(&self, range: ByteRange) -> Result<Route> {
        self.check(range)?;
        let mut ranges = self.placement.map(range);
        let Some(first) = ranges.next() else { return Ok(Route::Nowhere) };
        if first.range.len == range.len {
            return Ok(Route::One(first));
        }
        let mut parts: SmallVec<[ChildRequest; 4]> = SmallVec::new();
        parts.push(ChildRequest { child: first.child, range: first.range });
        for mapped in ranges {
            match parts.iter_mut().find(|part| part.child == mapped.child) {
                Some(part) => {
                    debug_assert_eq!(part.range.end(), mapped.range.offset, "one range a child");
                    part.range.len += mapped.range.len;
                }
                None => parts.push(ChildRequest { child: mapped.child, range: mapped.range }),
            }
        }
        // A linear device's neighbours, or the last zone's only member, may still be one child.
        Ok(match parts[..] {
            [ChildRequest { child, range: on_child }] => {
                Route::One(ChildRange { child, range: on_child, at: range.offset })
            }
            _ => Route::Many(parts),
        })
    }

    /// Runs an operation on every child of the range. Waits for all of them even if one fails: a failed write must not
    /// take effect after its failure has been reported.
    fn each<'a>(
        &'a self,
        range: ByteRange,
        operation: impl Fn(&'a DynDevice, ByteRange) -> Io<'a, ()> + Send + Sync + 'a,
    ) -> Io<'a, ()> {
        match self.route(range) {
            Err(error) => Io::fail(error),
            Ok(Route::Nowhere) => Io::ok(()),
            Ok(Route::One(mapped)) => operation(&self.children[mapped.child], mapped.range),
            Ok(Route::Many(parts)) => Io::later(async move {
                all(parts.iter().map(|part| operation(&self.children[part.child], part.range))).await
            }),
        }
    }

    /// Interleaves the children's data to the content of `range`.
    fn interleave(&self, range: ByteRange, parts: &[ChildRequest], replies: Vec<Data>) -> Result<Data> {
        let mut cuts = Vec::with_capacity(parts.len());
        for (part, reply) in parts.iter().zip(replies) {
            if reply.len() != part.range.len {
                let why = format!("child {} answered {} with {} bytes", part.child + 1, part.range, reply.len());
                return Err(Error::Invalid(why.into()));
            }
            cuts.push((part, reply));
        }
        let mut whole = Data::new();
        for mapped in self.placement.map(range) {
            if let Some((part, reply)) = cuts.iter().find(|(part, _)| part.child == mapped.child) {
                whole.append(reply.slice(mapped.range.offset - part.range.offset, mapped.range.len));
            }
        }
        Ok(whole)
    }

    /// Gathers the data of each part from `data`, which is to be written at `offset`.
    fn gather(&self, offset: u64, data: &Data, parts: &[ChildRequest]) -> SmallVec<[Data; 4]> {
        let mut gathered: SmallVec<[Data; 4]> = parts.iter().map(|_| Data::new()).collect();
        for mapped in self.placement.map(ByteRange::new(offset, data.len())) {
            if let Some(index) = parts.iter().position(|part| part.child == mapped.child) {
                gathered[index].append(data.slice(mapped.at - offset, mapped.range.len));
            }
        }
        gathered
    }

    fn interleave_extents(&self, range: ByteRange, parts: &[ChildRequest], replies: Vec<Vec<Extent>>) -> Vec<Extent> {
        let mut cursors: Vec<_> = replies.into_iter().map(ExtentCursor::new).collect();
        let mut whole = Vec::new();
        for mapped in self.placement.map(range) {
            if let Some(index) = parts.iter().position(|part| part.child == mapped.child) {
                cursors[index].take(mapped.range.len, &mut whole);
            }
        }
        whole
    }
}

/// Waits for all operations; fails if any failed.
async fn all<'a>(operations: impl Iterator<Item = Io<'a, ()>>) -> Result<()> {
    join_all(operations).await.into_iter().collect()
}

impl Device for Spread {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match self.route(range) {
            Err(error) => Io::fail(error),
            Ok(Route::Nowhere) => Io::ok(Data::new()),
            Ok(Route::One(mapped)) => self.children[mapped.child].read(mapped.range),
            Ok(Route::Many(parts)) => Io::later(async move {
                let replies = try_join_all(parts.iter().map(|part| self.children[part.child].read(part.range))).await?;
                self.interleave(range, &parts, replies)
            }),
        }
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        if !self.geometry.writable {
            return Io::fail(Error::ReadOnly);
        }
        match self.route(ByteRange::new(offset, data.len())) {
            Err(error) => Io::fail(error),
            Ok(Route::Nowhere) => Io::ok(()),
            Ok(Route::One(mapped)) => self.children[mapped.child].write(mapped.range.offset, data, fua),
            Ok(Route::Many(parts)) => Io::later(async move {
                let gathered = self.gather(offset, &data, &parts);
                drop(data);
                all(parts
                    .iter()
                    .zip(gathered)
                    .map(|(part, data)| self.children[part.child].write(part.range.offset, data, fua)))
                .await
            }),
        }
    }

    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        if !self.geometry.writable {
            return Io::fail(Error::ReadOnly);
        }
        self.each(range, move |child, range| child.zero(range, how))
    }

    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        if !self.geometry.writable {
            return Io::fail(Error::ReadOnly);
        }
        self.each(range, |child, range| child.trim(range))
    }

    fn flush(&self) -> Io<'_, ()> {
        match &self.children[..] {
            [only] => only.flush(),
            children => Io::later(all(children.iter().map(|child| child.flush()))),
        }
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        self.each(range, |child, range| child.cache(range))
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        match self.route(range) {
            Err(error) => Io::fail(error),
            Ok(Route::Nowhere) => Io::ok(Vec::new()),
            Ok(Route::One(mapped)) => self.children[mapped.child].extents(mapped.range),
            Ok(Route::Many(parts)) => Io::later(async move {
                let replies =
                    try_join_all(parts.iter().map(|part| self.children[part.child].extents(part.range))).await?;
                Ok(self.interleave_extents(range, &parts, replies))
            }),
        }
    }
}

/// Takes extents from a list by length.
struct ExtentCursor {
    extents: std::vec::IntoIter<Extent>,
    current: Extent,
}

impl ExtentCursor {
    fn new(extents: Vec<Extent>) -> Self {
        Self { extents: extents.into_iter(), current: Extent::data(0) }
    }

    /// Moves the extents of the next `len` bytes to `out`. If the child returned too few, the rest counts as data.
    fn take(&mut self, mut len: u64, out: &mut Vec<Extent>) {
        while len > 0 {
            if self.current.len == 0 {
                self.current = self.extents.next().unwrap_or(Extent::data(len));
            }
            let here = self.current.len.min(len);
            Extent { len: here, ..self.current }.push(out);
            self.current.len -= here;
            len -= here;
        }
    }
}

/// Makes a newtype of [`Spread`] a device.
macro_rules! device_is_its_spread {
    ($device:ty) => {
        impl $crate::Layer for $device {
            type Below = Spread;
            const READS: $crate::layer::Reads = $crate::layer::Reads::PassThrough;
            const WRITES: $crate::layer::Writes = $crate::layer::Writes::PassThrough;

            fn below(&self) -> &Spread {
                &self.0
            }
        }
    };
}
pub(crate) use device_is_its_spread;
