//! Wiping a drive's part at a node, against a receipt.

use cheetah_control::ControlError;
use cheetah_control::receipt::{Asked, BadReceipt, Receipt};
use cheetah_kit::random::{self, NoRandomNumbers};
use cheetah_nbd::Security;
use cheetah_tls::{Credential, CredentialSet, Identity};

use super::export::NodeExport;
use crate::file::SetNode;

/// Why there is no receipt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoReceipt {
    /// The node did not answer, or refused.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The wipe was not asked for: this machine has no random numbers.
    #[error(transparent)]
    NotAsked(#[from] NoRandomNumbers),
    /// The receipt is not about this wipe, or its signature is not valid.
    #[error(transparent)]
    Invalid(#[from] BadReceipt),
    /// A member signed it that the drive file does not name.
    #[error("its receipt is signed by another member, or in another room")]
    OtherMember,
}

/// Has a node wipe its part of the drive with this id, and checks the receipt; `token` is the lease there, if there is
/// one.
pub(crate) async fn wipe(
    drive: &str,
    node: &SetNode,
    export: &NodeExport,
    token: Option<&str>,
) -> Result<Receipt, NoReceipt> {
    let nonce = random::id()?;
    let asked = Asked { drive: drive.to_owned(), nonce };
    let receipt = export.control.delete_export(&export.name, token, &asked).await?;
    let instance = node.instance.as_deref().unwrap_or_default();
    let signer = receipt.check(&asked, &export.name, instance)?;
    if signer.is_some_and(|signer| !is_of(&signer, node)) {
        return Err(NoReceipt::OtherMember);
    }
    Ok(receipt)
}

/// What a receipt in a drive file is worth. A drive file is not signed, and anyone may have written the receipt into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeptReceipt {
    /// There is none.
    None,
    /// It is about something else, or its signature is not valid: a sentence. It counts as none.
    Invalid(String),
    /// It is about the node's part of the drive, and nobody signed it whom this process knows: the node must be asked.
    Claim(Box<Receipt>),
    /// A member of this process's room that the drive file names signed it.
    Proof(Box<Receipt>),
}

impl KeptReceipt {
    /// The receipt of a node of the drive with this id.
    pub(crate) fn of(drive: &str, node: &SetNode, credentials: &CredentialSet) -> Self {
        let Some(receipt) = &node.receipt else { return Self::None };
        let invalid = |why: &str| Self::Invalid(format!("the receipt of {} in the drive file: {why}", node.name));
        let statement = &receipt.statement;
        let export = node.uri().map(|uri| uri.export).unwrap_or_default();
        // It answered a request that this process no longer knows, and is one to no other export: their names are unique.
        let asked = Asked { drive: drive.to_owned(), nonce: statement.nonce.clone() };
        let signer = match receipt.check(&asked, &export, node.instance.as_deref().unwrap_or_default()) {
            Ok(signer) => signer,
            Err(error) => return invalid(&error.to_string()),
        };
        let wiped = statement.ranges.iter().filter(|range| range.offset == 0).map(|range| range.len).max();
        if !asked.is_valid() || asked.nonce.is_empty() || wiped.is_none_or(|bytes| bytes < node.size) {
            return invalid("it is not about the whole part");
        }
        let own = credentials.acting_as().and_then(Credential::room);
        match signer {
            Some(signer) if own.is_some_and(|room| room == signer.room) && is_of(&signer, node) => {
                Self::Proof(receipt.clone())
            }
            _ => Self::Claim(receipt.clone()),
        }
    }
}

