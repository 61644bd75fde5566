//! `cheetah room boot-image`: a laboratory's own boot image.
//!
//! The image of `make live` reserves room of a fixed size for the laboratory's archive, beside the system's archives.
//! The archive replaces that room, so nothing is rebuilt. For network boot, it is a file of its own.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use cheetah_device::os_error;
use cheetah_device::path_text::path_to_text;
use cheetah_room::invitation::Invitation;
use cheetah_room::{Host, Room};
use cheetah_tls::Role;
use zeroize::Zeroizing;

use super::cpio::Archive;
use super::{invite, seconds, shown_seconds};
use crate::answers::room::BootImage;
use crate::commands::listen;
use crate::commands::options::JOIN_PORT;
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// The length of the archive and of its place (workshop/boot/initrd.py).
const ARCHIVE_LEN: usize = 64 << 10;
/// The first entry of the archive. Files on a disc begin at multiples of a sector.
const MARK: &[u8] = b"cheetah: the archive of a laboratory\n";
const SECTOR_LEN: usize = 2048;
/// The first bytes of an archive.
const ARCHIVE_START: &[u8] = b"070701";
const FOLDER: &str = "etc/cheetah";

/// The options of `room boot-image`.
#[derive(Debug, clap::Args)]
#[command(about = "Make a boot image whose machines join by themselves")]
#[command(
    long_about = "Makes a boot image whose machines join this room by themselves: it puts the addresses of this machine \
and an invitation into a copy of the image that make live has built. With a name that ends in .img, only the archive is \
written; it replaces lab.img in the tree for network boot.

Each machine makes a key of its own and keeps it in memory only. Anyone with the image can join with its role until it \
expires: protect the image like a password.

  cheetah room boot-image --out lab.iso
  cheetah room boot-image --out lab.iso --serve --expires 30d
  cheetah room boot-image --out /srv/cheetah/pxe/lab.img"
)]
pub struct Args {
    /// The new image; with a name that ends in .img, only the archive
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// The image that make live has built
    #[arg(long, value_name = "FILE", default_value = "target/live/cheetah.iso")]
    image: PathBuf,

    /// Also let machines in that serve their own disks: the role agent
    #[arg(long)]
    serve: bool,

    /// How long machines may join with it: 30m, 8h, 7d
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = seconds)]
    expires: u64,

    /// How often machines may join with it, each start counted
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5000))]
    uses: u32,

    /// Address of this machine for those that join; repeatable [default: all of its addresses]
    #[arg(long, value_name = "HOST")]
    address: Vec<Host>,

    /// Address at which to let machines in [default: every address, port 10812]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen::address)]
    listen: Option<SocketAddr>,

    /// Start no process that lets machines in; run cheetah room serve yourself
    #[arg(long)]
    no_serve: bool,
}

/// Runs the command.
pub async fn run(args: Args, room: Option<&str>, ui: Ui) -> Result<()> {
    let room = super::open(room)?;
    let alone = args.out.extension().is_some_and(|extension| extension == "img");
    let place = if alone { None } else { Some(find_place(&args.image)?) };
    if args.out.symlink_metadata().is_ok() {
        let path = args.out.display();
        return Err(Failure::misused(format!("{path} exists, and is not overwritten; choose another name")));
    }
    let mut ids = Vec::new();
    let made = write(&args, &room, place, &mut ids).await;
    let lend = made.inspect_err(|_| ids.iter().for_each(|id| invite::close(&room, id)))?;
    let hosts: Vec<_> = lend.hosts.iter().map(|host| host.with_port(lend.port)).collect();
    let value = BootImage {
        expires_s: args.expires,
        file: path_to_text(&args.out),
        hosts: &hosts,
        room: room.name(),
        serves: args.serve,
        uses: args.uses,
    };
    let text = format!(
        "{}: machines that start from it join room {} at {}, {} times within {}; keep it secret\nto gather them: cheetah \
         create DRIVE --wait N --listen 0.0.0.0:{JOIN_PORT}",
        args.out.display(),
        room.name(),
        hosts.join(", "),
        args.uses,
        shown_seconds(args.expires),
    );
    ui.answer(text, &value);
    Ok(())
}

