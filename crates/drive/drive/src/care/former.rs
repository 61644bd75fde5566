//! Nodes that were replaced: each wipes its part of the drive when it is reachable again.

use std::time::Duration;

use cheetah_control::receipt::Receipt;
use futures::future::join_all;

use crate::file::{Set, SetNode};
use crate::node::export::NodeExport;
use crate::node::trouble::reason;
use crate::node::wipe::{self, KeptReceipt, NoReceipt};
use crate::session::Session;
use crate::set::shared::Shared;

/// How long a node may take to list its exports.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// Has replaced nodes wipe their parts, and records their receipts in the drive file. Call this only once every member of the set
/// is in sync: until then, an examiner may need the content of a lost node.
pub(crate) async fn wipe(shared: &Shared) {
    let (file, index) = (shared.newest_file(), shared.set().index);
    // A receipt that is not signed is a mere claim; `destroy` asks the node again.
    let kept = |node: &&SetNode| {
        let receipt = KeptReceipt::of(&file.id, node, &shared.session().credentials);
        matches!(receipt, KeptReceipt::None | KeptReceipt::Invalid(_))
    };
    let Some(set) = file.sets.get(index) else { return };
    let former: Vec<SetNode> = set.former.iter().filter(kept).cloned().collect();
    let wiped = join_all(former.iter().map(|node| {
        let (token, drive) = (shared.former_token(&node.nbd), &file.id);
        async move {
            // What another writer wrote there, apart from this one, exists nowhere else.
            shared.refuse_diverged(node).await.ok()?;
            wipe_one(drive, node, token.as_deref(), shared.session()).await
        }
    }))
    .await;
    let done: Vec<_> = former.into_iter().zip(wiped).filter_map(|(node, wiped)| Some((node, wiped?))).collect();
    if done.is_empty() {
        return;
    }
    let record_all = |set: &mut Set| done.iter().for_each(|(node, wiped)| record(set, node, wiped));
    let recorded = shared.update_file(|file| file.sets.get_mut(index).into_iter().for_each(record_all));
    if let Err(error) = recorded {
        tracing::warn!("the receipt of a node that was replaced is not in the drive file: {error}");
    }
}

/// The state of a former node's part.
#[derive(Debug, Clone)]
pub(crate) enum Wiped {
    /// It was wiped.
    Now(Box<Receipt>),
    /// It is gone: the node was restarted, or the export was freed before.
    Gone,
}

/// Has a node wipe its part of the drive with this id; `token` is the lease there, if there was one. `None` if the node does not answer, or
/// cannot free it yet.
pub(crate) async fn wipe_one(drive: &str, node: &SetNode, token: Option<&str>, session: &Session) -> Option<Wiped> {
    let export = NodeExport::of(node, &session.within(ASK_TIMEOUT))?;
    let status = export.control.status().await.ok()?;
    let has_it = status.exports.iter().any(|found| found.name == export.name);
    if Some(&status.instance) != node.instance.as_ref() || !has_it {
        return Some(Wiped::Gone);
    }
    // A lease that is no longer renewed expires by itself.
    match wipe::wipe(drive, node, &export, token).await {
        Ok(receipt) => {
            let wiped_bytes = receipt.statement.wiped_bytes;
            tracing::info!("{} was replaced, and has wiped {wiped_bytes} bytes of its part", node.name);
            Some(Wiped::Now(Box::new(receipt)))
        }
        Err(NoReceipt::Control(error)) => {
            tracing::debug!("{} keeps its part: {}", node.name, reason(&error));
            None
        }
        Err(why) => {
            tracing::warn!("{} was replaced, and may hold its part: {why}", node.name);
            None
        }
    }
}

/// Records the outcome in the entry of the set.
fn record(set: &mut Set, node: &SetNode, wiped: &Wiped) {
    match wiped {
        Wiped::Gone => set.former.retain(|former| former.nbd != node.nbd || former.instance != node.instance),
        Wiped::Now(receipt) => {
            for former in set.former.iter_mut().filter(|former| former.nbd == node.nbd) {
                former.receipt = Some(receipt.clone());
            }
        }
    }
}
