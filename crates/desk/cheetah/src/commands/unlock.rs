//! The options of verbs that read an encrypted volume in place of the source that holds it.

use std::path::PathBuf;
use std::sync::Arc;

use cheetah_source::{Keys, VolumeChoice};

use crate::failure::Result;

/// The keys, and the volume.
#[derive(Debug, Clone, clap::Args)]
pub struct UnlockArgs {
    /// Open encrypted volumes (LUKS, BitLocker) with the keys in this file, one a line: passphrases, recovery passwords, keys in
    /// hexadecimal digits; or with the file itself, a key file, startup key (.BEK) or header. May be given several times
    #[arg(long, value_name = "KEY-FILE", value_hint = clap::ValueHint::FilePath)]
    unlock: Vec<PathBuf>,

    /// The number of the partition whose volume is meant, if several are opened
    #[arg(long, value_name = "N", requires = "unlock")]
    partition: Option<u32>,
}

impl UnlockArgs {
    /// Whether keys are given.
    pub fn is_given(&self) -> bool {
        !self.unlock.is_empty()
    }

    /// Reads the keys; `None` if none are given.
    ///
    /// # Errors
    ///
    /// If a key file cannot be read.
    pub fn choice(&self) -> Result<Option<VolumeChoice>> {
        if !self.is_given() {
            return Ok(None);
        }
        Ok(Some(VolumeChoice { keys: Arc::new(Keys::read(&self.unlock)?), partition: self.partition }))
    }
}
