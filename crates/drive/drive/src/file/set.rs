//! A set, together with the drive that it belongs to.

use cheetah_error::{Error, Result};

use super::{DriveFile, Set, SetNode};

/// A set of a drive. If it has redundancy, it has a map, leases and connections of its own, apart from those of the
/// drive's other sets.
#[derive(Debug, Clone)]
pub(crate) struct DriveSet {
    /// The drive. It has the set.
    pub drive: DriveFile,
    /// The index of the set. Sets are never removed or reordered.
    pub index: usize,
}

impl DriveSet {
    /// A set of a drive; `None` if the drive does not have it, for example because its file is an old copy.
    pub fn of(drive: DriveFile, index: usize) -> Option<Self> {
        (index < drive.sets.len()).then_some(Self { drive, index })
    }

    /// All sets of a drive.
    pub fn all(drive: &DriveFile) -> impl Iterator<Item = Self> {
        (0..drive.sets.len()).map(|index| Self { drive: drive.clone(), index })
    }

    /// Changes the drive file, as [`DriveFile::update`].
    ///
    /// # Errors
    ///
    /// The same, and if the file does not have the set.
    pub fn update(&mut self, change: impl FnOnce(&mut DriveFile)) -> Result<()> {
        let mut drive = self.drive.clone();
        drive.update(change)?;
        let older = || {
            let path = self.drive.path.display();
            Error::failed(format!(
                "{path} is an older copy, made before the drive was enlarged; put the newer one back"
            ))
        };
        *self = Self::of(drive, self.index).ok_or_else(older)?;
        Ok(())
    }

    /// Its entry in the drive file.
    pub fn entry(&self) -> &Set {
        &self.drive.sets[self.index]
    }

    /// Its nodes, in order.
    pub fn nodes(&self) -> &[SetNode] {
        &self.entry().nodes
    }

    /// The index of its first node among those of the drive.
    pub fn first_node(&self) -> usize {
        self.drive.sets[..self.index].iter().map(|set| set.nodes.len()).sum()
    }

    /// The number of its nodes that may be lost without losing a byte.
    pub fn losses_max(&self) -> usize {
        self.entry().layout().losses_max()
    }

    /// The bytes of data that it holds, which the regions of its map divide.
    pub fn capacity(&self) -> u64 {
        self.entry().size
    }
}
