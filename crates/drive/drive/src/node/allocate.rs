//! Allocating parts of a drive at nodes, and freeing them again.

use cheetah_control::api::NewExport;
use cheetah_control::receipt::Asked;
use cheetah_control::{ControlClient, ControlError};
use cheetah_error::{Error, Result};
use cheetah_kit::random;
use cheetah_nbd::uri::{NbdUri, Security};
use futures::future::join_all;

use super::export::NodeExport;
use super::spec::{AvailableNode, NodePlace};
use super::trouble;
use crate::file::set::DriveSet;
use crate::file::{DriveFile, SetNode};
use crate::session::Session;
use crate::timing::CONFIRM_S;

/// Allocates `size` bytes on a node under this name. Returns the entry of the node, and the export unless the server is foreign.
pub(crate) async fn allocate_one(
    node: &AvailableNode,
    size: u64,
    name: &str,
    thin: bool,
    session: &Session,
) -> Result<(SetNode, Option<NodeExport>)> {
    let entry = |nbd: String, http: Option<&str>, instance: Option<&str>| SetNode {
        name: node.name.clone(),
        nbd,
        http: http.map(str::to_owned),
        instance: instance.map(str::to_owned),
        size,
        state: None,
        receipt: None,
    };
    match &node.place {
        NodePlace::Foreign { uri } => Ok((entry(uri.clone(), None, None), None)),
        NodePlace::Node { nbd, http, instance } => {
            let (uri, control) = name_one(node, nbd, http, name, session).await?;
            let wanted = if thin { NewExport::thin(name, size) } else { NewExport::reserved(name, size) };
            let made = control.create_unconfirmed(&wanted, CONFIRM_S).await;
            made.map_err(|error| trouble::of_call(trouble::sentence(&node.name, &error), &error))?;
            let export = NodeExport { node: node.name.clone(), name: name.to_owned(), control };
            Ok((entry(uri.to_string(), Some(http), Some(instance)), Some(export)))
        }
    }
}

/// The URI of an export on a node, which need not exist yet, and the node's control API. From here on, only this node is
/// accepted as the drive's node.
async fn name_one(
    node: &AvailableNode,
    nbd: &str,
    http: &str,
    name: &str,
    session: &Session,
) -> Result<(NbdUri, ControlClient)> {
    let mut uri: NbdUri =
        format!("nbd://{nbd}/{name}").parse().map_err(|error| Error::failed(format!("node {}: {error}", node.name)))?;
    let control = session.control(http);
    let asked = control.identity().await;
    let asked = asked.map_err(|error| trouble::of_call(trouble::sentence(&node.name, &error), &error))?;
    if let Some(id) = asked {
        uri.security = Security::Room { room: Some(id.room), key: Some(id.key) };
    }
    Ok((uri, control))
}

/// The entry of a node to which node entry `index` of a set is to move, and its export, which is not allocated yet.
pub(crate) async fn name_incoming(
    set: &DriveSet,
    index: usize,
    epoch: u64,
    spare: &AvailableNode,
    size: u64,
    session: &Session,
) -> Result<(SetNode, NodeExport)> {
    let NodePlace::Node { nbd, http, instance } = &spare.place else {
        return Err(Error::failed(format!("{} is no Cheetah node, and takes no part of a drive over", spare.name)));
    };
    let name = spare_name(set, index, epoch)?;
    let (uri, control) = name_one(spare, nbd, http, &name, session).await?;
    let (http, instance) = (Some(http.clone()), Some(instance.clone()));
    let entry =
        SetNode { name: spare.name.clone(), nbd: uri.to_string(), http, instance, size, state: None, receipt: None };
    Ok((entry, NodeExport { node: spare.name.clone(), name, control }))
}

/// Allocates `size` bytes on a node that is to take the place of node entry `index`. The export's name differs from
/// those of the entry's former nodes by the epoch, and by a random part from that of a writer that was killed before it
/// recorded its node.
pub(crate) async fn allocate_spare(
    set: &DriveSet,
    index: usize,
    epoch: u64,
    spare: &AvailableNode,
    size: u64,
    session: &Session,
) -> Result<SetNode> {
    allocate_one(spare, size, &spare_name(set, index, epoch)?, false, session).await.map(|(node, _)| node)
}

fn spare_name(set: &DriveSet, index: usize, epoch: u64) -> Result<String> {
    let (random, name) = (random::id()?, export_name(&set.drive, set.first_node() + index));
    Ok(format!("{name}-e{epoch}-{}", random.get(..8).unwrap_or(&random)))
}

/// Frees the export on a spare that cannot be used after all. Returns `why`, extended by the export if it could not be
/// freed.
pub(crate) async fn free_spare(node: &SetNode, why: Error, session: &Session) -> Error {
    let exports: Vec<_> = NodeExport::of(node, session).into_iter().collect();
    free_exports(&exports, why).await
}

/// Frees exports. Returns `why`, extended by those that could not be freed.
pub(crate) async fn free_exports(exports: &[NodeExport], why: Error) -> Error {
    // Nothing was written to them, so a receipt is of no use.
    let asked = Asked::default();
    let freeing = exports.iter().map(|export| export.control.delete_export(&export.name, None, &asked));
    let freed = join_all(freeing).await;
    let stuck: Vec<_> = freed.into_iter().filter_map(|result| result.err().map(|error| error.to_string())).collect();
    if stuck.is_empty() {
        return why;
    }
    Error::failed(format!("{why}; and these exports could not be freed: {}", stuck.join("; ")))
}

/// Confirms an export that is recorded. An older node knows no confirmation, and keeps the export.
pub(crate) async fn confirm(export: &NodeExport) -> Result<()> {
    let failed = |error: ControlError| Error::failed(format!("node {}: {error}", export.node));
    match export.control.confirm_export(&export.name, None).await {
        Err(error) if error.is_not_found() => {
            let status = export.control.status().await.map_err(failed)?;
            match status.exports.iter().any(|found| found.name == export.name) {
                true => Ok(()),
                false => Err(failed(error)),
            }
        }
        confirmed => confirmed.map_err(failed),
    }
}

/// The name of an export, such as `case42-0123abcd-0`: the drive's name in permitted characters, the start of its id,
/// and the index of the node entry.
pub(crate) fn export_name(file: &DriveFile, index: usize) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let name: String = file.name.chars().map(plain).collect();
    format!("{name}-{}-{index}", file.id.get(..8).unwrap_or(&file.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::example;

    #[test]
    fn export_names_have_permitted_characters_only() {
        let file = DriveFile { name: "Fall 42/ä".into(), ..example() };
        assert_eq!(export_name(&file, 3), "Fall_42__-01234567-3");
    }
}
