//! Reads whose content is packed. They are answered in parts of up to 1 MiB, as other large reads (see
//! [`split`](super::split)).

use std::sync::Arc;

use cheetah_device::{ByteRange, Device, Error, Io};

use super::split_state::SplitReadState;
use crate::packing::{Chunk, Method, Packer};

/// How a connection's reads are packed.
#[derive(Clone)]
pub(super) struct ReplyPacking {
    pub(super) method: Method,
    pub(super) packer: Arc<Packer>,
}

impl ReplyPacking {
    /// Reads and packs a part of a read.
    pub(super) fn part(self, device: &dyn Device, range: ByteRange, whole: Arc<SplitReadState>) -> Io<'_, Vec<Chunk>> {
        Io::later(async move {
            if whole.has_failed() {
                return Ok(Vec::new());
            }
            let data = device.read(range).await?;
            if data.len() != range.len {
                return Err(Error::Invalid("the device answered with another length".into()));
            }
            self.packer.pack(self.method, range.offset, data).await
        })
    }
}
