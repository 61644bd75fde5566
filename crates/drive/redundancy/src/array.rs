//! An array: equal members that together hold data and its redundancy.
//!
//! While every member is ready, a read is a stripe read. Otherwise, and for writes, a request is split into groups
//! (`read`, `write`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cheetah_device::stripe::Stripe;
use cheetah_device::window::Window;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Extent, Geometry, Io, Result, Zeroing, try_io};

use crate::digest_cells::DigestCells;
use crate::geometry::ArrayGeometry;
use crate::members::{Failure, Members};
use crate::range_lock::RangeLock;

/// The most bytes that are zeroed at a time: meanwhile, other requests to them wait.
const ZERO_BYTES_MAX: u64 = 256 << 20;

/// An array as a device.
#[derive(Clone)]
pub(crate) struct Array {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub geometry: ArrayGeometry,
    /// What the device says of itself. Kept, because each request is checked against it.
    shown: Geometry,
    pub members: Arc<Members>,
    /// For each member of this array, its number in the drive and the offset of its part there.
    pub places: Vec<(usize, u64)>,
    /// Where the array begins in the drive.
    pub start: u64,
    /// Locks on groups.
    pub locks: RangeLock,
    pub digest_cells: DigestCells,
    /// A layer above authenticates content. See [`Redundant::set_authenticated`](crate::Redundant::set_authenticated).
    pub is_authenticated: AtomicBool,
    /// The data sections, for reading while all is well.
    stripe: Stripe,
}

impl Array {
    /// An array over `places`: the number of each member in the drive, and the offset of its part there. The array's
    /// data begins at `start` of the drive.
    pub fn new(geometry: ArrayGeometry, members: Arc<Members>, places: Vec<(usize, u64)>, start: u64) -> Result<Self> {
        if places.len() != geometry.members() {
            return Err(Error::Invalid("an array has a place for each of its members".into()));
        }
        let section = ByteRange::new(0, geometry.data_section_bytes());
        let sections = places.iter().map(|(member, offset)| -> Result<DynDevice> {
            let member =
                MemberContent { members: members.clone(), member: *member, size: offset + geometry.member_bytes() };
            Ok(Arc::new(Window::new(Arc::new(member), section.shifted(*offset))?))
        });
        let stripe = Stripe::new(geometry.unit(), sections.collect::<Result<_>>()?)?;
        let (locks, digest_cells) = (RangeLock::default(), DigestCells::default());
        let is_authenticated = AtomicBool::new(false);
        let shown = Geometry {
            size: geometry.size(),
            writable: members.is_writer(),
            block_preferred: crate::geometry::PAGE_BYTES as u32,
        };
        let inner = Inner { geometry, shown, members, places, start, locks, digest_cells, is_authenticated, stripe };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs a change in a task of its own: it must run to its end even if its caller is dropped.
    fn change<F>(&self, change: impl FnOnce(Arc<Inner>) -> F) -> Io<'static, ()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        if !self.inner.members.is_writer() {
            return Io::fail(Error::ReadOnly);
        }
        let task = tokio::spawn(change(self.inner.clone()));
        Io::later(async move {
            task.await.unwrap_or_else(|error| Err(Error::Invalid(format!("a write ended early: {error}").into())))
        })
    }
}

impl Inner {
    /// Reads a range. A page that the map records as bad at any time during the read is an error: a member in sync may
    /// hold other bytes there.
    async fn read(self: &Arc<Self>, range: ByteRange) -> Result<Data> {
        loop {
            let changes = self.members.bad_changes();
            self.check_good(range)?;
            let data = self.read_unchecked(range).await?;
            if self.members.bad_changes() == changes {
                return Ok(data);
            }
        }
    }

    async fn read_unchecked(self: &Arc<Self>, range: ByteRange) -> Result<Data> {
        if self.holders_are_ready(range)
            && let Ok(data) = self.stripe.read(range).await
        {
            return Ok(data);
        }
        // Boxed, so that a healthy read does not allocate for it.
        Box::pin(self.read_degraded(range)).await
    }

    /// Whether all members that hold data of a range of the array can be read.
    fn holders_are_ready(&self, range: ByteRange) -> bool {
        if self.members.all_ready() {
            return true;
        }
        let unit = self.geometry.unit();
        let units = range.offset / unit..range.end().div_ceil(unit);
        let members = self.places.len() as u64;
        units.end - units.start < members
            && units.into_iter().all(|unit| self.members.is_ready(self.places[(unit % members) as usize].0))
    }
}

impl Device for Array {
    fn geometry(&self) -> Geometry {
        self.inner.shown
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range));
        Io::later(async move {
            self.inner.members.may_read(range.shifted(self.inner.start)).await?;
            self.inner.members.foreground(range.len / self.inner.geometry.members() as u64);
            self.inner.read(range).await
        })
    }

    fn write(&self, offset: u64, data: Data, fua: bool) -> Io<'_, ()> {
        try_io!(self.check(ByteRange::new(offset, data.len())));
        if data.is_empty() {
            return Io::ok(());
        }
        self.inner.members.foreground(data.len() / self.inner.geometry.data_units() as u64);
        self.change(move |inner| async move { inner.write(offset, data, fua).await })
    }

    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        if how.fast_only {
            return Io::fail(Error::Unsupported("a redundant drive writes its redundancy along with zeros"));
        }
        try_io!(self.check(range));
        // One request may zero a range of any length.
        Io::later(async move {
            for piece in range.split_at_multiples(ZERO_BYTES_MAX) {
                self.write(piece.offset, Data::zeros(piece.len), how.fua).await?;
            }
            Ok(())
        })
    }

    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        self.zero(range, Zeroing::default())
    }

    fn flush(&self) -> Io<'_, ()> {
        if !self.inner.members.is_writer() {
            return Io::ok(());
        }
        self.change(|inner| async move { inner.flush().await })
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        if self.inner.members.all_ready() { self.inner.stripe.cache(range) } else { Io::ok(()) }
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        try_io!(self.check(range));
        Io::later(async move {
            self.inner.members.may_read(range.shifted(self.inner.start)).await?;
            // Members report bad pages as zeros.
            if self.inner.members.all_ready()
                && self.inner.check_good(range).is_ok()
                && let Ok(extents) = self.inner.stripe.extents(range).await
            {
                return Ok(extents);
            }
            Ok(vec![Extent::data(range.len)])
        })
    }
}

/// The content of a member, read over its current connection.
struct MemberContent {
    members: Arc<Members>,
    member: usize,
    size: u64,
}

impl Device for MemberContent {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, writable: false, block_preferred: crate::geometry::PAGE_BYTES as u32 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move { self.members.read(self.member, range, false).await.map_err(Failure::into_error) })
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        Io::later(async move {
            match self.members.link(self.member) {
                Some(link) => link.device().cache(range).await,
                None => Ok(()),
            }
        })
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        Io::later(async move {
            match self.members.link(self.member) {
                Some(link) if self.members.is_in_sync(self.member) => link.device().extents(range).await,
                _ => Ok(vec![Extent::data(range.len)]),
            }
        })
    }
}
