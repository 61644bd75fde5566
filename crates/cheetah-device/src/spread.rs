//! The engine under every device that spreads its bytes over children without redundancy.
//!
//! A request is cut by the [`Placement`] and dispatched to the children at the same time, one request each:
//! pieces that are apart in the whole are neighbours on the child. What the children read is interleaved again
//! by reference, and what they are to write is gathered by reference; no byte is copied here.
//!
//! A child's error is the request's error, as it is: it names the child and the range on it.

use futures::future::{join_all, try_join_all};
use smallvec::SmallVec;

use crate::device::DynDevice;
use crate::placement::{Layout, Piece, Placement};
use crate::{ByteRange, Data, Device, Error, Extent, Geometry, Io, Result, Zeroing};

/// Children and which of them holds what.
pub struct Spread {
    placement: Placement,
    children: Vec<DynDevice>,
    geometry: Geometry,
}

/// What one request asks of one child: always one range (see [`placement`](crate::placement)).
struct Part {
    child: usize,
    range: ByteRange,
}

/// Where a request goes.
enum Route {
    /// There is nothing to do.
    Nowhere,
    /// To one child as it is.
    One(Piece),
    /// To several.
    Many(SmallVec<[Part; 4]>),
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
        let mut pieces = self.placement.map(range);
        let Some(first) = pieces.next() else { return Ok(Route::Nowhere) };
        if first.range.len == range.len {
            return Ok(Route::One(first));
        }
        let mut parts: SmallVec<[Part; 4]> = SmallVec::new();
        parts.push(Part { child: first.child, range: first.range });
        for piece in pieces {
            match parts.iter_mut().find(|part| part.child == piece.child) {
                Some(part) => {
                    debug_assert_eq!(part.range.end(), piece.range.offset, "one range a child");
                    part.range.len += piece.range.len;
                }
                None => parts.push(Part { child: piece.child, range: piece.range }),
            }
        }
        // A linear device's neighbours, or the last zone's only member, may still be one child.
        Ok(match parts[..] {
            [Part { child, range: on_child }] => Route::One(Piece { child, range: on_child, at: range.offset }),
            _ => Route::Many(parts),
        })
    }

    /// Runs an operation that yields nothing on every child concerned. Waits for all of them even if one fails:
    /// a failed write must not still be landing after the failure has been told.
    fn each<'a>(
        &'a self,
        range: ByteRange,
        operation: impl Fn(&'a DynDevice, ByteRange) -> Io<'a, ()> + Send + Sync + 'a,
    ) -> Io<'a, ()> {
        match self.route(range) {
            Err(error) => Io::fail(error),
            Ok(Route::Nowhere) => Io::ok(()),
            Ok(Route::One(piece)) => operation(&self.children[piece.child], piece.range),
            Ok(Route::Many(parts)) => Io::later(async move {
                all(parts.iter().map(|part| operation(&self.children[part.child], part.range))).await
            }),
        }
    }

    /// Joins what the parts' children read to the content of `range`.
    fn interleave(&self, range: ByteRange, parts: &[Part], replies: Vec<Data>) -> Result<Data> {
        let mut cuts = Vec::with_capacity(parts.len());
        for (part, reply) in parts.iter().zip(replies) {
            if reply.len() != part.range.len {
                let why = format!("child {} answered {} with {} bytes", part.child + 1, part.range, reply.len());
                return Err(Error::Invalid(why.into()));
            }
            cuts.push((part, reply));
        }
        let mut whole = Data::new();
        for piece in self.placement.map(range) {
            if let Some((part, reply)) = cuts.iter().find(|(part, _)| part.child == piece.child) {
                whole.append(reply.slice(piece.range.offset - part.range.offset, piece.range.len));
            }
        }
        Ok(whole)
    }

    /// Gathers, for each of the parts, what of `data` (to be written at `offset`) goes there.
    fn gather(&self, offset: u64, data: &Data, parts: &[Part]) -> SmallVec<[Data; 4]> {
        let mut gathered: SmallVec<[Data; 4]> = parts.iter().map(|_| Data::new()).collect();
        for piece in self.placement.map(ByteRange::new(offset, data.len())) {
            if let Some(index) = parts.iter().position(|part| part.child == piece.child) {
                gathered[index].append(data.slice(piece.at - offset, piece.range.len));
            }
        }
        gathered
    }

    fn interleave_extents(&self, range: ByteRange, parts: &[Part], replies: Vec<Vec<Extent>>) -> Vec<Extent> {
        let mut cursors: Vec<_> = replies.into_iter().map(ExtentCursor::new).collect();
        let mut whole = Vec::new();
        for piece in self.placement.map(range) {
            if let Some(index) = parts.iter().position(|part| part.child == piece.child) {
                cursors[index].take(piece.range.len, &mut whole);
            }
        }
        whole
    }
}

/// Finishes when all have; fails if any has.
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
            Ok(Route::One(piece)) => self.children[piece.child].read(piece.range),
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
            Ok(Route::One(piece)) => self.children[piece.child].write(piece.range.offset, data, fua),
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
            Ok(Route::One(piece)) => self.children[piece.child].extents(piece.range),
            Ok(Route::Many(parts)) => Io::later(async move {
                let replies =
                    try_join_all(parts.iter().map(|part| self.children[part.child].extents(part.range))).await?;
                Ok(self.interleave_extents(range, &parts, replies))
            }),
        }
    }
}

/// Hands out a list of extents a piece at a time.
struct ExtentCursor {
    extents: std::vec::IntoIter<Extent>,
    current: Extent,
}

impl ExtentCursor {
    fn new(extents: Vec<Extent>) -> Self {
        Self { extents: extents.into_iter(), current: Extent::data(0) }
    }

    /// Moves the next `len` bytes' extents to `out`. Should the child have told too few, the rest may be data.
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
