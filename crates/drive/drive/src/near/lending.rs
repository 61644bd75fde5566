//! Lending the key of a sealed drive to its nodes, for a task.
//!
//! A key goes only over TLS, and to members with the role `trusted-node`; each gets it wrapped for its present run. Who gets it is
//! recorded before. What is lent opens units, and nothing else ([`cheetah_seal::lent`]).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::jobs::LentKey;
use cheetah_device::ByteRange;
use cheetah_error::{Error, Result, next};
use cheetah_kit::random;
use cheetah_seal::age::Recipient;
use cheetah_seal::{DriveKey, Record, Stamp, lent};
use cheetah_tls::{Expected, Identity, Role};
use futures::FutureExt as _;
use futures::future::join_all;
use serde::{Deserialize, Serialize};

use super::job::PATIENCE;
use super::lenders::{Lender, Lenders, ask, scan_status};
use super::locate::Locator;
use super::not_done::NotDone;
use super::units::Nodes;
use crate::file::{DriveFile, SetNode};
use crate::sealed;
use crate::session::Session;

/// The nodes to which the key of a sealed drive is lent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LendTo {
    /// All nodes of the drive that may be lent keys.
    All,
    /// The nodes of these names.
    Named(Vec<String>),
}

/// Records which nodes are lent the key of a drive.
pub trait LendingRecord: fmt::Debug + Send + Sync {
    /// Records that these nodes are about to be lent it. Blocks.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded. The key is then not lent.
    fn lent(&self, drive: &DriveFile, lending: &KeyLending) -> Result<()>;
}

/// The wish to lend the key of a sealed drive for a task.
#[derive(Debug, Clone)]
pub struct LendRequest {
    /// To these nodes.
    pub to: LendTo,
    /// The task, as a word: `search`.
    pub purpose: &'static str,
    /// Where that is recorded, before a key is sent.
    pub record: Arc<dyn LendingRecord>,
}

/// The key of a sealed drive, lent for a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyLending {
    /// The task, by which receipts of the nodes name it: 32 hex digits.
    pub task: String,
    /// What the task is: `search` or `verify`.
    pub purpose: String,
    /// The nodes that it is lent to.
    pub nodes: Vec<Borrower>,
}

/// A node that a key is lent to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Borrower {
    /// The node, as the drive names it.
    pub node: String,
    /// The member of the room that it proved to be.
    pub member: String,
    /// The fingerprint of the member's key.
    pub member_key_sha256: String,
    /// The instance of the node.
    pub instance: String,
}

/// A key that is lent.
struct Lent {
    /// The nodes that work with it.
    lenders: Lenders,
    /// The seal record, as of now.
    record: Arc<Record>,
    lending: KeyLending,
}

/// The nodes that work on a drive, and the key that they were lent, if it is sealed; or why this process reads everything. They
/// work on units of `unit_bytes`, and on those of the seal of a sealed drive.
///
/// # Errors
///
/// If a node that was named cannot be lent the key, or none can.
pub(crate) async fn nodes(
    file: &DriveFile,
    unit_bytes: u64,
    lend_key: Option<&LendRequest>,
    session: &Session,
) -> Result<std::result::Result<(Nodes, Option<KeyLending>), Arc<str>>> {
    let (lenders, seal, lending) = match lend_key {
        None if file.sealed.is_some() => return Ok(Err("its nodes hold ciphertext only".into())),
        None => (Lenders::ask(file, session).await, None, None),
        Some(request) => match lend(file, request, session).await? {
            Ok(Lent { lenders, record, lending }) => (lenders, Some(record), Some(lending)),
            Err(why) => return Ok(Err(why)),
        },
    };
    if !lenders.any() {
        return Ok(Err(lenders.refusals().join("; ").into()));
    }
    let unit_bytes = file.sealed.as_ref().map_or(unit_bytes, |seal| seal.unit);
    let nodes = Nodes { locator: Locator::new(file)?, lenders, unit_bytes, seal, patience: PATIENCE };
    Ok(Ok((nodes, lending)))
}

