//! What was found in a source, as a stack of layers over it.

use std::sync::Arc;

use cheetah_device::window::Window;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use cheetah_unlock::Unlocked;
use serde::Serialize;

use super::copies::{DescribedCopy, ListedCopy};
use super::not_shown::NotShown;
use super::step::Step;
use super::volume::{Content, Described, InnerVolume};

/// The volumes in a source.
#[derive(Default)]
pub struct VolumeStack {
    /// Those that can be read, in the order in which they were found.
    pub volumes: Vec<InnerVolume>,
    /// What is known of arrays, volume groups and others and cannot be read.
    pub not_opened: Vec<NotShown>,
    /// The shadow copies of its NTFS volumes, shown or not.
    pub copies: Vec<ListedCopy>,
    /// The encrypted volumes, if keys were given: those that are open, and those that stay locked.
    pub unlocked: Option<Unlocked>,
    /// The numbers of the source's partitions that are members of an array or physical volumes of a group; `None` for the whole
    /// source.
    pub(crate) used: Vec<Option<u32>>,
    /// Whether all volumes in it were looked at for shadow copies.
    pub(crate) lists_copies: bool,
    pub(super) steps: Vec<Step>,
}

/// The volumes in a source that are not encrypted, as JSON.
#[derive(Debug, Serialize)]
pub struct StackOutcome<'a> {
    volumes: Vec<Described<'a>>,
    not_opened: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shadow_copies: Vec<DescribedCopy<'a>>,
}

impl VolumeStack {
    /// Describes the volumes, beside the encrypted ones.
    pub fn outcome(&self) -> StackOutcome<'_> {
        let volumes = self.volumes.iter().filter_map(InnerVolume::described).collect();
        let shadow_copies = self.copies.iter().map(ListedCopy::described).collect();
        let not_opened = self.not_opened.iter().map(ToString::to_string).collect();
        StackOutcome { volumes, not_opened, shadow_copies }
    }

    /// Says that there is no shadow copy with this name: a sentence without its end.
    pub(crate) fn no_copy(&self, name: &str) -> String {
        let names: Vec<_> = self.copies.iter().map(|copy| copy.name.as_str()).collect();
        let mut sentence = match &names[..] {
            [] => format!("no shadow copy is called {name}; none was found in it"),
            names => format!("no shadow copy is called {name}; it has {}", cheetah_error::list(names)),
        };
        self.not_opened.iter().for_each(|why| sentence += &format!("; {why}"));
        sentence
    }

    /// Returns what `base`, the device of the source, shows with all steps over it: opened volumes decrypted in their places, and behind
    /// its end the volumes that lie in several pieces.
    pub(crate) fn over(&self, base: DynDevice) -> Result<DynDevice> {
        self.steps.iter().try_fold(base, |below, step| step.over(below))
    }

    /// The same without what is behind the end.
    pub(crate) fn in_place(&self, base: DynDevice) -> Result<DynDevice> {
        let whole = ByteRange::new(0, base.geometry().size);
        if !self.is_decrypted() {
            return Ok(base);
        }
        let window = Window::new(self.over(base)?, whole);
        Ok(Arc::new(window.map_err(Error::device("showing opened volumes"))?))
    }

    /// Whether some of the source is decrypted.
    pub(crate) fn is_decrypted(&self) -> bool {
        self.steps.iter().any(Step::decrypts)
    }

    /// Returns each volume with the end of its name.
    pub(crate) fn devices(&self, base: DynDevice) -> Result<Vec<(String, DynDevice)>> {
        let mut levels = vec![base];
        for step in &self.steps {
            levels.push(step.over(Arc::clone(&levels[levels.len() - 1]))?);
        }
        let device = |volume: &InnerVolume| Ok((volume.name.clone(), volume.over(&levels[volume.below])?));
        self.volumes.iter().map(device).collect()
    }

    /// Returns one of its volumes over sources that were opened again: the source, and the others in the order in which they were given.
    pub(crate) fn device_again(
        &self,
        base: DynDevice,
        others: &[DynDevice],
        volume: &InnerVolume,
    ) -> Result<DynDevice> {
        let steps = &self.steps[..volume.below.min(self.steps.len())];
        volume.over(&steps.iter().try_fold(base, |below, step| step.reopened(others).over(below))?)
    }

    /// Returns one of its volumes.
    pub(crate) fn device(&self, base: DynDevice, volume: &InnerVolume) -> Result<DynDevice> {
        let steps = &self.steps[..volume.below.min(self.steps.len())];
        volume.over(&steps.iter().try_fold(base, |below, step| step.over(below))?)
    }

    /// Returns the pieces in the source, of `size` bytes, of each volume that lies in it as a list of pieces.
    pub(crate) fn pieces(&self, size: u64) -> impl Iterator<Item = Vec<ByteRange>> {
        let pieces = |one: &InnerVolume| match &one.content {
            Content::Assembled(volume) => volume.pieces(),
            Content::Opened(_) | Content::Partition { .. } => Some(vec![one.range]),
        };
        let are_inside = move |pieces: &Vec<ByteRange>| pieces.iter().all(|piece| piece.fits(size));
        self.volumes.iter().filter_map(pieces).filter(are_inside)
    }
}

impl InnerVolume {
    /// Shows it over the steps that are below it.
    fn over(&self, below: &DynDevice) -> Result<DynDevice> {
        match &self.content {
            Content::Assembled(volume) => volume.over(below),
            Content::Opened(_) | Content::Partition { .. } => {
                let window = Window::new(Arc::clone(below), self.range);
                Ok(Arc::new(window.map_err(Error::device("showing a volume"))?))
            }
        }
    }
}
