//! The record of a fill's source in the drive file, and the detection of changes to that source.

use std::path::Path;
use std::time::UNIX_EPOCH;

use cheetah_device::ByteRange;
use cheetah_error::{Error, Result};
use cheetah_image::identity::Difference;
use cheetah_image::{HashChoice, Identity, Kind, spec};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;

use crate::file::Fill;

/// Returns the record of a source that was opened as `spec`.
pub(super) fn remember(spec: &str, identity: &Identity, hashes: HashChoice) -> Result<Fill> {
    let location = spec::absolute(spec)?;
    Ok(Fill {
        kind: identity.kind.name().to_owned(),
        modified_ns: spec::path_of(&location).and_then(|(path, _)| modified_ns(&path)),
        location,
        size: identity.size,
        sector_size: identity.sector_size,
        model: identity.model.clone(),
        serial: identity.serial.clone(),
        hashes: hashes.to_string(),
        claimed: identity.hashes.clone(),
        server: identity.server.clone(),
    })
}

/// How a source has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Change {
    /// Its identity differs.
    #[error("{0}")]
    Identity(Difference),
    /// Its kind is not known.
    #[error("its kind was {0}")]
    UnknownKind(String),
    /// The file has been written to.
    #[error("its time of modification was {then} and is now {now}")]
    Modified { then: String, now: String },
    /// Another process serves it, so its bytes would have to be compared.
    #[error("it is served by another process, which makes no digests to compare")]
    OtherProcess,
    /// Its bytes differ.
    #[error("{0} has another content now")]
    Content(ByteRange),
}

/// The error for a source that has changed.
pub(super) fn changed(location: &str, how: Change) -> Error {
    Error::evidence(format!(
        "{location} is not what the drive is being filled from: {how}; bring the source back as it was, or create the \
         drive anew"
    ))
    .because(how)
}

/// Fails if the recorded identity differs from `now`, opened at the same location. Equal identities do not prove equal
/// bytes.
pub(super) fn known_changes(fill: &Fill, now: &Identity) -> Result<()> {
    if let Some(difference) = recorded(fill, now)?.differences(now).into_iter().next() {
        return Err(changed(&fill.location, Change::Identity(difference)));
    }
    let modified_ns = spec::path_of(&fill.location).and_then(|(path, _)| modified_ns(&path));
    if fill.modified_ns != modified_ns {
        let seconds = |ns: Option<i64>| {
            ns.map_or_else(|| "unknown".into(), |ns| format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000))
        };
        let (then, now) = (seconds(fill.modified_ns), seconds(modified_ns));
        return Err(changed(&fill.location, Change::Modified { then, now }));
    }
    Ok(())
}

/// Returns the recorded identity. Fields that earlier versions did not record are taken from `now`.
fn recorded(fill: &Fill, now: &Identity) -> Result<Identity> {
    let kind: std::result::Result<Kind, serde::de::value::Error> =
        Kind::deserialize(fill.kind.as_str().into_deserializer());
    let kind = kind.map_err(|_| changed(&fill.location, Change::UnknownKind(fill.kind.clone())))?;
    // Earlier versions recorded an export's kind, not the one that the agent reports.
    let is_old_export = kind == Kind::Nbd && fill.server.is_none();
    Ok(Identity {
        sector_size: if is_old_export { now.sector_size } else { fill.sector_size },
        model: fill.model.clone(),
        serial: fill.serial.clone(),
        hashes: if is_old_export { now.hashes.clone() } else { fill.claimed.clone() },
        server: fill.server.clone().or_else(|| now.server.clone()),
        // The recorded location was opened; an identity may spell it differently.
        ..Identity::new(if is_old_export { now.kind } else { kind }, now.location.as_str(), fill.size)
    })
}

/// The modification time of the regular file at `path`; `None` for anything else.
fn modified_ns(path: &Path) -> Option<i64> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let since = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_image::ServedBy;

    #[test]
    fn a_changed_source_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.raw");
        std::fs::write(&path, [1; 1000]).unwrap();
        let spec = path.to_str().unwrap();
        let mut identity = Identity::new(Kind::Raw, spec, 1000);
        identity.serial = Some("WD-1".into());
        let fill = remember(spec, &identity, HashChoice::ALL).unwrap();
        known_changes(&fill, &identity).unwrap();

        type Edit = fn(&mut Identity);
        let changes: [(&str, &str, &str, Edit); 6] = [
            ("model", "unknown", "ACME", |identity| identity.model = Some("ACME".into())),
            ("stored hash", "none", "md5 00", |identity| identity.hashes.md5 = Some("00".into())),
            ("size", "1000", "1001", |identity| identity.size += 1),
            ("sector size", "unknown", "4096", |identity| identity.sector_size = Some(4096)),
            ("kind", "raw", "e01", |identity| identity.kind = Kind::E01),
            ("serial number", "WD-1", "unknown", |identity| identity.serial = None),
        ];
        for (what, then, now, edit) in changes {
            let mut other = identity.clone();
            edit(&mut other);
            let refusal = known_changes(&fill, &other).unwrap_err();
            assert!(refusal.is_evidence(), "{refusal}");
            let Some(Change::Identity(found)) = refusal.cause() else { panic!("{refusal}") };
            assert_eq!((found.what, &*found.then, &*found.now), (what, then, now));
        }
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(UNIX_EPOCH).unwrap();
        let refusal = known_changes(&fill, &identity).unwrap_err();
        assert!(matches!(refusal.cause(), Some(Change::Modified { .. })), "{refusal}");
    }

    #[test]
    fn an_agent_that_serves_another_disk_at_the_same_address_is_another_source() {
        let server = |path: &str, instance: &str| {
            let (path, instance) = (Some(path.to_owned()), Some(instance.to_owned()));
            Some(ServedBy { path, instance, ..ServedBy::default() })
        };
        let served =
            |path, instance| Identity { server: server(path, instance), ..Identity::new(Kind::Nbd, "nbd://h", 1) };
        let fill = remember("nbd://h", &served("/dev/sda", "1"), HashChoice::NONE).unwrap();
        known_changes(&fill, &served("/dev/sda", "2")).unwrap();
        let refusal = known_changes(&fill, &served("/dev/sdb", "2")).unwrap_err();
        let Some(Change::Identity(found)) = refusal.cause() else { panic!("{refusal}") };
        assert_eq!((&*found.then, &*found.now), ("/dev/sda", "/dev/sdb"));
        assert!(known_changes(&fill, &Identity::new(Kind::Nbd, "nbd://h", 1)).is_err());
    }

    #[test]
    fn uris_are_recorded_verbatim_and_paths_absolute() {
        let identity = Identity::new(Kind::Nbd, "nbd://h/x", 1);
        assert_eq!(remember("nbd://h/x", &identity, HashChoice::NONE).unwrap().location, "nbd://h/x");
        let fill = remember("disk.raw", &identity, HashChoice::NONE).unwrap();
        assert!(fill.location.starts_with('/') && fill.location.ends_with("/disk.raw"));
    }
}
