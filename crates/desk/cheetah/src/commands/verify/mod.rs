//! `cheetah verify`: compares a drive or an image with the record of when it was made.

mod custody;
mod decrypted;
mod drive;
mod image;
mod triage;

use std::path::Path;

use cheetah_acquire::order::Destination;
use cheetah_custody::{Custodian, CustodyLog, Known, NotedHead, PublicKey, SigningKey, Triaged};
use cheetah_image::{HashChoice, spec};
use cheetah_source::is_drive;

use super::lend_key::LendKeyArgs;
use super::options::{TimeoutArgs, check_at_nodes, source};
use super::unlock::UnlockArgs;
use crate::desk::Desk;
use crate::failure::{Failure, Result};
use crate::room::archive;
use crate::ui::Ui;

pub use self::custody::note_beside;

/// The arguments of `verify`.
#[derive(Debug, clap::Args)]
#[command(about = "Compare a drive or an image with its recorded digests and hashes")]
#[command(
    long_about = "Reads a drive or an image in full, in one pass, and compares it with the digests and hashes recorded \
when it was made.

A drive is compared with the digests and hashes made when it was loaded; space after the image is read, too. An image \
(raw, split, E01, AFF4 …) is compared with the hashes in its custody log and with those stored in it; ranges that its \
coverage map calls unreadable or unread are listed. The custody log beside either is checked: its chain, its signatures, \
its end. The log is the reference, because it is signed: the drive file, the digests, the report and the hashes stored in \
an image must agree with it, and none that it names may be missing. A log can also be checked alone.

With --unlock or --volume, and --decrypted, the content of a volume of a disk or an image is compared with an image of it, byte for \
byte: the volume is opened and decrypted anew, and no record is needed. If it lies on several disks, --with names the others. \
Nothing is added to a log.

The folder of a triage is compared with the custody log in it, which has the hash of each file of the result.

The result is added to the log, if the log is signed with your key and something in it was compared.

Exits with 3 if anything differs, is damaged, is or was unreadable, or was tampered with, and says where.

  cheetah verify case42.drive
  cheetah verify case42.drive --at-nodes
  cheetah verify case42.drive --at-nodes --lend-key all
  cheetah verify case42.E01
  cheetah verify case42.E01.custody --key examiner.pem
  cheetah verify triage42
  cheetah verify laptop.E01 --unlock keys.txt --decrypted laptop.decrypted.E01"
)]
#[command(group = clap::ArgGroup::new("chosen").args(["unlock", "volume"]).multiple(true))]
pub struct Args {
    /// A drive file, an image, the folder of a triage, or a custody log
    #[arg(value_parser = source())]
    pub target: String,

    /// Hashes of the whole to compute, of those recorded; a drive's chunk digests are always compared
    #[arg(long, default_value_t)]
    hash: HashChoice,

    /// Have nodes that lend their processor hash what they hold, instead of reading it: for a drive. Of the hashes of the whole,
    /// only BLAKE3 is computed so
    #[arg(long)]
    at_nodes: bool,

    #[command(flatten)]
    lend: LendKeyArgs,

    /// Trust logs signed with this key, besides your own: base64, or a PEM file
    #[arg(long, value_name = "PUBLIC")]
    key: Vec<String>,

    /// The head of the custody log, as `cheetah custody` printed it for your notebook: the log must have it
    #[arg(long, value_name = "RECORDS:SHA256")]
    head: Vec<NotedHead>,

    /// Add nothing to the image's custody log
    #[arg(long)]
    no_log: bool,

    #[command(flatten)]
    unlock: UnlockArgs,

    /// Compare the content of the volume that --unlock opens or --volume names with this image
    #[arg(long, value_name = "IMAGE", requires = "chosen", value_parser = source())]
    #[arg(conflicts_with_all = ["hash", "at_nodes", "key", "head", "no_log"])]
    decrypted: Option<String>,

    #[command(flatten)]
    timeout: TimeoutArgs,
}

/// Runs it.
pub async fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    match &args.decrypted {
        Some(image) => return decrypted::run(&args, image, desk, ui).await,
        None if args.unlock.is_given() => {
            return Err(Failure::misused(
                "a volume is compared with an image of its content: name that with --decrypted; the image itself needs no key to be verified",
            ));
        }
        None => {}
    }
    let mut keys = Keys::of(&args.key, &args.head, desk)?;
    check_at_nodes(args.at_nodes, &args.target, "hash")?;
    match spec::path_of(&args.target) {
        Some((path, false)) if path.extension().is_some_and(|extension| extension == "custody") => {
            keys.ask_room(&path, desk).await;
            custody::run(&path, &keys, ui)
        }
        Some((path, false)) if triage::is_one(&path) => {
            keys.ask_room(&Triaged::log_path(&path), desk).await;
            triage::run(&path, &args, &keys, ui)
        }
        Some((path, false)) if is_drive(&path) => {
            keys.ask_room(&CustodyLog::path_for(&path), desk).await;
            drive::run(&path, &args, (&keys, desk), ui).await
        }
        path => {
            // The log of an object is in the current folder.
            let object = || args.target.parse::<Destination>().ok().filter(|to| to.object.is_some()).map(|to| to.path);
            let path = path.map(|(path, _)| path).or_else(object);
            if let Some(path) = &path {
                keys.ask_room(&CustodyLog::path_for(path), desk).await;
            }
            image::run(&args, path, (&keys, desk), ui).await
        }
    }
}

/// The verifier's own key, and the keys they trust.
pub struct Keys {
    /// The verifier's own key, if it exists.
    own: Option<SigningKey>,
    /// That key, those named by --key, and the heads named by --head.
    pub known: Known,
    /// Keeps what is known of logs elsewhere.
    custodian: Custodian,
}

impl Keys {
    /// Reads the user's own key, and those that `--key` names; `heads` are those that `--head` names.
    pub fn of(named: &[String], heads: &[NotedHead], desk: &Desk) -> Result<Self> {
        let own = SigningKey::existing()?;
        let named = named.iter().map(|text| PublicKey::named(text)).collect::<Result<Vec<_>, _>>()?;
        let keys = own.iter().map(SigningKey::public).chain(named).collect();
        let heads = heads.iter().map(|head| ("--head".to_owned(), head.clone())).collect();
        let custodian = desk.custodian.clone();
        Ok(Self { own, known: Known { heads, ..custodian.known(keys) }, custodian })
    }

    /// Adds what the room's machine knows of the log at `path`.
    async fn ask_room(&mut self, path: &Path, desk: &Desk) {
        match archive::heads_of(path, desk.archive.as_ref()).await {
            None => {}
            Some(Ok((from, heads))) => self.known.placed.push((from, heads)),
            Some(Err(why)) => self.known.not_asked.push(why.to_string()),
        }
    }

    /// Returns the verifier's own key, if it signed records of this log.
    fn own_in(&self, log: &cheetah_custody::LogReport) -> Option<SigningKey> {
        let own = self.own.as_ref()?;
        log.signers.iter().any(|signer| signer.key == own.public().id()).then(|| own.clone())
    }
}
