//! `cheetah drive`: the keys that open a sealed drive.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cheetah_device::path_text::path_to_text;
use cheetah_drive::{DriveFile, sealed};
use cheetah_kit::file::of_its_owner_alone;
use cheetah_seal::age::{Identity, Recipient};
use cheetah_seal::keyring;
use clap::Subcommand;

use super::compared::wrapped;
use super::seal::{describe, recipient, unusable};
use crate::answers::keys as answers;
use crate::desk::Desk;
use crate::failure::{Context, Failure, Result};
use crate::ui::Ui;

/// The options of `drive`.
#[derive(Debug, clap::Args)]
#[command(about = "Choose the keys that open a sealed drive")]
#[command(long_about = "Chooses the keys that open a sealed drive (cheetah create --seal).

The drive's key is stored in the drive file, encrypted in the age format for each recipient: a public key (age1…), \
whose identity is in a file, or a passphrase. See docs/guide/seal.md.

  cheetah drive identity me.key                        once; prints your age1…
  cheetah drive share case42.drive --recipient age1…   --identity me.key
  cheetah drive unshare case42.drive --recipient age1…")]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

impl Args {
    /// The drive file that it changes, if it changes one.
    pub fn drive(&self) -> Option<&Path> {
        match &self.command {
            Command::Share(args) => Some(&args.drive),
            Command::Unshare(args) => Some(&args.drive),
            Command::Identity(_) => None,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Let others open a sealed drive
    ///
    /// Encrypts the drive's key for other recipients, too. They need the drive file, the .seal file beside it, and
    /// access to the nodes. You must be able to open the drive: --identity or --passphrase-file.
    Share(ShareArgs),
    /// Take a key out of a sealed drive's file
    ///
    /// The drive's key itself stays the same: a recipient that has an older copy of the drive file can still open the
    /// drive. To exclude that, create a new sealed drive, load it from this one, and destroy this one.
    Unshare(UnshareArgs),
    /// Make a file with a new identity, and print its age1…
    ///
    /// Does the same as age-keygen. Only you can read the file. Keep a copy: if all identities and passphrases that
    /// open a drive are lost, its content is lost.
    Identity(IdentityArgs),
}

#[derive(Debug, clap::Args)]
struct ShareArgs {
    /// The drive file
    pub drive: PathBuf,

    /// A public key; repeat for more
    #[arg(long, value_name = "AGE", required_unless_present = "new_passphrase_file", value_parser = recipient)]
    recipient: Vec<Recipient>,

    /// File whose first line is a passphrase that will also open the drive
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct UnshareArgs {
    /// The drive file
    pub drive: PathBuf,

    /// The public key to take out; or 'passphrase' for all passphrases
    #[arg(long, value_name = "AGE|passphrase")]
    recipient: String,
}

#[derive(Debug, clap::Args)]
struct IdentityArgs {
    /// The file to write; must not exist. Without it, the age1… of your credential in the room is printed
    file: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args, desk: &Desk, ui: Ui) -> Result<()> {
    match args.command {
        Command::Share(args) => share(args, desk, ui),
        Command::Unshare(args) => unshare(&args, desk, ui),
        Command::Identity(IdentityArgs { file: Some(file) }) => identity(&file, ui),
        Command::Identity(IdentityArgs { file: None }) => of_room(desk, ui),
    }
}

fn share(args: ShareArgs, desk: &Desk, ui: Ui) -> Result<()> {
    let mut file = DriveFile::load(&args.drive)?;
    let mut recipients = args.recipient;
    if let Some(path) = &args.new_passphrase_file {
        recipients.push(keyring::passphrase(path).map_err(|error| unusable(&error))?.recipient());
    }
    // No node is asked.
    let session = desk.session(Duration::ZERO);
    for recipient in &recipients {
        sealed::share(&mut file, recipient, &session)?;
    }
    answer(&file, desk, ui);
    Ok(())
}

fn unshare(args: &UnshareArgs, desk: &Desk, ui: Ui) -> Result<()> {
    let mut file = DriveFile::load(&args.drive)?;
    if !sealed::unshare(&mut file, &args.recipient)? {
        return Err(Failure::misused(format!("{} is not shared with {}", args.drive.display(), args.recipient)));
    }
    ui.warn("a recipient that has an older copy of the drive file can still open the drive");
    answer(&file, desk, ui);
    Ok(())
}

fn answer(file: &DriveFile, desk: &Desk, ui: Ui) {
    let keys: Vec<&str> = file.sealed.iter().flat_map(|seal| &seal.keys).map(|key| key.recipient.as_str()).collect();
    let value = answers::Recipients { drive: path_to_text(&file.path), recipients: keys };
    let text = format!("{}: {}", file.path.display(), describe(file, &desk.credentials).unwrap_or_default());
    ui.answer(wrapped(&text, 0), &value);
}

/// Prints the recipient that stands for the credential in a room.
fn of_room(desk: &Desk, ui: Ui) -> Result<()> {
    let own = sealed::room_recipient(&desk.credentials)?
        .ok_or_else(|| Failure::misused("this machine is in no room: name the file for a new identity"))?;
    ui.answer(&own, &answers::Recipient { recipient: &own.to_string() });
    Ok(())
}

fn identity(path: &Path, ui: Ui) -> Result<()> {
    let identity = Identity::generate().map_err(|error| unusable(&error))?;
    let recipient = identity.recipient().to_string();
    let Some(secret) = identity.secret_text() else { return Err(Failure::failed("a new identity has no text")) };
    let writing = format!("cannot write {}", path.display());
    let mut file = match of_its_owner_alone(File::options().write(true).create_new(true)).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Failure::misused(format!("{} exists already; choose another name", path.display())));
        }
        opened => opened.context(&writing)?,
    };
    let head = format!(
        "# A Cheetah identity, in the format of age. It opens the drives that are sealed for:\n# {recipient}\n"
    );
    let written = file.write_all(head.as_bytes()).and_then(|()| file.write_all(secret.as_bytes()));
    written.and_then(|()| file.write_all(b"\n")).and_then(|()| file.sync_all()).context(&writing)?;
    let value = answers::Identity { file: path_to_text(path), recipient: &recipient };
    ui.answer(format_args!("{}: {recipient}", path.display()), &value);
    Ok(())
}
