//! Recognising a source that is opened again, before anything more is acquired from it; see [`cheetah_drive::recognise`].
//! Where something is known to differ, the examiner may vouch for the source.

use cheetah_device::ByteRange;
use cheetah_device::coverage::State;
use cheetah_drive::digests::{CHUNK_BYTES, digest};
pub use cheetah_drive::recognise::Compared;
use cheetah_drive::recognise::{Cause, Comparing, Comparison, Opening, Pieces};
use cheetah_kit::clock::now_s;
use cheetah_source::Evidence;

use super::disks::{ComparedDisks, compare};
use super::unrecognised::Unrecognised;
use crate::journal::{self, AcquisitionState};

/// Compares a source with the data acquired from it.
///
/// # Errors
///
/// `Kind::Evidence` if it is not, or may not be, the source that was acquired from; `Kind::Device` if it cannot be
/// read.
pub async fn recognise(
    state: &AcquisitionState,
    evidence: &Evidence,
    (cause, same_source, compare_all): (Cause, bool, bool),
    compared: Compared<'_>,
) -> Result<Opening, Unrecognised> {
    let (then, now) = (&state.start.source, &evidence.source.identity);
    let ComparedDisks { mut vouched, disks } = compare(&state.start.disks, &evidence.disks, same_source).await?;
    // Where the machine and the path are known and equal, another size is a change.
    let is_another = then.server.is_none() || then.differences(now).iter().any(|difference| !difference.is_final);
    let changes = journal::known_changes(then, now, same_source)
        .map_err(|error| if is_another { Unrecognised::Another(error) } else { Unrecognised::Failed(error) })?;
    // A process may serve several disks: one that is vouched for is compared.
    let is_vouched_for = !changes.is_empty();
    vouched.extend(changes);
    state.start.same_protection(now).map_err(Unrecognised::Another)?;
    let instance = now.instance();
    let comparison = if !is_vouched_for && instance.is_some() && instance == state.instance.as_ref() {
        Comparison::SameInstance
    } else {
        let client = evidence.digests_client().await?;
        if client.is_none() && state.instance.is_some() {
            let why = "it is served by another process, which makes no digests to compare";
            if !same_source {
                return Err(Unrecognised::Another(journal::unknown_source(&now.location, why)));
            }
            vouched.push(why.to_owned());
        }
        let location = &state.start.source.location;
        let changed = |chunk: ByteRange| journal::changed(location, format_args!("{chunk} has another content now"));
        let mut comparing = Comparing { location, changed: &changed, compared, all: compare_all };
        // Chunks that were acquired whole.
        let chunks = Pieces::within(state.coverage().in_state(State::Read), CHUNK_BYTES, state.start.source.size);
        let equal = match &client {
            Some(client) => {
                let is_known = |chunk: ByteRange, found: &_| Ok(state.digests.get(chunk.offset) == Some(found));
                comparing.by_digests(client, &chunks, is_known).await?
            }
            None => {
                let is_known = |chunk: ByteRange, data: &_| Ok(state.digests.get(chunk.offset) == Some(&digest(data)));
                comparing.by_samples(&evidence.source.device, &chunks, is_known).await?
            }
        };
        comparing.conclude(equal, chunks.bytes())?
    };
    Ok(Opening {
        at_s: now_s(),
        at: state.at,
        cause,
        instance: instance.cloned(),
        write_protected: now.write_protected,
        vouched,
        comparison,
        disks,
    })
}
