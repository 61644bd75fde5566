//! The sets of a redundant drive, opened. Each has a map, leases and connections of its own.

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device as _, DynDevice};
use cheetah_error::{Error, Result};
use cheetah_redundancy::{Alternative, Redundant};
use futures::future::try_join_all;

use super::open::Opened;
use crate::file::set::DriveSet;
use crate::file::{DriveFile, Set, places};
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

    /// The nodes that are missing.
    pub fn missing(&self) -> impl Iterator<Item = &Trouble> {
        self.sets.iter().flat_map(|set| &set.missing)
    }

    /// Whether all of the drive can be read.
    pub fn is_readable(&self) -> bool {
        self.sets.iter().all(|set| set.readable)
    }

    /// The ways to read ranges of the drive without one of their members.
    pub fn without_one(&self, file: &DriveFile) -> WithoutOne {
        let arrays = self.sets.iter().map(|set| set.redundant.clone()).collect();
        WithoutOne { sets: file.sets.clone(), arrays }
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

/// Reads ranges of a drive without one of the members that hold them. Members are numbered as the nodes of the drive.
pub(crate) struct WithoutOne {
    sets: Vec<Set>,
    arrays: Vec<Arc<Redundant>>,
}

impl WithoutOne {
    /// A layer above can tell whether content is right: see [`Redundant::set_authenticated`].
    pub fn set_authenticated(&self) {
        self.arrays.iter().for_each(|array| array.set_authenticated());
    }

    /// Reads a range without each of its members, in every possible way.
    pub async fn read(&self, range: ByteRange) -> Vec<Alternative> {
        let pieces = places::in_sets(&self.sets, range);
        let mut found = Vec::new();
        for (at, (set, piece)) in pieces.iter().enumerate() {
            for Alternative { without, data } in self.arrays[*set].alternatives(*piece).await {
                // The other pieces are read as usual: one member at a time returns wrong bytes.
                let before = self.join(&pieces[..at]).await;
                let after = self.join(&pieces[at + 1..]).await;
                if let (Ok(mut whole), Ok(after)) = (before, after) {
                    whole.append(data);
                    whole.append(after);
                    found.push(Alternative { without: self.first_member(*set) + without, data: whole });
                }
            }
        }
        found
    }

    /// Writes the part of a range that a member holds to that member alone.
    pub async fn restore(&self, range: ByteRange, data: &Data, member: usize) -> cheetah_device::Result<()> {
        let mut at = 0;
        for (set, piece) in places::in_sets(&self.sets, range) {
            let own = data.slice(at, piece.len);
            at += piece.len;
            let first = self.first_member(set);
            if (first..first + self.sets[set].nodes.len()).contains(&member) {
                self.arrays[set].restore(piece, own, member - first).await?;
            }
        }
        Ok(())
    }

    /// The name of a member.
    pub fn name(&self, member: usize) -> Arc<str> {
        let set = (0..self.sets.len()).rev().find(|set| self.first_member(*set) <= member).unwrap_or(0);
        self.arrays[set].members().name(member - self.first_member(set)).clone()
    }

    fn first_member(&self, set: usize) -> usize {
        self.sets[..set].iter().map(|set| set.nodes.len()).sum()
    }

    async fn join(&self, pieces: &[(usize, ByteRange)]) -> cheetah_device::Result<Data> {
        let mut whole = Data::new();
        for (set, piece) in pieces {
            whole.append(self.arrays[*set].read(*piece).await?);
        }
        Ok(whole)
    }
}
