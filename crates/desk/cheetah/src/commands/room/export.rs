//! `cheetah room export` and `room credential`: credentials as files.

use std::path::PathBuf;

use cheetah_device::path_text::path_to_text;
use cheetah_kit::clock::now_s;
use cheetah_room::machine::host_name;
use cheetah_room::resolve::{SecretFile, secret_directory};
use cheetah_room::{Admission, Member, PrivateKey, Room};
use cheetah_tls::Role;

use crate::answers::room as answers;
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// The options of `room export`.
#[derive(Debug, clap::Args)]
#[command(about = "Write PEM files for nbdcopy, qemu and nbdkit")]
#[command(
    long_about = "Writes a new credential as PEM files in the layout of the NBD tools (ca-cert.pem, client-cert.pem, \
client-key.pem, server-cert.pem, server-key.pem, ca-crl.pem), for tls-certificates=DIR.

  cheetah room export ~/lab-tls
  nbdcopy 'nbds://lab1/case42?tls-certificates=/home/ann/lab-tls' copy.raw
  cheetah room export /etc/lab-tls --role node --name nbdkit-1
  nbdkit --tls=require --tls-certificates=/etc/lab-tls memory 1G"
)]
pub struct Args {
    /// Directory to write to; is made if there is none
    directory: PathBuf,

    /// Role: node, trusted-node, agent, analyst or examiner
    #[arg(long, default_value = "examiner", value_parser = super::role)]
    role: Role,

    /// Name of the new member [default: this machine's name, with a number if it is taken]
    #[arg(long)]
    name: Option<String>,
}

/// The options of `room credential`.
#[derive(Debug, clap::Args)]
#[command(about = "Make a credential file for a machine that cannot reach this one")]
#[command(
    long_about = "Makes a credential in advance, for a machine or a boot image that is carried offline: a file for \
--room FILE. It holds a private key: anyone with the file can act as that member. If it is lost, revoke the member.

  cheetah room credential --role node --name lab-7 --out lab-7.pem
  cheetah node --memory 12GiB --room lab-7.pem"
)]
pub struct CredentialArgs {
    /// Role: node, trusted-node, agent, analyst or examiner
    #[arg(long, value_parser = super::role)]
    role: Role,

    /// File to write; must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Name of the new member [default: the file's name]
    #[arg(long)]
    name: Option<String>,
}

const FILES: [&str; 6] =
    ["ca-cert.pem", "ca-crl.pem", "client-cert.pem", "client-key.pem", "server-cert.pem", "server-key.pem"];

/// Runs `room export`.
pub fn run(args: &Args, room: Option<&str>, ui: Ui) -> Result<()> {
    let room = super::open(room)?;
    let directory = secret_directory(&args.directory)?;
    for name in FILES {
        if directory.at(name).symlink_metadata().is_ok() {
            let path = directory.at(name);
            return Err(Failure::misused(format!(
                "{} exists, and is not overwritten; choose another directory",
                path.display()
            )));
        }
    }
    let key = PrivateKey::generate()?;
    let name = args.name.clone().unwrap_or_else(host_name);
    let (member, certificate) = room.admit(&key, &name, args.role, Admission::Exported)?;
    let write = || {
        let (key, revocations) = (key.to_pem(), room.revocations_pem()?);
        let contents = [room.authority().certificate_pem(), &revocations, &certificate, &*key, &certificate, &*key];
        FILES.iter().zip(contents).try_for_each(|(name, content)| directory.write(name, content.as_bytes()))
    };
    write().inspect_err(|_| {
        for name in FILES {
            let _ = directory.remove(name);
        }
        revoke(&room, &member);
    })?;
    let value = answers::Export {
        directory: path_to_text(&args.directory),
        files: &FILES,
        key_sha256: member.key.to_string(),
        name: &member.name,
        role: member.role.name(),
    };
    let text = format!("{}: {} as {} ({})", args.directory.display(), member.name, member.role, FILES.join(", "));
    ui.answer(text, &value);
    Ok(())
}

/// Runs `room credential`.
pub fn credential(args: &CredentialArgs, room: Option<&str>, ui: Ui) -> Result<()> {
    let room: Room = super::open(room)?;
    let file = SecretFile::create(&args.out)?;
    let stem = || args.out.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = args.name.clone().or_else(stem).unwrap_or_default();
    let key = PrivateKey::generate()?;
    let (member, _) = room.admit(&key, &name, args.role, Admission::InAdvance)?;
    let content = room.credential_file(&key, &member);
    content.and_then(|content| file.write(content.as_bytes())).inspect_err(|_| revoke(&room, &member))?;
    let value = answers::Credential {
        file: path_to_text(&args.out),
        key_sha256: member.key.to_string(),
        name: &member.name,
        role: member.role.name(),
    };
    let path = args.out.display();
    ui.answer(
        format_args!(
            "{path}: {} as {}; carry it to the machine, and use --room {path} there",
            member.name, member.role
        ),
        &value,
    );
    Ok(())
}

/// Takes back a membership whose credential could not be written.
fn revoke(room: &Room, member: &Member) {
    if let Err(error) = room.change(|register| Ok(register.revoke(&[&member.name], now_s()))) {
        tracing::error!("{} is still a member; revoke it (cheetah room revoke {}): {error}", member.name, member.name);
    }
}
