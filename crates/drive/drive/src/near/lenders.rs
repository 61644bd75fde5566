//! Which nodes of a drive lend their processor.

use std::sync::Arc;

use cheetah_control::ControlClient;
use cheetah_control::jobs::{LentKey, ScanStatus};
use futures::FutureExt as _;
use futures::future::join_all;
use parking_lot::Mutex;

use super::not_done::NotDone;
use crate::file::{DriveFile, SetNode};
use crate::node::export::NodeExport;
use crate::session::Session;

/// A node that lends its processor.
#[derive(Debug, Clone)]
pub(crate) struct Lender {
    /// Its name, as the user wrote it.
    pub name: Arc<str>,
    /// Its instance.
    pub instance: String,
    /// The export that holds its part of the drive.
    pub export: String,
    /// Its control API.
    pub control: ControlClient,
    /// The number of threads that it lends.
    pub threads: usize,
    /// The key that it is lent for the jobs, if any.
    pub key: Option<LentKey>,
}

/// The nodes of a drive, in file order: each lends its processor, or does not, with the reason.
pub(crate) struct Lenders(Vec<Mutex<Result<Arc<Lender>, Arc<str>>>>);

impl Lenders {
    /// Asks the nodes.
    pub async fn ask(file: &DriveFile, session: &Session) -> Self {
        let mut asked = Vec::new();
        for node in file.nodes() {
            asked.push(ask(node, session).boxed());
        }
        Self::of(file, join_all(asked).await)
    }

    /// Those of the nodes of `file`, in order.
    pub fn of(file: &DriveFile, asked: impl IntoIterator<Item = Result<Lender, NotDone>>) -> Self {
        let lenders = asked.into_iter().zip(file.nodes()).map(|(lender, node)| {
            Mutex::new(lender.map(Arc::new).map_err(|why| format!("node {} {why}", node.name).into()))
        });
        Self(lenders.collect())
    }

    /// A node, if it lends its processor; otherwise why it does not.
    pub fn get(&self, node: usize) -> Result<Arc<Lender>, Arc<str>> {
        self.0.get(node).map_or_else(|| Err("no node has it".into()), |lender| lender.lock().clone())
    }

    /// Whether any node lends its processor.
    pub fn any(&self) -> bool {
        self.0.iter().any(|lender| lender.lock().is_ok())
    }

    /// The reasons why nodes do not, each once.
    pub fn refusals(&self) -> Vec<Arc<str>> {
        let mut found: Vec<Arc<str>> =
            self.0.iter().filter_map(|lender| lender.lock().as_ref().err().cloned()).collect();
        found.dedup();
        found
    }

    /// The number of nodes that do, and the most threads of one of them.
    pub fn extent(&self) -> (usize, usize) {
        let threads: Vec<usize> =
            self.0.iter().filter_map(|lender| lender.lock().as_ref().ok().map(|lender| lender.threads)).collect();
        (threads.len(), threads.iter().copied().max().unwrap_or(0))
    }

    /// Notes that a node failed: it gets no more work.
    pub fn fail(&self, node: usize, why: &NotDone) {
        let Some(lender) = self.0.get(node) else { return };
        let mut lender = lender.lock();
        if let Ok(found) = &*lender {
            let why = format!("node {} {why}", found.name);
            tracing::warn!("{why}: this machine reads what is left of it");
            *lender = Err(why.into());
        }
    }
}

/// Asks one node.
pub(super) async fn ask(node: &SetNode, session: &Session) -> Result<Lender, NotDone> {
    let Some(NodeExport { name: export, control, .. }) = NodeExport::of(node, session) else {
        return Err(NotDone::Foreign);
    };
    if node.state.is_some() {
        return Err(NotDone::MissedWrites);
    }
    let (instance, ScanStatus { threads, .. }) = scan_status(node, &control).await?;
    Ok(Lender { name: node.name.as_str().into(), instance, export, control, threads, key: None })
}

/// The instance that holds the node's part of the drive, and what it lends.
pub(super) async fn scan_status(node: &SetNode, control: &ControlClient) -> Result<(String, ScanStatus), NotDone> {
    let status = control.status().await.map_err(NotDone::Silent)?;
    let Some(scan) = status.scan else { return Err(NotDone::NotLent) };
    let instance = node.instance.clone().unwrap_or_default();
    if status.instance != instance {
        return Err(NotDone::Restarted);
    }
    Ok((instance, scan))
}
