//! Recognising a source that is opened again, before anything more is acquired from it; see [`cheetah_drive::recognise`].
//! Where something is known to differ, the examiner may vouch for the source (`--same-source`).

use cheetah_device::ByteRange;
use cheetah_device::coverage::State;
use cheetah_drive::digests::{CHUNK_BYTES, digest};
pub use cheetah_drive::recognise::Compared;
use cheetah_drive::recognise::{Comparing, Pieces};
use cheetah_error::Result;

use crate::acquire::Evidence;
use crate::journal::{self, Cause, Comparison, Opening, Past};

/// Compares a source with what was acquired of it.
///
/// # Errors
///
/// [`Error::Evidence`] if it is not, or may not be, the source that was acquired from; [`Error::Device`] if it cannot be
/// read.
pub async fn recognise(
    done: &Past,
    evidence: &Evidence,
    (cause, same_source): (Cause, bool),
    compared: Compared<'_>,
) -> Result<Opening> {
    let now = &evidence.source.identity;
    let mut vouched = journal::known_changes(&done.start.source, now, same_source)?;
    done.start.same_protection(now)?;
    let instance = now.instance();
    let comparison = if instance.is_some() && instance == done.instance.as_ref() {
        Comparison::SameInstance
    } else {
        let client = evidence.digests_client().await?;
        if client.is_none() && done.instance.is_some() {
            let why = "it is served by another process, which makes no digests to compare";
            if !same_source {
                return Err(journal::unknown_source(&now.location, why));
            }
            vouched.push(why.to_owned());
        }
        let location = &done.start.source.location;
        let changed = |chunk: ByteRange| journal::changed(location, format_args!("{chunk} has another content now"));
        let mut comparing = Comparing { location, changed: &changed, compared };
        // Chunks that were acquired whole.
        let chunks = Pieces::within(done.coverage().in_state(State::Read), CHUNK_BYTES, done.start.source.size);
        let equal = match &client {
            Some(client) => {
                let is_known = |chunk: ByteRange, found: &_| Ok(done.digests.get(chunk.offset) == Some(found));
                comparing.by_digests(client, &chunks, is_known).await?
            }
            None => {
                let is_known = |chunk: ByteRange, data: &_| Ok(done.digests.get(chunk.offset) == Some(&digest(data)));
                comparing.by_samples(&evidence.source.device, &chunks, is_known).await?
            }
        };
        comparing.conclude(equal, chunks.bytes())?
    };
    Ok(Opening {
        at_s: journal::now_s(),
        at: done.at,
        cause,
        instance: instance.cloned(),
        write_protected: now.write_protected,
        vouched,
        comparison,
    })
}