/// Whether a unit with this range has the version that the seal record names, by the stamp with which a node opened it.
pub(super) fn is_of_record(record: Option<&Record>, range: ByteRange, stamp: Option<Stamp>) -> bool {
    let Some(record) = record else { return stamp.is_none() };
    let number = usize::try_from(range.offset / record.units.bytes()).ok();
    let expected = number.and_then(|number| record.stamps.get(number));
    expected.is_some() && expected.copied() == stamp
}

/// Why a unit that is not the newest is read.
pub(super) fn other_version() -> Arc<str> {
    "its node holds another version of it than the seal record names".into()
}

/// Lends the key of a sealed drive; or says why none is lent.
///
/// # Errors
///
/// If a node that was named cannot be lent it, or none can.
async fn lend(
    file: &DriveFile,
    request: &LendRequest,
    session: &Session,
) -> Result<std::result::Result<Lent, Arc<str>>> {
    let key = sealed::unlock(file, session)?
        .ok_or_else(|| Error::misuse(format!("{} is not sealed: its nodes need no key to read it", file.name)))?;
    let chosen = chosen(file, &request.to)?;
    let mut asked = Vec::new();
    for (node, is_chosen) in file.nodes().zip(chosen) {
        asked.push(
            async move { if is_chosen { ask_trusted(node, session).await } else { Err(NotDone::NotChosen) } }.boxed(),
        );
    }
    let asked = join_all(asked).await;
    check(file, &request.to, &asked)?;
    let record = Arc::new(sealed::record(file, &key).await?);
    let task = random::bits_128().map_err(|error| Error::failed(error.to_string()))?;
    let (task, purpose) = (format!("{task:032x}"), request.purpose.to_owned());
    let mut lending = KeyLending { task, purpose, nodes: Vec::new() };
    let mut lenders = Vec::with_capacity(asked.len());
    for trusted in asked {
        let trusted = match trusted {
            Ok(trusted) => trusted,
            Err(why) => {
                lenders.push(Err(why));
                continue;
            }
        };
        let Some(wrapped) = wrap(file, &key, &record, &trusted.recipient)? else {
            return Ok(Err("it was opened for writing so often that its key is not lent".into()));
        };
        let borrower = trusted.borrower();
        if !lending.nodes.contains(&borrower) {
            lending.nodes.push(borrower);
        }
        let key = LentKey { task: lending.task.clone(), age: wrapped };
        lenders.push(Ok(Lender { key: Some(key), ..trusted.lender }));
    }
    request.record.lent(file, &lending)?;
    Ok(Ok(Lent { lenders: Lenders::of(file, lenders), record, lending }))
}

fn wrap(file: &DriveFile, key: &DriveKey, record: &Record, to: &Recipient) -> Result<Option<String>> {
    let wrapped = lent::lend(key, record, to);
    let wrapped = wrapped.map_err(|error| Error::failed(format!("{}: its key cannot be lent: {error}", file.name)))?;
    Ok(wrapped.map(|bytes| STANDARD.encode(bytes)))
}

/// For each node whether it was chosen.
fn chosen(file: &DriveFile, to: &LendTo) -> Result<Vec<bool>> {
    let LendTo::Named(named) = to else { return Ok(file.nodes().map(|_| true).collect()) };
    if let Some(unknown) = named.iter().find(|name| file.nodes().all(|node| node.name != **name)) {
        let nodes: Vec<&str> = file.nodes().map(|node| node.name.as_str()).collect();
        let nodes = cheetah_error::list(&nodes);
        return Err(Error::misuse(format!("{unknown} is no node of {}; its nodes are {nodes}", file.name)));
    }
    Ok(file.nodes().map(|node| named.contains(&node.name)).collect())
}

