//! Sources that are read once, from start to end, and what is known of them.

use std::sync::Arc;
use std::time::Duration;

use cheetah_drive::fill::OpenSource;
use cheetah_drive::{Drive, DriveFile, OpenOptions};
use cheetah_image::Identity;
use cheetah_nbd::{Method, Packing};

use crate::Result;
use crate::kind::drive_file;

/// Opens a source to be read once, with what is known of it.
pub async fn identified(text: &str, timeout: Duration) -> Result<cheetah_image::Source> {
    let Some(path) = drive_file(text) else {
        return cheetah_image::open(text, &source_options(timeout)).await;
    };
    let file = DriveFile::load(&path)?;
    let options = OpenOptions { timeout, prefetch_budget: 0, ..OpenOptions::default() };
    // Read only, so there is nothing to let go of but the device.
    let device = Drive::open(&file, options).await?.device();
    let mut identity = Identity::new(cheetah_image::Kind::Drive, text, file.size);
    identity.serial = Some(file.id);
    Ok(cheetah_image::Source { device, identity, name: file.name })
}

/// How sources are opened. Agents are asked to pack what they send as they see fit.
pub(crate) fn source_options(timeout: Duration) -> cheetah_image::OpenOptions {
    let packing = Packing::Wanted(Method::Auto);
    cheetah_image::OpenOptions { timeout, packing, ..cheetah_image::OpenOptions::default() }
}

/// How a drive opens its source, whenever it must.
pub fn opener(timeout: Duration) -> OpenSource {
    Arc::new(move |spec| Box::pin(async move { identified(&spec, timeout).await }))
}
