//! The options of `create` for sealed drives, and describing seals.

use cheetah_device::Size;
use cheetah_drive::here::first_elsewhere;
use cheetah_drive::sealed::{SealRequest, room_recipient};
use cheetah_drive::{AvailableNode, DriveFile};
use cheetah_error::Error;
use cheetah_seal::SealError;
use cheetah_seal::age::Recipient;
use cheetah_seal::units::{UNIT_BYTES_LARGE, UNIT_BYTES_SMALL};
use cheetah_tls::CredentialSet;

use crate::desk::Desk;
use crate::failure::{Failure, Result};

/// How a new drive is sealed.
#[derive(Debug, Clone, clap::Args)]
pub struct SealArgs {
    /// Seal the drive: nodes hold ciphertext only, and cannot change it undetected. This is the default if one of the
    /// nodes is not on this machine
    #[arg(long)]
    seal: bool,

    /// Do not seal the drive: nodes hold its content unencrypted. This is the default if all nodes are on this machine
    #[arg(long, conflicts_with_all = ["seal", "recipient", "seal_holes", "seal_unit"])]
    no_seal: bool,

    /// Seal the drive, and let the owner of this public key (age1…) open it, too; repeat for more
    #[arg(long, value_name = "AGE", value_parser = recipient)]
    recipient: Vec<Recipient>,

    /// Seal the drive, but store no zeros, which saves memory, but shows the nodes where the drive holds zeros
    #[arg(long)]
    seal_holes: bool,

    /// Seal the drive in units of this size: 4KiB for small random writes, 64KiB for images [default: 64KiB with --from,
    /// else 4KiB]
    #[arg(long, value_name = "SIZE")]
    seal_unit: Option<Size>,
}

impl SealArgs {
    /// Fails if the options cannot be met, before nodes are looked for.
    pub fn check(&self, desk: &Desk) -> Result<()> {
        if let Some(size) = self.seal_unit.filter(|Size(bytes)| ![UNIT_BYTES_SMALL, UNIT_BYTES_LARGE].contains(bytes)) {
            return Err(Failure::misused(format!("--seal-unit is 4KiB or 64KiB, not {size}")));
        }
        if self.is_asked() && self.recipients(desk)?.is_empty() {
            return Err(Failure::misused(format!("a sealed drive needs a key that opens it: {KEYS}")));
        }
        Ok(())
    }

    /// Returns how to seal a drive over these nodes; `None` if it is not to be sealed.
    pub async fn over(&self, nodes: &[AvailableNode], is_image: bool, desk: &Desk) -> Result<Option<SealRequest>> {
        let elsewhere = match (self.no_seal, self.is_asked()) {
            (true, _) => return Ok(None),
            (_, true) => None,
            _ => match first_elsewhere(nodes).await {
                None => return Ok(None),
                found => found,
            },
        };
        let recipients = self.recipients(desk)?;
        if let Some(node) = elsewhere.filter(|_| recipients.is_empty()) {
            return Err(Failure::misused(format!(
                "{} is another machine, so the drive is to be sealed, and needs a key that opens it: {KEYS}; or let the \
                 nodes read the content, with --no-seal",
                node.name
            )));
        }
        Ok(Some(self.request(recipients, is_image)))
    }

    /// Returns how to seal a drive whose nodes are not known yet; `None` only if the user wants it unsealed.
    pub fn always(&self, desk: &Desk) -> Result<Option<SealRequest>> {
        if self.no_seal {
            return Ok(None);
        }
        let recipients = self.recipients(desk)?;
        if recipients.is_empty() {
            return Err(Failure::misused(format!(
                "nodes of other machines may join, so the drive is to be sealed, and needs a key that opens it: {KEYS}; or \
                 let the nodes read the content, with --no-seal"
            )));
        }
        Ok(Some(self.request(recipients, false)))
    }

    fn request(&self, recipients: Vec<Recipient>, is_image: bool) -> SealRequest {
        let unit = match self.seal_unit {
            Some(Size(bytes)) => bytes,
            None if is_image => UNIT_BYTES_LARGE,
            None => UNIT_BYTES_SMALL,
        };
        SealRequest { unit, holes: self.seal_holes, recipients }
    }

    /// Whether an option asks for a sealed drive.
    fn is_asked(&self) -> bool {
        self.seal || self.seal_holes || self.seal_unit.is_some() || !self.recipient.is_empty()
    }

    /// The recipients that the user named, the identities and passphrases of the keyring, and the credential in the
    /// room.
    fn recipients(&self, desk: &Desk) -> Result<Vec<Recipient>> {
        let mut recipients = self.recipient.clone();
        recipients.extend(desk.keyring.recipients().map_err(|error| unusable(&error))?);
        recipients.extend(room_recipient(&desk.credentials)?);
        Ok(recipients)
    }
}

/// The failure for a key that cannot be used.
pub fn unusable(error: &SealError) -> Failure {
    Error::misuse(error.to_string()).advise(error.next()).into()
}

/// Reads a recipient.
pub fn recipient(text: &str) -> std::result::Result<Recipient, String> {
    text.parse().map_err(|error: SealError| cheetah_words::with(&error, error.next().as_slice()))
}

/// The keys that may open a drive.
const KEYS: &str = "--identity FILE (make one with cheetah drive identity FILE), --recipient age1…, --passphrase-file FILE, \
    or a room (cheetah room init)";

/// Describes a drive's seal; `None` if it is not sealed.
pub fn describe(file: &DriveFile, credentials: &CredentialSet) -> Option<String> {
    let seal = file.sealed.as_ref()?;
    let recipients: Vec<String> = seal.keys.iter().map(|key| key.recipient.clone()).collect();
    let holes = if seal.holes { "; nodes know its holes" } else { "" };
    Some(format!("{}; units of {}{holes}", describe_recipients(&recipients, credentials), Size(seal.unit)))
}

/// Describes the seal of a drive that these recipients can open.
pub fn describe_recipients(recipients: &[String], credentials: &CredentialSet) -> String {
    match recipients {
        [] => "sealed, and its key is destroyed: its content cannot be read any more".to_owned(),
        _ => {
            let own = room_recipient(credentials).ok().flatten().map(|own| own.to_string());
            let name = |recipient: &String| match Some(recipient) == own.as_ref() {
                true => format!("your credential in the room ({recipient})"),
                false => recipient.clone(),
            };
            format!("sealed; opened by {}", recipients.iter().map(name).collect::<Vec<_>>().join(", "))
        }
    }
}
