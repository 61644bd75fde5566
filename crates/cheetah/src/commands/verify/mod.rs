//! `cheetah verify`: is the evidence still what it was?

mod custody;
mod drive;
mod image;

use std::path::{Path, PathBuf};

use cheetah_acquire::custody::{PublicKey, SigningKey};
use cheetah_image::HashChoice;
use cheetah_source::is_drive;

use super::options::TimeoutArgs;
use crate::failure::Result;
use crate::ui::Ui;

/// What `verify` is told.
#[derive(Debug, clap::Args)]
#[command(about = "Read a drive or an image in full and compare it with what was recorded when it was made")]
#[command(long_about = "Is the evidence still what it was? Reads it in full, in one pass, and compares.

A drive is compared with the digests and hashes made when it was loaded; what lies behind its image is read too. An image \
(raw, split, E01, AFF4 …) is compared with the hashes in its custody log and with those it stores itself; ranges that its \
coverage map calls unreadable or unread are told. The custody log beside either is checked: its chain, its signatures, \
its end. A log can be checked alone, too.

What was found is added to the image's log, if that is signed with your key.

Exits with 3 if anything differs, is damaged, could not be read or was tampered with, and says where.

  cheetah verify case42.drive
  cheetah verify case42.E01
  cheetah verify case42.E01.custody --key examiner.pem")]
pub struct Args {
    /// A drive file, an image, or a custody log
    target: String,

    /// Hashes of the whole to make again, of those recorded; a drive's chunk digests are always compared
    #[arg(long, default_value_t)]
    hash: HashChoice,

    /// Believe logs signed with this key, besides your own: base64, or a PEM file
    #[arg(long, value_name = "PUBLIC")]
    key: Vec<String>,

    /// Add nothing to the image's custody log
    #[arg(long)]
    no_log: bool,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs it.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    let keys = Keys::of(&args)?;
    let path = Path::new(&args.target);
    if path.extension().is_some_and(|extension| extension == "custody") {
        return custody::run(path, &keys, ui);
    }
    if is_drive(path) {
        return drive::run(path, &args, &keys, ui).await;
    }
    image::run(&args, &keys, ui).await
}

/// Who verifies, and whom they believe.
struct Keys {
    /// Their own key, if it was ever made.
    own: Option<SigningKey>,
    /// It, and those they named.
    trusted: Vec<PublicKey>,
}

impl Keys {
    fn of(args: &Args) -> Result<Self> {
        let own = SigningKey::existing()?;
        let named = args.key.iter().map(|text| PublicKey::named(text)).collect::<Result<Vec<_>, _>>()?;
        let trusted = own.iter().map(SigningKey::public).chain(named).collect();
        Ok(Self { own, trusted })
    }

    /// The verifier's own key, if it signed records of this log.
    fn own_in(&self, log: &cheetah_acquire::custody::LogReport) -> Option<SigningKey> {
        let own = self.own.as_ref()?;
        log.signers.iter().any(|signer| signer.key == own.public().id()).then(|| own.clone())
    }
}

/// The log beside `path`, if there is one.
fn log_beside(path: &Path) -> Option<PathBuf> {
    Some(cheetah_acquire::custody::CustodyLog::path_for(path)).filter(|log| log.exists())
}
