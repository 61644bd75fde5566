//! What the records of a drive say of its content: its digests, and its custody log.

use std::path::Path;

use cheetah_custody::{Custodian, CustodyLog, DriveRecords, SigningKey, VerifiedAt};
use cheetah_drive::chart::{Known, zeros};
use cheetah_drive::file::NodePart;
use cheetah_drive::{DriveFile, Image, ImageState};
use cheetah_error::Result;

use crate::answers::watch::Verification;

/// What was read of the records. It stays the same as long as they do.
#[derive(Debug, Default)]
pub struct Records {
    of: Option<Stamp>,
    /// What the chart shows of it.
    pub known: Known,
    /// The last verification of what is in the drive now.
    pub verification: Option<Verification>,
}

/// By what changed records are recognised, without reading them.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    drive: String,
    size_bytes: u64,
    image: Option<Image>,
    log_bytes: Option<u64>,
}

impl Stamp {
    fn now(file: &DriveFile) -> Self {
        let log_bytes = CustodyLog::path_for(&file.path).metadata().ok().map(|found| found.len());
        Self { drive: file.id.clone(), size_bytes: file.size, image: file.image.clone(), log_bytes }
    }
}

impl Records {
    /// Whether the records are those that this was read of.
    pub fn is_of(&self, file: &DriveFile) -> bool {
        self.of.as_ref() == Some(&Stamp::now(file))
    }

    /// Reads the records of a drive. What they do not say, or what cannot be read, is not known. Blocks.
    pub fn read(file: &DriveFile, custodian: &Custodian) -> Self {
        let of = Some(Stamp::now(file));
        let unread = |what: &str, path: &Path, error: cheetah_error::Error| {
            tracing::debug!("{what} of {}: {error}", path.display());
        };
        let zeros = zeros(file).unwrap_or_else(|error| {
            unread("the digests", &file.path, error);
            Vec::new()
        });
        let (verification, compared) = logged(file, custodian).unwrap_or_else(|error| {
            unread("the custody log", &file.path, error);
            (None, Vec::new())
        });
        let verified = verification.as_ref().is_some_and(|verification| verification.holds);
        Self { of, known: Known { verified, zeros, compared }, verification }
    }
}

/// The last verification that the drive's log records, and the parts of nodes that were compared with the redundancy. A log that is
/// not believed, or that disagrees with the drive file, says nothing.
fn logged(file: &DriveFile, custodian: &Custodian) -> Result<(Option<Verification>, Vec<NodePart>)> {
    let keys = SigningKey::existing()?.iter().map(SigningKey::public).collect();
    let records = DriveRecords::read(file, &custodian.known(keys))?;
    let Some(log) = records.log.filter(|_| records.problems.is_empty()) else { return Ok((None, Vec::new())) };
    let parts = log.compared.map(|compared| compared.parts).unwrap_or_default();
    Ok((log.verified.map(|found| verification(file, found)), parts))
}

fn verification(file: &DriveFile, found: VerifiedAt) -> Verification {
    let verified = found.verified;
    let is_same = verified.size == file.size && file.image.as_ref().is_some_and(|it| it.state == ImageState::Intact);
    Verification {
        at: found.time,
        at_nodes_bytes: verified.at_nodes_bytes,
        holds: verified.ok && verified.digests && is_same,
        ok: verified.ok,
    }
}
