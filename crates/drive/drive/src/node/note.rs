//! Notes at a drive's nodes: short texts by which processes tell each other something. They need no lease, and reach every machine.

use cheetah_control::api::NewNote;
use cheetah_error::{Error, Result};
use futures::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::export::NodeExport;
use super::trouble;
use crate::file::SetNode;
use crate::session::Session;
use crate::timing::NOTE_TIMEOUT;

/// Stores a note at every node that takes it. Fails if none does.
pub(crate) async fn store(
    nodes: &[SetNode],
    (name, content): (&str, &impl Serialize),
    session: &Session,
) -> Result<()> {
    let session = session.within(NOTE_TIMEOUT);
    // Only strings, numbers and lists: serialization cannot fail.
    let note = NewNote { name: name.to_owned(), text: serde_json::to_string(content).unwrap_or_default() };
    let stores = nodes.iter().filter_map(|node| NodeExport::of(node, &session)).map(|export| {
        let note = &note;
        async move {
            let stored = export.control.store_note(&export.name, note).await;
            stored.map_err(|error| {
                tracing::debug!("a note is not stored: {error}");
                trouble::of_call(trouble::sentence(&export.node, &error), &error)
            })
        }
    });
    let (stored, failed): (Vec<_>, Vec<_>) = join_all(stores).await.into_iter().partition(Result::is_ok);
    if !stored.is_empty() {
        return Ok(());
    }
    let failed: Vec<Error> = failed.into_iter().filter_map(Result::err).collect();
    let why: Vec<_> = failed.iter().map(ToString::to_string).collect();
    Err(trouble::together(format!("no node takes a message: {}", why.join("; ")), &failed))
}

/// The notes of this name at the nodes that answer with one. What is not understood counts as none.
pub(crate) async fn read<T: DeserializeOwned>(nodes: &[SetNode], name: &str, session: &Session) -> Vec<T> {
    let session = session.within(NOTE_TIMEOUT);
    let reads = nodes.iter().filter_map(|node| NodeExport::of(node, &session)).map(|export| async move {
        let notes = export.control.notes(&export.name).await.ok()?;
        serde_json::from_str(notes.notes.get(name)?).ok()
    });
    join_all(reads).await.into_iter().flatten().collect()
}
