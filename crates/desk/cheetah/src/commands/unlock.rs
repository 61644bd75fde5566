//! The options of verbs that read a volume in place of the source that holds it.

use std::path::PathBuf;
use std::sync::Arc;

use cheetah_source::{Keys, OpenOther, VolumeChoice, WhichVolume};

use super::options::source;
use crate::failure::{Failure, Result};

/// The keys, and the volume.
#[derive(Debug, Clone, clap::Args)]
pub struct UnlockArgs {
    /// Open encrypted volumes (LUKS, BitLocker, VeraCrypt) with the keys in this file, one a line: passphrases, recovery passwords,
    /// keys in hexadecimal digits, veracrypt:PASSWORD; or with the file itself, a key file, startup key (.BEK) or header. May be
    /// given several times
    #[arg(long, value_name = "KEY-FILE", value_hint = clap::ValueHint::FilePath)]
    unlock: Vec<PathBuf>,

    #[command(flatten)]
    which: WhichArgs,

    /// Another disk or image that has parts of the same arrays and volume groups. May be given several times
    #[arg(long = "with", value_name = "SOURCE", value_parser = source())]
    others: Vec<String>,
}

/// The volume.
#[derive(Debug, Clone, clap::Args)]
pub struct WhichArgs {
    /// The number of the partition whose volume is meant, if --unlock opens several
    #[arg(long, value_name = "N", requires = "unlock", conflicts_with = "volume")]
    partition: Option<u32>,

    /// The volume that is meant, as mount names it: a logical volume (vg-home), an array (md0), a partition in one (md0.p1), an
    /// opened volume (p2.unlocked), or a shadow copy (p2.vss1)
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
}

impl WhichArgs {
    /// The volume that is meant; `None` if neither keys are given nor a volume is named.
    pub fn which(&self, has_keys: bool) -> Option<WhichVolume> {
        match (&self.volume, self.partition) {
            (Some(name), _) => Some(WhichVolume::Named(name.clone())),
            (None, Some(number)) => Some(WhichVolume::OpenedPartition(number)),
            (None, None) => has_keys.then_some(WhichVolume::Opened),
        }
    }
}

impl UnlockArgs {
    /// Whether a volume is meant.
    pub fn is_given(&self) -> bool {
        self.which.which(!self.unlock.is_empty()).is_some() || !self.others.is_empty()
    }

    /// The other disks and images, as the user named them.
    pub fn others(&self) -> &[String] {
        &self.others
    }

    /// Reads the keys; `None` if the source as a whole is meant. `opener` makes what opens another disk.
    ///
    /// # Errors
    ///
    /// If a key file cannot be read, or other disks are given and no volume.
    pub fn choice(&self, opener: impl Fn(&str) -> OpenOther) -> Result<Option<VolumeChoice>> {
        let Some(which) = self.which.which(!self.unlock.is_empty()) else {
            return match self.others.is_empty() {
                true => Ok(None),
                false => Err(Failure::misused(
                    "--with names the other disks of a volume: say which volume is meant, with --unlock or --volume",
                )),
            };
        };
        let keys = (!self.unlock.is_empty()).then(|| Keys::read(&self.unlock)).transpose()?;
        let others = self.others.iter().map(|text| opener(text)).collect();
        Ok(Some(VolumeChoice { keys: keys.map(Arc::new), which, others }))
    }
}