/// Makes the invitations, whose ids are added to `ids`, and the image with them. Returns the invitation for machines
/// that lend.
async fn write(args: &Args, room: &Room, place: Option<u64>, ids: &mut Vec<String>) -> Result<Invitation> {
    let lend = invite(args, room, Role::Node, ids).await?;
    let serve = if args.serve { Some(invite(args, room, Role::Agent, ids).await?) } else { None };
    let archive = archive(&lend, serve.as_ref())
        .ok_or_else(|| Failure::failed("the addresses do not fit into a boot image; give fewer with --address"))?;
    let written = match place {
        Some(place) => copy_with(&args.image, place, &archive, &args.out),
        None => publish(&args.out, |file| file.write_all(&archive)),
    };
    written.map_err(|error| {
        Failure::failed(format!("cannot write {}: {}", args.out.display(), os_error::describe(&error)))
    })?;
    Ok(lend)
}

async fn invite(args: &Args, room: &Room, role: Role, ids: &mut Vec<String>) -> Result<Invitation> {
    let terms = invite::Terms {
        role,
        expires: args.expires,
        uses: args.uses,
        address: args.address.clone(),
        listen: args.listen,
        no_serve: args.no_serve,
    };
    let (invitation, id, _) = invite::make(room, terms).await?;
    ids.push(id);
    Ok(invitation)
}

/// The archive: for each entry of the boot menu, the options of its program and the invitation named in them. `None` if
/// it does not fit.
fn archive(lend: &Invitation, serve: Option<&Invitation>) -> Option<Zeroizing<Vec<u8>>> {
    let mut made = Archive::default();
    made.directory("etc");
    made.directory(FOLDER);
    made.file(&format!("{FOLDER}/mark"), MARK);
    let gather: Vec<_> = lend.hosts.iter().map(|host| format!("--join {}", host.with_port(JOIN_PORT))).collect();
    add(&mut made, "lend", lend, &gather.join(" "));
    if let Some(serve) = serve {
        // The image replaces these words by the ports of each disk.
        let to = serve.hosts.first().map(|host| host.with_port(0)).unwrap_or_default();
        add(
            &mut made,
            "serve",
            serve,
            &format!("--listen 0.0.0.0:LISTEN --connect {}CONNECT", to.trim_end_matches('0')),
        );
    }
    made.finish(ARCHIVE_LEN)
}

fn add(made: &mut Archive, entry: &str, invitation: &Invitation, options: &str) {
    // The image's whole file system is in memory: a credential kept there lasts until the machine ends, and the servers
    // of all its disks share one.
    let options = format!("--room /{FOLDER}/{entry}.room {options}\n");
    made.file(&format!("{FOLDER}/{entry}"), options.as_bytes());
    let text = Zeroizing::new(format!("{invitation}\n"));
    made.file(&format!("{FOLDER}/{entry}.room"), text.as_bytes());
}

/// Finds the room for the archive in an image: its offset in bytes.
fn find_place(image: &Path) -> Result<u64> {
    let failed = |error: io::Error| {
        let (shown, why) = (image.display(), os_error::describe(&error));
        Failure::failed(format!("cannot read {shown}: {why}; build it with make live, or name it with --image"))
    };
    let mut file = BufReader::with_capacity(1 << 20, File::open(image).map_err(failed)?);
    let mut sector = [0; SECTOR_LEN];
    let mut offset = 0;
    loop {
        match file.read_exact(&mut sector) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Failure::misused(format!(
                    "{} is no boot image: it has no place for a room; build one with make live",
                    image.display()
                )));
            }
            Err(error) => return Err(failed(error)),
        }
        if sector.starts_with(ARCHIVE_START) && sector.windows(MARK.len()).any(|part| part == MARK) {
            return Ok(offset);
        }
        offset += SECTOR_LEN as u64;
    }
}

