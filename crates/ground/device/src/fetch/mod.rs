//! Code shared by the layers that fetch: [prefetch](crate::prefetch), [cache](crate::cache),
//! [copy-on-read](crate::copy_on_read).

mod background;
mod pending;
mod read_bitmap;

pub(crate) use self::background::Background;
pub(crate) use self::pending::PendingFetch;
pub(crate) use self::read_bitmap::ReadBitmap;
