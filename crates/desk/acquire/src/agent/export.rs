//! The device that an agent offers, and its description.

use cheetah_device::layer::{Layer, Reads, Writes};
use cheetah_device::{ByteRange, Data, Device as _, DynDevice, Extent, Io};
use cheetah_image::Identity;
use cheetah_nbd::proto::{STRING_LEN_MAX, X_CHEETAH};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use tokio::sync::Semaphore;

/// The longest read of the device; longer ones are split. Buffers of one size are reused.
const PIECE_LEN: u64 = 1 << 20;
/// Pieces of one read in flight.
const PIECES_AT_ONCE: usize = 4;
/// Reads of the device in flight. More gain little on any disk, and each takes a thread.
const READS_MAX: usize = 16;

/// A device with a limit on the reads in flight.
pub(super) struct ReadLimiter {
    inner: DynDevice,
    turns: Semaphore,
}

impl ReadLimiter {
    pub fn new(inner: DynDevice) -> Self {
        Self { inner, turns: Semaphore::new(READS_MAX) }
    }
}

impl Layer for ReadLimiter {
    type Below = DynDevice;
    // Nothing is lent: that would bypass the limit.
    const READS: Reads = Reads::Handled;
    const WRITES: Writes = Writes::Refused;

    fn below(&self) -> &DynDevice {
        &self.inner
    }

    fn on_read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            stream::iter(range.split_at_multiples(PIECE_LEN))
                .map(|piece| async move {
                    // The semaphore is never closed.
                    let _turn = self.turns.acquire().await;
                    self.inner.read(piece).await
                })
                .buffered(PIECES_AT_ONCE)
                .try_fold(Data::new(), |mut all, piece| async move {
                    all.append(piece);
                    Ok(all)
                })
                .await
        })
    }

    fn on_extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        Io::later(async move {
            let _turn = self.turns.acquire().await;
            self.inner.extents(range).await
        })
    }
}

/// What an agent says of the disk that it serves.
#[derive(Serialize)]
struct Described<'a> {
    #[serde(flatten)]
    identity: &'a Identity,
    host: &'a str,
    name: &'a str,
    run: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    remarks: &'a [String],
}

/// Returns the identity as one line, with the export's name, remarks on the device, the machine's name and a random id of this
/// process. By that id a client recognises that an agent was restarted, and may serve another disk, and distinguishes further
/// connections of the same agent from those of others.
pub(super) fn describe(identity: &Identity, name: &str, remarks: &[String]) -> Result<String, cheetah_error::Error> {
    let host = cheetah_kit::machine::host_name();
    let run = cheetah_kit::random::id()?;
    let line = |identity: &Identity| {
        let described = Described { identity, host: &host, name, run: &run, remarks };
        let value = serde_json::to_string(&described);
        value.map(|value| format!("{X_CHEETAH}{value}")).map_err(|error| {
            cheetah_error::Error::failed(format!("the description of the disk cannot be written: {error}"))
        })
    };
    let all = line(identity)?;
    if all.len() <= STRING_LEN_MAX {
        return Ok(all);
    }
    // Too long with an image's case data and unreadable ranges: leave these out.
    let (unreadable, case) = Default::default();
    let short = line(&Identity { unreadable, case, ..identity.clone() })?;
    Ok(if short.len() <= STRING_LEN_MAX { short } else { String::new() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use cheetah_image::Kind;

    #[test]
    fn the_description_is_the_identity_and_never_too_long() {
        let mut identity = Identity::new(Kind::Block, "/dev/sda", 1 << 40);
        identity.serial = Some("S1\n\"2".into());
        let read = |text: &str| -> Identity { serde_json::from_str(text.strip_prefix(X_CHEETAH).unwrap()).unwrap() };
        let described = |identity: &Identity| describe(identity, "sda", &["it changes".into()]).unwrap();
        assert_eq!(read(&described(&identity)), identity);
        assert!(!described(&identity).contains('\n'));
        assert!(described(&identity) != described(&identity), "the descriptions of two processes differ");
        identity.unreadable = (0..1000).map(|at| ByteRange::new(at * 1024, 512)).collect();
        let short = described(&identity);
        assert!(short.len() <= STRING_LEN_MAX && read(&short).serial == identity.serial);
    }
    #[tokio::test]
    async fn everything_but_changes_and_lending_is_handed_on() {
        use cheetah_device::layer::conformance::Operation::{AnswersAtOnce, Lend};
        use cheetah_device::layer::conformance::{CHANGES, assert_hands_on};
        assert_hands_on(|below| Arc::new(ReadLimiter::new(below)), &[CHANGES, &[Lend, AnswersAtOnce]]).await;
    }
}