/// Copies an image, with the archive in its place.
fn copy_with(image: &Path, place: u64, archive: &[u8], out: &Path) -> io::Result<()> {
    publish(out, |file| {
        let copied = io::copy(&mut File::open(image)?, file)?;
        if copied < place + archive.len() as u64 {
            return Err(io::Error::other("the image changed or is incomplete; build it again with make live"));
        }
        file.seek(SeekFrom::Start(place))?;
        file.write_all(archive)
    })
}

/// Makes a file that only its owner can read, whole or not at all: a part of it may contain an invitation.
fn publish(out: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Temporary files have mode 0600, and are removed unless they are published.
    let mut partial = tempfile::Builder::new().prefix(".cheetah-boot-image-").tempfile_in(folder)?;
    write(partial.as_file_mut())?;
    partial.as_file().sync_all()?;
    partial.persist_noclobber(out)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use cheetah_room::invitation::Token;
    use cheetah_tls::Fingerprint;

    use super::*;

    fn invitation(role: Role, hosts: &[&str]) -> Invitation {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        Invitation { role, hosts, port: 10812, room_key: Fingerprint([7; 32]), token: Token::from_bytes([9; 16]) }
    }

    #[test]
    fn the_archive_has_the_options_and_invitations_of_both_entries() {
        let node = invitation(Role::Node, &["192.168.1.5", "fd00::5"]);
        let agent = invitation(Role::Agent, &["192.168.1.5", "fd00::5"]);
        let text = String::from_utf8(archive(&node, Some(&agent)).unwrap().to_vec()).unwrap();
        for part in [
            "--room /etc/cheetah/lend.room --join 192.168.1.5:10811 --join [fd00::5]:10811\n",
            "--room /etc/cheetah/serve.room --listen 0.0.0.0:LISTEN --connect 192.168.1.5:CONNECT\n",
            &format!("{node}\n"),
            &format!("{agent}\n"),
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!String::from_utf8_lossy(&archive(&node, None).unwrap()).contains("etc/cheetah/serve"));
    }

    #[test]
    fn the_archive_takes_its_place_again_and_again_and_nothing_else_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (image, once, twice) = (dir.path().join("image"), dir.path().join("once"), dir.path().join("twice"));
        let mut empty = Archive::default();
        empty.directory("etc");
        empty.directory(FOLDER);
        empty.file(&format!("{FOLDER}/mark"), MARK);
        let around = vec![b'x'; 3 * SECTOR_LEN];
        std::fs::write(&image, [&*around, &empty.finish(ARCHIVE_LEN).unwrap(), &around].concat()).unwrap();
        let own = |host| archive(&invitation(Role::Node, &[host]), None).unwrap();
        let place = find_place(&image).unwrap();
        copy_with(&image, place, &own("host-one"), &once).unwrap();
        copy_with(&once, find_place(&once).unwrap(), &own("host-two"), &twice).unwrap();
        assert_eq!(std::fs::read(&once).unwrap(), [&*around, &own("host-one"), &around].concat());
        assert_eq!(std::fs::read(&twice).unwrap(), [&*around, &own("host-two"), &around].concat());
    }

    #[test]
    fn nothing_is_left_of_an_image_that_could_not_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::write(&image, vec![b'x'; 3 * SECTOR_LEN]).unwrap();
        let own = archive(&invitation(Role::Node, &["host-one"]), None).unwrap();
        assert!(copy_with(&image, 0, &own, &dir.path().join("out")).is_err());
        // The disk is full.
        let full = |file: &mut File| file.write_all(&own).and_then(|()| Err(io::ErrorKind::StorageFull.into()));
        assert!(publish(&dir.path().join("out"), full).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        // A file of that name is not replaced.
        assert!(publish(&image, |file| file.write_all(&own)).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read(&image).unwrap(), vec![b'x'; 3 * SECTOR_LEN]);
    }

    #[test]
    fn a_file_without_a_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::write(&image, vec![b'x'; 5 * SECTOR_LEN + 7]).unwrap();
        assert!(find_place(&image).is_err());
        assert!(find_place(&dir.path().join("none")).is_err());
    }
}