/// Refuses to go on if a node that was named cannot be lent the key, or none can.
fn check(file: &DriveFile, to: &LendTo, asked: &[std::result::Result<Trusted, NotDone>]) -> Result<()> {
    let failed: Vec<(&SetNode, &NotDone)> =
        file.nodes().zip(asked).filter_map(|(node, asked)| Some((node, asked.as_ref().err()?))).collect();
    let failed: Vec<_> = failed.into_iter().filter(|(_, why)| **why != NotDone::NotChosen).collect();
    if failed.is_empty() || *to == LendTo::All && asked.iter().any(std::result::Result::is_ok) {
        return Ok(());
    }
    let mut reasons: Vec<String> = failed.iter().map(|(node, why)| format!("node {} {why}", node.name)).collect();
    reasons.dedup();
    let error = Error::failed(format!("the key of {} is not lent: {}", file.name, reasons.join("; ")));
    let lacks_role = |why: &NotDone| matches!(why, NotDone::InClear | NotDone::NotTrusted(_));
    Err(match failed.iter().any(|(_, why)| lacks_role(why)) {
        true => error.next(next::Room::InviteWithRole { role: Role::TrustedNode.to_string() }),
        false => error,
    })
}

/// A node that may be lent keys.
struct Trusted {
    lender: Lender,
    identity: Identity,
    recipient: Recipient,
}

impl Trusted {
    fn borrower(&self) -> Borrower {
        Borrower {
            node: self.lender.name.to_string(),
            member: self.identity.to_string(),
            member_key_sha256: self.identity.key.to_string(),
            instance: self.lender.instance.clone(),
        }
    }
}

/// Asks a node whether it may be lent keys.
async fn ask_trusted(node: &SetNode, session: &Session) -> std::result::Result<Trusted, NotDone> {
    let lender = ask(node, session).await?;
    let identity = lender.control.identity().await.map_err(NotDone::Silent)?.ok_or(NotDone::InClear)?;
    if identity.role != Role::TrustedNode {
        return Err(NotDone::NotTrusted(identity.role));
    }
    // From here on, no other member can answer in its place.
    let control = lender.control.clone().expecting(Expected::role(Role::TrustedNode).with_key(identity.key));
    let (_, scan) = scan_status(node, &control).await?;
    let recipient = scan.recipient.and_then(|text| text.parse().ok()).ok_or(NotDone::Malformed)?;
    Ok(Trusted { lender: Lender { control, ..lender }, identity, recipient })
}

#[cfg(test)]
mod tests {
    use cheetah_error::Kind;

    use super::*;
    use crate::file::tests::example;

    #[test]
    fn a_node_that_the_drive_does_not_have_cannot_be_lent_its_key() {
        let file = example();
        let own = file.nodes().next().unwrap().name.clone();
        let all = chosen(&file, &LendTo::All).unwrap();
        assert!(all.iter().all(|is_chosen| *is_chosen));
        let one = chosen(&file, &LendTo::Named(vec![own.clone()])).unwrap();
        assert!(one[0]);
        let error = chosen(&file, &LendTo::Named(vec![own, "elsewhere".into()])).unwrap_err();
        assert_eq!(error.kind(), Kind::Misuse, "{error}");
    }

    #[test]
    fn a_node_without_the_role_is_an_error_if_it_was_named_or_if_no_other_has_it() {
        let file = example();
        let of = |why: &NotDone| -> Vec<std::result::Result<Trusted, NotDone>> {
            file.nodes().map(|_| Err(why.clone())).collect()
        };
        for why in [NotDone::InClear, NotDone::NotTrusted(Role::Node)] {
            for to in [LendTo::All, LendTo::Named(Vec::new())] {
                let error = check(&file, &to, &of(&why)).unwrap_err();
                assert_eq!(error.steps(), [next::Room::InviteWithRole { role: "trusted-node".into() }.into()]);
                assert_eq!(error.kind(), Kind::Failed);
            }
        }
        check(&file, &LendTo::Named(Vec::new()), &of(&NotDone::NotChosen)).unwrap();
        assert!(check(&file, &LendTo::All, &of(&NotDone::NotLent)).unwrap_err().steps().is_empty());
    }
}
