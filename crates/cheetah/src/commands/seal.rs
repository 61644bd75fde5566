//! The options of `create` for sealed drives, and describing seals.

use cheetah_device::Size;
use cheetah_drive::DriveFile;
use cheetah_drive::sealed::{SealRequest, room_recipient};
use cheetah_seal::age::Recipient;
use cheetah_seal::keyring;
use cheetah_seal::units::{UNIT_BYTES_LARGE, UNIT_BYTES_SMALL};

use crate::failure::{Failure, Result};

/// How a new drive is sealed.
#[derive(Debug, Clone, clap::Args)]
pub struct SealArgs {
    /// Seal the drive: nodes hold ciphertext only, and cannot change it undetected
    #[arg(long)]
    seal: bool,

    /// Do not seal the drive: nodes hold its content unencrypted, which is the default
    #[arg(long, conflicts_with = "seal")]
    no_seal: bool,

    /// Public key (age1…) that also opens the drive; repeat for more
    #[arg(long, value_name = "AGE", requires = "seal")]
    recipient: Vec<Recipient>,

    /// Store no zeros, which saves memory, but shows the nodes where the drive holds zeros
    #[arg(long, requires = "seal")]
    seal_holes: bool,

    /// Bytes sealed as a whole: 4KiB for small random writes, 64KiB for images [default: 64KiB with --from, else 4KiB]
    #[arg(long, value_name = "SIZE", requires = "seal")]
    seal_unit: Option<Size>,
}

impl SealArgs {
    /// Returns how to seal a drive; `None` if it is not to be sealed.
    pub fn get(&self, is_image: bool, is_lazy: bool) -> Result<Option<SealRequest>> {
        if !self.seal {
            return Ok(None);
        }
        if is_lazy {
            return Err(Failure::misused("a sealed drive cannot be filled lazily yet: leave out --lazy, or --seal"));
        }
        let unit = match self.seal_unit {
            Some(Size(bytes @ (UNIT_BYTES_SMALL | UNIT_BYTES_LARGE))) => bytes,
            Some(size) => return Err(Failure::misused(format!("--seal-unit is 4KiB or 64KiB, not {size}"))),
            None if is_image => UNIT_BYTES_LARGE,
            None => UNIT_BYTES_SMALL,
        };
        let mut recipients = self.recipient.clone();
        recipients.extend(keyring::recipients().map_err(|error| Failure::misused(error.to_string()))?);
        recipients.extend(room_recipient()?);
        if recipients.is_empty() {
            return Err(Failure::misused(
                "a sealed drive needs a key that opens it: --recipient age1…, --identity FILE (make one with cheetah drive \
                 identity FILE), --passphrase-file FILE, or a room",
            ));
        }
        Ok(Some(SealRequest { unit, holes: self.seal_holes, recipients }))
    }
}

/// Describes a drive's seal; `None` if it is not sealed.
pub fn describe(file: &DriveFile) -> Option<String> {
    let seal = file.sealed.as_ref()?;
    let recipients: Vec<String> = seal.keys.iter().map(|key| key.recipient.clone()).collect();
    let holes = if seal.holes { "; nodes know its holes" } else { "" };
    Some(format!("{}; units of {}{holes}", describe_recipients(&recipients), Size(seal.unit)))
}

/// Describes the seal of a drive that these recipients can open.
pub fn describe_recipients(recipients: &[String]) -> String {
    match recipients {
        [] => "sealed, and its key is destroyed: its content cannot be read any more".to_owned(),
        _ => {
            let own = room_recipient().ok().flatten().map(|own| own.to_string());
            let name = |recipient: &String| match Some(recipient) == own.as_ref() {
                true => format!("your credential in the room ({recipient})"),
                false => recipient.clone(),
            };
            format!("sealed; opened by {}", recipients.iter().map(name).collect::<Vec<_>>().join(", "))
        }
    }
}
