//! Opens a source as the user names it: a drive, a URI, an image or a disk.

use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;

use cheetah_drive::fill::OpenSource;
use cheetah_drive::{Drive, DriveFile, Session};
use cheetah_image::spec::is_uri;
use cheetah_image::{Evidence, Identity, Kind, Source};
use cheetah_nbd::uri::NbdUri;

use crate::kind::drive_file;
use crate::link::LinkUse;
use crate::network::{open_iscsi, open_nbd};
use crate::not_empty::not_empty;
use crate::options::SourceOptions;
use crate::web::open_web;
use cheetah_error::{Error, Result};

/// Opens the source that `spec` names, without layers above it: its device, its identity, and the counters of its link.
///
/// # Errors
///
/// `Kind::Misuse` if `spec` names no source, `Kind::Evidence` for an image that is incomplete or damaged,
/// `Kind::Failed` for anything else, such as a format that cannot be read.
pub async fn open(spec: &str, options: &SourceOptions) -> Result<Evidence> {
    open_any(spec, options).await.and_then(not_empty)
}

async fn open_any(spec: &str, options: &SourceOptions) -> Result<Evidence> {
    let SourceOptions { link, ref session, apply_map, in_order, exclusive, .. } = *options;
    match spec.split_once("://") {
        Some(("nbd" | "nbds" | "nbd+unix" | "nbds+unix", _)) => {
            let uri = NbdUri::from_str(spec).map_err(|error| Error::misuse(error.to_string()))?;
            return open_nbd(uri, spec, options).await;
        }
        Some(("iscsi", _)) => return open_iscsi(spec, options).await,
        Some(("http" | "https" | "s3", _)) => return open_web(spec, options).await,
        Some((scheme, _)) if is_uri(spec) && !scheme.contains('/') && !Path::new(spec).exists() => {
            return Err(Error::misuse(format!(
                "{spec}: {scheme} is not supported; give a path, or an nbd://, nbds://, nbd+unix://, iscsi://, https:// \
                 or s3:// URI"
            )));
        }
        _ => {}
    }
    if let Some(path) = drive_file(spec) {
        return open_drive(spec, &path, session).await.map(Evidence::from);
    }
    let connections = link.connections;
    let timeout = session.timeout;
    let options = cheetah_image::OpenOptions { timeout, connections, apply_map, in_order, exclusive };
    cheetah_image::open(spec, &options).await.map(Evidence::from)
}

async fn open_drive(spec: &str, path: &Path, session: &Session) -> Result<Source> {
    let file = DriveFile::load(path)?;
    let options = cheetah_drive::OpenOptions { prefetch_budget: 0, ..cheetah_drive::OpenOptions::new(session.clone()) };
    // The device of a drive that is only read keeps all that its reads need.
    let device = Drive::open(&file, options).await?.device();
    let identity = Identity { serial: Some(file.id), ..Identity::new(Kind::Drive, spec, file.size) };
    Ok(Source::new(device, identity, file.name))
}

/// How a drive that is filled while it is used opens its source: a server that cannot show that it is the same process is
/// recognised anew after each lost connection.
pub fn opener(link: LinkUse, session: Session) -> OpenSource {
    Arc::new(move |spec| {
        let options = SourceOptions { trust_reconnects: false, ..SourceOptions::new(link, session.clone()) };
        Box::pin(async move { open(&spec, &options).await })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_unsupported_scheme_is_a_misuse() {
        let options = SourceOptions::new(
            LinkUse::default(),
            Session::new(Default::default(), Arc::default(), Duration::from_secs(60)),
        );
        let error = open("ftp://host/disk.raw", &options).await.err().expect("no source");
        assert!(error.is_misuse(), "{error}");
        assert!(error.to_string().contains("nbd://"), "{error}");
    }

    #[tokio::test]
    async fn a_drive_letter_is_no_scheme() {
        let session = Session::new(Default::default(), Arc::default(), Duration::from_secs(60));
        let options = SourceOptions::new(LinkUse::default(), session);
        for path in ["C://case/x.raw", r"C:\case\x.raw", r"\\server\share\x.raw"] {
            let error = open(path, &options).await.err().expect("no source");
            assert!(!error.is_misuse(), "{path}: {error}");
        }
    }
}
