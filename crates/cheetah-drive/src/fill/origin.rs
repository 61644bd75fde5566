//! Recognising a source: what a drive file records about it, and whether it is still the same.

use std::fmt::Display;
use std::path::Path;
use std::time::UNIX_EPOCH;

use cheetah_device::Size;
use cheetah_error::{Error, Result};
use cheetah_image::{HashChoice, Hashes, Identity, Kind, ServedBy, spec};

use crate::file::Fill;

/// The record of a source that was opened as `spec`.
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
        server: identity.server.clone().map(|server| ServedBy { instance: None, ..server }),
    })
}

/// The error for a source that has changed; `how` says what differs.
pub(super) fn changed(location: &str, how: impl Display) -> Error {
    Error::Evidence(format!(
        "{location} is not what the drive is being filled from: {how}; bring the source back as it was, or create the \
         drive anew"
    ))
}

/// Fails unless `identity` is that of the recorded source.
pub(super) fn recognise(fill: &Fill, identity: &Identity) -> Result<()> {
    let differs = |what: &str, then: &str, now: &str| {
        Err(changed(&fill.location, format_args!("its {what} was {then} and is {now}")))
    };
    let shown = |text: Option<&String>| text.cloned().unwrap_or_else(|| "none".into());
    if fill.size != identity.size {
        return differs("size", &Size(fill.size).to_string(), &Size(identity.size).to_string());
    }
    // Earlier versions wrote down that it was an export, and not what the agent says it is.
    let is_old_export = fill.kind == Kind::Nbd.name() && fill.kind != identity.kind.name();
    if fill.kind != identity.kind.name() && !is_old_export {
        return differs("kind", &fill.kind, identity.kind.name());
    }
    if fill.model != identity.model {
        return differs("model", &shown(fill.model.as_ref()), &shown(identity.model.as_ref()));
    }
    if fill.serial != identity.serial {
        return differs("serial number", &shown(fill.serial.as_ref()), &shown(identity.serial.as_ref()));
    }
    if let Some(then) = &fill.server {
        let now = identity.server.clone().unwrap_or_default();
        let facts = [
            ("export", Some(&then.export), Some(&now.export)),
            ("machine", then.host.as_ref(), now.host.as_ref()),
            ("path on that machine", then.path.as_ref(), now.path.as_ref()),
            ("description", then.description.as_ref(), now.description.as_ref()),
        ];
        if let Some((what, then, now)) = facts.into_iter().find(|(_, then, now)| then != now) {
            return differs(what, &shown(then), &shown(now));
        }
    }
    if fill.claimed != identity.hashes && !is_old_export {
        let shown = |hashes: &Hashes| {
            let list: Vec<_> = hashes.iter().map(|(kind, digest)| format!("{} {digest}", kind.name())).collect();
            if list.is_empty() { "none".to_owned() } else { list.join(", ") }
        };
        return differs("stored hash", &shown(&fill.claimed), &shown(&identity.hashes));
    }
    let modified_ns = spec::path_of(&fill.location).and_then(|(path, _)| modified_ns(&path));
    if fill.modified_ns != modified_ns {
        let seconds = |ns: Option<i64>| {
            ns.map_or_else(|| "unknown".into(), |ns| format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000))
        };
        return differs("time of modification", &seconds(fill.modified_ns), &seconds(modified_ns));
    }
    Ok(())
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
    use cheetah_image::Kind;

    #[test]
    fn a_changed_source_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.raw");
        std::fs::write(&path, [1; 1000]).unwrap();
        let spec = path.to_str().unwrap();
        let mut identity = Identity::new(Kind::Raw, spec, 1000);
        identity.serial = Some("WD-1".into());
        let fill = remember(spec, &identity, HashChoice::ALL).unwrap();
        recognise(&fill, &identity).unwrap();

        type Change = fn(&mut Identity);
        let changes: [(&str, Change); 5] = [
            ("model was none and is ACME", |identity| identity.model = Some("ACME".into())),
            ("stored hash was none and is md5 00", |identity| identity.hashes.md5 = Some("00".into())),
            ("size", |identity| identity.size += 1),
            ("kind", |identity| identity.kind = Kind::E01),
            ("serial number was WD-1 and is none", |identity| identity.serial = None),
        ];
        for (what, change) in changes {
            let mut other = identity.clone();
            change(&mut other);
            let refusal = recognise(&fill, &other).unwrap_err();
            assert!(refusal.to_string().contains(what) && refusal.exit_code() == 3, "{refusal}");
        }
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(UNIX_EPOCH).unwrap();
        assert!(recognise(&fill, &identity).unwrap_err().to_string().contains("time of modification"));
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
        recognise(&fill, &served("/dev/sda", "2")).unwrap();
        let refusal = recognise(&fill, &served("/dev/sdb", "2")).unwrap_err();
        assert!(refusal.exit_code() == 3 && refusal.to_string().contains("was /dev/sda and is /dev/sdb"), "{refusal}");
        assert!(recognise(&fill, &Identity::new(Kind::Nbd, "nbd://h", 1)).is_err());
    }

    #[test]
    fn uris_are_recorded_verbatim_and_paths_absolute() {
        let identity = Identity::new(Kind::Nbd, "nbd://h/x", 1);
        assert_eq!(remember("nbd://h/x", &identity, HashChoice::NONE).unwrap().location, "nbd://h/x");
        let fill = remember("disk.raw", &identity, HashChoice::NONE).unwrap();
        assert!(fill.location.starts_with('/') && fill.location.ends_with("/disk.raw"));
    }
}
