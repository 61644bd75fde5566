//! Who is told what a fill does with evidence, so that it goes on record.

use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_image::{Error, Identity, Result};

use crate::file::Image;

/// Something that happened while a drive was being filled.
#[derive(Debug, Clone)]
pub enum Happened {
    /// Somebody goes on filling. `source` is as it was found now; `None` if it does not answer.
    Opened {
        /// The source's identity.
        source: Option<Identity>,
        /// Bytes the drive had already.
        read: u64,
    },
    /// The source failed.
    Lost {
        /// Why.
        why: String,
    },
    /// It is there again, and the same.
    Back {
        /// Its identity, as it was found now.
        source: Identity,
    },
    /// What is there now is not what the drive is being filled from.
    Changed {
        /// What differs.
        what: String,
    },
    /// Everything that can be read is there, was read back and compared.
    Complete {
        /// As the drive file has it.
        image: Image,
        /// What could not be read.
        unreadable: Vec<ByteRange>,
    },
    /// The filling will get no further in this process.
    Failed {
        /// Why.
        why: String,
    },
    /// It ended in good order, and may go on later.
    Stopped {
        /// Bytes the drive has.
        read: u64,
    },
}

/// Puts on record what happens.
pub trait Witness: Send + Sync {
    /// Puts `event` on stable storage; blocks for as long as that takes.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded. Then the source is not used any further.
    fn tell(&self, event: Happened) -> Result<()>;
}

/// Tells a witness, where there is one, without holding up the runtime.
#[derive(Clone, Default)]
pub(super) struct Told(Option<Arc<dyn Witness>>);

impl Told {
    pub(super) fn new(witness: Option<Arc<dyn Witness>>) -> Self {
        Self(witness)
    }

    pub(super) async fn tell(&self, event: Happened) -> Result<()> {
        let Some(witness) = self.0.clone() else { return Ok(()) };
        let told = tokio::task::spawn_blocking(move || witness.tell(event)).await;
        told.map_err(|died| Error::failed(format!("keeping the record of a filling: {died}")))?
    }

    /// Where there is nothing left that could be kept from happening.
    pub(super) async fn tell_the_end(&self, event: Happened) {
        if let Err(error) = self.tell(event).await {
            tracing::warn!("not on record: {error}");
        }
    }
}