/// Whether the drive file permits that this member holds the node's part.
fn is_of(signer: &Identity, node: &SetNode) -> bool {
    match node.uri().map(|uri| uri.security) {
        Some(Security::Room { room, key }) => {
            room.is_none_or(|room| room == signer.room) && key.is_none_or(|key| key == signer.key)
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::routing::delete;
    use cheetah_control::receipt::Statement;
    use cheetah_tls::Role;
    use cheetah_tls::testing::Room;

    use super::*;

    const INSTANCE: &str = "abababababababababababababababab";

    /// A node's entry in a drive file; the node answers with receipts for another nonce if `replays`.
    async fn node(signs_as: Option<Credential>, replays: bool, security: &str) -> SetNode {
        let receipt = move |uri: axum::http::Uri| {
            let query = uri.query().unwrap_or_default().to_owned();
            let value = |key: &str| {
                let found = query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
                found.unwrap_or_default().to_owned()
            };
            let nonce = if replays { "0".repeat(32) } else { value("nonce") };
            let asked = Asked { drive: value("drive"), nonce };
            let statement = Statement { instance: INSTANCE.into(), ..Statement::of_export("e".into(), 8, asked) };
            let receipt = statement.sign(signs_as.as_ref());
            async move { axum::Json(receipt) }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = listener.local_addr().unwrap().to_string();
        let router = axum::Router::new().route("/v1/exports/e", delete(receipt));
        tokio::spawn(async move { axum::serve(listener, router).await });
        SetNode {
            name: "lab1".into(),
            nbd: format!("{security}://127.0.0.1:1/e"),
            http: Some(http),
            instance: Some(INSTANCE.into()),
            size: 8,
            state: None,
            receipt: None,
        }
    }

    async fn wiped(node: &SetNode) -> Result<Receipt, NoReceipt> {
        let control = cheetah_control::ControlClient::new(node.http.as_ref().unwrap(), None);
        let control = control.with_timeout(Duration::from_secs(20));
        let export = NodeExport { node: node.name.clone(), name: "e".into(), control };
        wipe(&"12".repeat(16), node, &export, None).await
    }

    #[tokio::test]
    async fn a_receipt_in_a_drive_file_is_a_claim_unless_our_room_signed_it_and_void_if_it_is_about_something_else() {
        let credential = Room::new().credential("lab1", Role::Node);
        let drive = "12".repeat(16);
        for signer in [None, Some(credential)] {
            let mut node = node(signer, false, "nbd").await;
            let receipt = wiped(&node).await.unwrap();
            node.receipt = Some(Box::new(receipt.clone()));
            // This process is in no room.
            assert_eq!(
                KeptReceipt::of(&drive, &node, &CredentialSet::default()),
                KeptReceipt::Claim(Box::new(receipt.clone()))
            );
            assert!(matches!(
                KeptReceipt::of(&"13".repeat(16), &node, &CredentialSet::default()),
                KeptReceipt::Invalid(_)
            ));
            for change in [
                (|node| node.instance = Some("cd".repeat(16))) as fn(&mut SetNode),
                |node| node.nbd = node.nbd.replace("/e", "/f"),
                |node| node.size += 1,
                |node| node.receipt.as_mut().unwrap().statement.ranges.clear(),
                |node| node.receipt.as_mut().unwrap().statement.nonce.clear(),
            ] {
                let mut node = node.clone();
                change(&mut node);
                assert!(
                    matches!(KeptReceipt::of(&drive, &node, &CredentialSet::default()), KeptReceipt::Invalid(_)),
                    "{node:?}"
                );
            }
            if receipt.signature.is_some() {
                node.receipt.as_mut().unwrap().statement.wiped_bytes += 1;
                assert!(matches!(KeptReceipt::of(&drive, &node, &CredentialSet::default()), KeptReceipt::Invalid(_)));
            }
        }
    }

    #[tokio::test]
    async fn an_answer_to_this_request_is_a_receipt() {
        let credential = Room::new().credential("lab1", Role::Node);
        let receipt = wiped(&node(Some(credential), false, "nbd").await).await.unwrap();
        assert!(receipt.signature.is_some());
        assert!(wiped(&node(None, false, "nbd").await).await.unwrap().signature.is_none());
    }

    #[tokio::test]
    async fn a_receipt_replayed_with_an_old_nonce_is_refused() {
        let credential = Room::new().credential("lab1", Role::Node);
        let why = wiped(&node(Some(credential), true, "nbd").await).await.unwrap_err();
        assert!(matches!(why, NoReceipt::Invalid(BadReceipt::Other("nonce"))), "{why}");
    }

    #[tokio::test]
    async fn a_receipt_signed_by_another_member_than_the_drive_file_names_is_refused() {
        let room = Room::new();
        let [named, other] = ["lab1", "lab2"].map(|name| room.credential(name, Role::Node));
        for (signer, is_named) in [(&named, true), (&other, false)] {
            let mut node = node(Some(signer.clone()), false, "nbds").await;
            node.nbd = format!("{}?room={}&key={}", node.nbd, room.id(), named.identity().unwrap().key);
            assert_eq!(wiped(&node).await.is_ok(), is_named);
        }
    }
}
