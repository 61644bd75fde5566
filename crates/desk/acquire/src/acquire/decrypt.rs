//! Acquiring a volume of an image or a disk: its content, decrypted if it was encrypted.

use std::sync::Arc;

use cheetah_custody::{ContentOf, CustodyLog, Decrypted, VolumeOf, verify_log};
use cheetah_device::path_text::path_to_text;
use cheetah_error::{Error, Result};
use cheetah_image::ewf::write::E01Options;
use cheetah_image::{CaseData, Hashes, Identity, Source, SourceFile, spec};
use cheetah_source::{InnerVolume, OpenedAlone, VolumeChoice, VolumeStack, alone};
use futures::FutureExt as _;

use super::begin::is_same_file;
use super::run::acquire;
use crate::order::{AcquireEvent, Destination, Opener, Request};
use crate::report::Report;

/// Which volume is decrypted, and into what.
pub struct DecryptOrder {
    /// Opens the image or disk that holds it.
    pub of: Opener,
    /// The volume, and the keys.
    pub choice: VolumeChoice,
    /// The image that gets its content.
    pub into: Destination,
}

/// Acquires a volume, with the options of `request`, whose source and destinations do not count. The custody log and the
/// report say what it is, and of what, with the hashes of that.
///
/// # Errors
///
/// As [`acquire`], and if the volume is not found, or no key opens it.
pub async fn decrypt(
    order: DecryptOrder,
    request: &Request,
    stop: impl Future<Output = &'static str> + Send,
    events: impl FnMut(AcquireEvent) + Send,
) -> Result<Report> {
    let mut stop = std::pin::pin!(stop);
    let request = tokio::select! {
        biased;
        why = &mut stop => return Err(Error::failed(format!("stopped by {why} before anything was decrypted"))),
        prepared = prepare(order, request) => prepared?,
    };
    acquire(request, stop, events).await
}

/// The acquisition of the volume.
async fn prepare(order: DecryptOrder, request: &Request) -> Result<Request> {
    let DecryptOrder { of, choice, into } = order;
    let evidence = of().await?;
    let (identity, files) = (evidence.source.identity.clone(), evidence.source.files.clone());
    let OpenedAlone { evidence, volume, stack } = choice.open(evidence).await?;
    let is_read = |file: &SourceFile| is_same_file(&path_to_text(&file.path), &into);
    if is_same_file(&identity.location, &into) || files.iter().any(is_read) {
        return Err(Error::misuse(format!("{into} is the source itself, which is never written; choose another name")));
    }
    let e01 = noted(&request.e01, &evidence.source);
    let location = identity.location.clone();
    let content = content_of((location, hashes_of(identity, request)), &stack, &volume);
    // The keys are tried once: whether it is the same source whenever it is opened again, the acquisition finds out.
    let found = Arc::new((stack, volume));
    let source: Opener = Arc::new(move || {
        let (of, found) = (of.clone(), Arc::clone(&found));
        async move { alone(of().await?, &found.0, &found.1) }.boxed()
    });
    Ok(Request {
        source,
        destinations: vec![into],
        e01,
        window_bytes: None,
        unlock: None,
        content: Some(content),
        ..request.clone()
    })
}

/// Says of what an image with the content of a volume is made: the image or disk that holds it, with its hashes, and the volume.
pub fn content_of((of, hashes): (String, Hashes), stack: &VolumeStack, volume: &InnerVolume) -> ContentOf {
    match volume.opened() {
        Some(opened) => ContentOf::Decrypted(Decrypted { of, hashes, volume: opened.clone() }),
        None => ContentOf::Volume(VolumeOf {
            of,
            hashes,
            name: volume.name.clone(),
            description: volume.description(),
            size_bytes: volume.range.len,
            opened: stack.unlocked.as_ref().map(|unlocked| unlocked.opened.clone()).unwrap_or_default(),
        }),
    }
}

/// The options of an E01 whose notes say that it is decrypted, as far as there is space for that.
fn noted(e01: &E01Options, volume: &Source) -> E01Options {
    let said = format!("content of {}", volume.identity.location);
    let notes = e01.case.notes.as_ref().map_or(said.clone(), |notes| format!("{said}; {notes}"));
    let noted = E01Options { case: CaseData { notes: Some(notes), ..e01.case.clone() }, ..e01.clone() };
    if noted.check().is_ok() { noted } else { e01.clone() }
}

/// The hashes of the image or disk that holds the volume: those that its custody log has, or else those that it states itself.
fn hashes_of(source: Identity, request: &Request) -> Hashes {
    // The log of an object is in the current folder.
    let object = || source.location.parse::<Destination>().ok().filter(|to| to.object.is_some()).map(|to| to.path);
    let path = spec::path_of(&source.location).map(|(path, _)| path).or_else(object);
    let log = path.map(|path| CustodyLog::path_for(&path)).filter(|log| log.symlink_metadata().is_ok());
    let keys = request.key.iter().map(cheetah_custody::SigningKey::public).collect();
    let report = log.and_then(|log| verify_log(&log, &request.custodian.known(keys)).ok());
    let signed = report.filter(|report| report.problem.is_none()).and_then(|report| report.signed().cloned());
    signed.filter(|signed| signed.size == source.size).map_or(source.hashes, |signed| signed.hashes)
}
