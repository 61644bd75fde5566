//! Sources that are read once, from start to end, and what is known of them.

use std::sync::Arc;
use std::time::Duration;

use cheetah_drive::fill::OpenSource;
use cheetah_drive::{Drive, DriveFile, OpenOptions};
use cheetah_image::Identity;

use crate::Result;
use crate::kind::drive_file;
use crate::link::LinkUse;

/// Opens a source to be read once, with what is known of it.
pub async fn identified(text: &str, link: LinkUse, timeout: Duration) -> Result<cheetah_image::Source> {
    let Some(path) = drive_file(text) else {
        return cheetah_image::open(text, &source_options(link, timeout)).await;
    };
    let file = DriveFile::load(&path)?;
    let options = OpenOptions { timeout, prefetch_budget: 0, ..OpenOptions::default() };
    // Read only, so there is nothing to let go of but the device.
    let device = Drive::open(&file, options).await?.device();
    let mut identity = Identity::new(cheetah_image::Kind::Drive, text, file.size);
    identity.serial = Some(file.id);
    Ok(cheetah_image::Source { device, identity, name: file.name })
}

/// How sources are opened.
pub(crate) fn source_options(link: LinkUse, timeout: Duration) -> cheetah_image::OpenOptions {
    let (connections, packing) = (link.connections, link.packing());
    cheetah_image::OpenOptions { timeout, connections, packing, ..cheetah_image::OpenOptions::default() }
}

/// How a drive opens its source, whenever it must.
pub fn opener(link: LinkUse, timeout: Duration) -> OpenSource {
    Arc::new(move |spec| Box::pin(async move { identified(&spec, link, timeout).await }))
}
