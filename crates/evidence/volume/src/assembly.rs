//! Volumes that are put together from parts at places of a device, of any kind: what was found, and the limits of the look.

use cheetah_device::ByteRange;
use futures::{StreamExt as _, stream};

/// The maximum number of places that are examined: those that lie first.
pub const PLACES_MAX: usize = 64;
/// The number of places that are examined at the same time. Limits the memory for their metadata.
const AT_ONCE: usize = 8;

/// The volumes that were put together from parts at places of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembly<Volume, NotOpened> {
    /// Those that can be read, in an order that is always the same.
    pub volumes: Vec<Volume>,
    /// What is known and cannot be read.
    pub not_opened: Vec<NotOpened>,
    /// Which of the places that were looked at are parts of such a volume, or were.
    pub places: Vec<ByteRange>,
}

impl<Volume, NotOpened> Default for Assembly<Volume, NotOpened> {
    fn default() -> Self {
        Self { volumes: Vec::new(), not_opened: Vec::new(), places: Vec::new() }
    }
}

/// Examines each place once, some at the same time; returns the outcomes in the order of the places. At most some are examined.
pub(crate) async fn examine_each<Look: Future>(
    places: &[ByteRange],
    examine: impl Fn(ByteRange) -> Look,
) -> Vec<Look::Output> {
    let mut places = places.to_vec();
    places.sort();
    places.dedup();
    let looks: Vec<_> = places.into_iter().take(PLACES_MAX).map(examine).collect();
    stream::iter(looks).buffered(AT_ONCE).collect().await
}
