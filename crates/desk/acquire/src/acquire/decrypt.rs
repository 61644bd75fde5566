//! Acquiring a volume of an image or a disk: its content, decrypted if it was encrypted.

use std::sync::Arc;

use cheetah_custody::{ContentOf, CustodyLog, Decrypted, VolumeOf, verify_log};
use cheetah_error::{Error, Result};
use cheetah_image::ewf::write::E01Options;
use cheetah_image::{CaseData, Hashes, Identity, Source, spec};
use cheetah_source::{Evidence, InnerVolume, VolumeChoice, VolumeStack, alone};
use futures::FutureExt as _;

use super::run::acquire;
use crate::engine::compare_disks;
use crate::journal::{BETWEEN_NOTES, Journal};
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
    let others = choice.open_others().await?;
    let (stack, volume) = match choice.find(&evidence.source, &others).await {
        Ok(found) => found,
        Err(error) => return Err(changed_disk(&into, request, &evidence, &others).await.unwrap_or(error)),
    };
    let evidence = alone(evidence, others, &stack, &volume)?;
    let (e01, noted) = noted(&request.e01, &evidence);
    let disks = evidence.disks.iter().map(|disk| {
        let hashes = hashes_of(disk.identity.clone(), request);
        Identity { hashes, ..disk.identity.clone() }
    });
    let content = content_of(disks.collect(), &stack, &volume);
    // The keys are tried once: whether these are the same disks whenever they are opened again, the acquisition finds out.
    let found = Arc::new((choice, stack, volume));
    let source: Opener = Arc::new(move || {
        let (of, found) = (of.clone(), Arc::clone(&found));
        async move {
            let (choice, stack, volume) = &*found;
            let evidence = of().await?;
            alone(evidence, choice.open_others().await?, stack, volume)
        }
        .boxed()
    });
    Ok(Request {
        source,
        destinations: vec![into],
        e01,
        window_bytes: None,
        unlock: None,
        content: Some(content),
        noted,
        ..request.clone()
    })
}

/// The error for a disk that is not as it was when the acquisition into `into` began, if there is such a one: it may be why the volume
/// is not found any more.
async fn changed_disk(into: &Destination, request: &Request, first: &Evidence, others: &[Evidence]) -> Option<Error> {
    let begun = Journal::beginning(&into.beside("acquire")).filter(|_| !request.restart)?;
    let disks: Vec<_> = std::iter::once(first).chain(others).map(|one| one.source.clone()).collect();
    let changed = compare_disks(&begun.disks, &disks, request.same_source).await.err()?.into_error();
    changed.is_evidence().then_some(changed)
}

/// Says of what an image with the content of a volume is made: the images or disks that hold it, each with its hashes, and the volume.
pub fn content_of(disks: Vec<Identity>, stack: &VolumeStack, volume: &InnerVolume) -> ContentOf {
    let first = disks.first().map(|first| (first.location.clone(), first.hashes.clone()));
    let (of, hashes) = first.unwrap_or_default();
    // A record has a maximum length, and an image may list many ranges.
    let disks = disks.into_iter().map(|disk| Identity { unreadable: Vec::new(), ..disk }).collect::<Vec<_>>();
    let disks = if disks.len() > 1 { disks } else { Vec::new() };
    match volume.opened() {
        Some(opened) => ContentOf::Decrypted(Decrypted { of, hashes, disks, volume: opened.clone() }),
        None => ContentOf::Volume(VolumeOf {
            of,
            hashes,
            disks,
            name: volume.name.clone(),
            description: volume.description(),
            size_bytes: volume.range.len,
            opened: stack.unlocked.as_ref().map(|unlocked| unlocked.opened.clone()).unwrap_or_default(),
        }),
    }
}

/// The options of an E01 whose notes say that it is decrypted, and which disks it lies on if these are several, as far as there is space
/// for that. Returns what was noted, too.
fn noted(e01: &E01Options, volume: &Evidence) -> (E01Options, Option<String>) {
    let said = format!("content of {}", volume.source.identity.location);
    let disk = |disk: &Source| {
        let Identity { location, size, serial, .. } = &disk.identity;
        let serial = serial.as_ref().map(|serial| format!(", serial number {serial}")).unwrap_or_default();
        format!("{location} ({size} bytes{serial})")
    };
    let with_disks = match &volume.disks[..] {
        [] | [_] => None,
        disks => {
            Some(format!("{said}, looked for on {}", cheetah_error::list(&disks.iter().map(disk).collect::<Vec<_>>())))
        }
    };
    for said in with_disks.into_iter().chain([said]) {
        let notes = e01.case.notes.as_ref().map_or(said.clone(), |notes| format!("{said}{BETWEEN_NOTES}{notes}"));
        let noted = E01Options { case: CaseData { notes: Some(notes), ..e01.case.clone() }, ..e01.clone() };
        if noted.check().is_ok() {
            return (noted, Some(said));
        }
    }
    (e01.clone(), None)
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
