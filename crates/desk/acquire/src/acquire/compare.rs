//! Comparing a volume of a disk or an image with an image of its content.

use cheetah_device::compare::{Compared, Side, compare};
use cheetah_error::{Error, Result};
use cheetah_image::{Identity, Watching};
use cheetah_source::{Evidence, InnerVolume, OpenedAlone, UnlockOutcome, VolumeChoice};

use crate::engine::{watch, watch_all};
use crate::order::Opener;

/// Which volume is compared, and with what.
pub struct CompareOrder {
    /// Opens the image or disk that holds the volume.
    pub of: Opener,
    /// The volume, the keys, and the other disks.
    pub choice: VolumeChoice,
    /// Opens the image of its content.
    pub image: Opener,
}

/// Both, open.
pub struct Comparison {
    volume: Evidence,
    image: Evidence,
    /// The volume.
    found: InnerVolume,
    /// What the keys did to the encrypted volumes of the disks, if there were any.
    unlocked: Option<UnlockOutcome>,
}

/// The result.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeCompared {
    /// The disks and images that the volume lies on, in their order.
    pub disks: Vec<Identity>,
    /// The name of the volume, as that of its file in a mount.
    pub name: String,
    /// What the volume is.
    pub description: String,
    /// Bytes of its content.
    pub volume_size_bytes: u64,
    /// What the keys did to the encrypted volumes of the disks, if keys were given.
    pub unlocked: Option<UnlockOutcome>,
    /// The image.
    pub image: Identity,
    /// The bytes of both, the volume first.
    pub content: Compared,
}

impl VolumeCompared {
    /// Whether the image has all bytes of the volume, and no others.
    pub fn is_equal(&self) -> bool {
        self.volume_size_bytes == self.image.size && self.content.is_equal()
    }

    /// The offset of the first byte that differs, or that only the longer one has.
    pub fn first_difference(&self) -> Option<u64> {
        let shorter = self.volume_size_bytes.min(self.image.size);
        let beyond = (self.volume_size_bytes != self.image.size).then_some(shorter);
        self.content.first_difference().or(beyond)
    }
}

impl Comparison {
    /// Opens both, and tries the keys.
    ///
    /// # Errors
    ///
    /// If one of them cannot be opened, the volume is not found, or no key opens it.
    pub async fn open(order: CompareOrder) -> Result<Self> {
        let CompareOrder { of, choice, image } = order;
        let image = image().await?;
        let OpenedAlone { evidence: volume, volume: found, stack } = choice.open(of().await?).await?;
        let unlocked = stack.unlocked.map(|unlocked| unlocked.outcome());
        Ok(Self { volume, image, found, unlocked })
    }

    /// What is in doubt about the disks and the image although they can be read, a sentence each.
    pub fn doubts(&self) -> Vec<String> {
        self.volume.source.notes.iter().chain(&self.image.source.notes).cloned().collect()
    }

    /// The number of bytes that both have.
    pub fn both_bytes(&self) -> u64 {
        self.volume.source.identity.size.min(self.image.source.identity.size)
    }

    /// Compares them. `progress` is called with the number of bytes that were looked at.
    ///
    /// # Errors
    ///
    /// `Kind::Device` if one of them is lost, `Kind::Evidence` if a file of one of them was written to meanwhile.
    pub async fn run(self, progress: impl FnMut(u64) + Send) -> Result<VolumeCompared> {
        let Self { volume, image, found, unlocked } = self;
        let mut watching = watch_all(&volume).await;
        watching.push(watch(&image.source).await);
        let compared = compare(&volume.source.device, &image.source.device, progress).await;
        let content = compared.map_err(|failed| {
            let of = match failed.side {
                Side::First => &volume.source.identity.location,
                Side::Second => &image.source.identity.location,
            };
            Error::device(format!("reading {of}"))(failed.error)
        })?;
        // All of it was read: a change since the last read is found now, or never.
        watching.iter().try_for_each(Watching::check)?;
        Ok(VolumeCompared {
            disks: volume.disks.iter().map(|disk| disk.identity.clone()).collect(),
            name: found.name.clone(),
            description: found.description(),
            volume_size_bytes: volume.source.identity.size,
            unlocked,
            image: image.source.identity,
            content,
        })
    }
}
