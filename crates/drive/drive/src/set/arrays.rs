//! The sets of a redundant drive, opened. Each has a map, leases and connections of its own.

use std::sync::Arc;

use cheetah_device::DynDevice;
use cheetah_error::{Error, Result};
use cheetah_redundancy::Redundant;
use cheetah_seal::device::Alternatives;
use futures::future::try_join_all;

use super::open::Opened;
use super::without_one::WithoutOne;
use crate::file::set::DriveSet;
use crate::file::{DriveFile, places};
use crate::lease::Fence;
use crate::node::trouble::Trouble;
use crate::options::OpenOptions;

/// The open sets of a redundant drive, in file order.
pub(crate) struct Arrays {
    sets: Vec<Opened>,
    device: DynDevice,
    fence: Option<Arc<Fence>>,
}

impl Arrays {
    /// Opens all sets as `options` say.
    pub async fn open(file: &DriveFile, options: &OpenOptions) -> Result<Self> {
        let fence = Arc::<Fence>::default();
        let sets: Vec<DriveSet> = DriveSet::all(file).collect();
        if !options.writable {
            let opened = try_join_all(sets.iter().map(|set| Opened::open(set, options, fence.clone()))).await?;
            return Self::stack(file, opened, None);
        }
        // One after the other, so that of two writers one gets all leases.
        let mut opened = Vec::new();
        for set in &sets {
            match Opened::open(set, options, fence.clone()).await {
                Ok(set) => opened.push(set),
                Err(error) => {
                    close(opened).await.unwrap_or_else(|error| tracing::warn!("{error}"));
                    return Err(error);
                }
            }
        }
        Self::stack(file, opened, Some(fence))
    }

    /// Puts open sets together.
    pub fn stack(file: &DriveFile, sets: Vec<Opened>, fence: Option<Arc<Fence>>) -> Result<Self> {
        let devices = sets.iter().map(Opened::device).collect();
        let bad = Error::device(format!("assembling {}", file.name));
        let device = places::stack(&file.sets, devices).map_err(bad)?;
        Ok(Self { sets, device, fence })
    }

    /// The device, as large as all sets together. A reader's device can be read as long as it exists, even after this is
    /// dropped.
    pub fn device(&self) -> DynDevice {
        self.device.clone()
    }

    /// The fence of the leases; `None` if it is open for reading.
    pub fn fence(&self) -> Option<Arc<Fence>> {
        self.fence.clone()
    }

    /// The open sets.
    pub fn sets(&self) -> &[Opened] {
        &self.sets
    }

    /// The open sets, in file order, to let tasks look after them.
    pub fn sets_mut(&mut self) -> &mut [Opened] {
        &mut self.sets
    }

    /// The nodes that are missing.
    pub fn missing(&self) -> impl Iterator<Item = &Trouble> {
        self.sets.iter().flat_map(|set| &set.missing)
    }

    /// Whether all of the drive can be read.
    pub fn is_readable(&self) -> bool {
        self.sets.iter().all(|set| set.readable)
    }

    /// The ways to read ranges of the drive without one of their members, for a layer above that can tell whether content
    /// is right: see [`Redundant::set_authenticated`].
    pub fn alternatives(&self, file: &DriveFile) -> Arc<dyn Alternatives> {
        let arrays: Vec<Arc<Redundant>> = self.sets.iter().map(|set| set.redundant.clone()).collect();
        arrays.iter().for_each(|array| array.set_authenticated());
        Arc::new(WithoutOne { sets: file.sets.clone(), arrays })
    }

    /// Closes all sets, as [`Opened::close`]. Flush the drive first.
    pub async fn close(self) -> Result<()> {
        let Self { sets, device, .. } = self;
        drop(device);
        close(sets).await
    }
}

/// Closes sets, even if closing one of them fails.
pub(crate) async fn close(sets: Vec<Opened>) -> Result<()> {
    let mut closed = Ok(());
    for set in sets {
        closed = closed.and(set.close().await);
    }
    closed
}
