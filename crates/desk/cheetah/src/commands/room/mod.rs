//! `cheetah room`: the machines that trust one examiner's key.

mod approve;
mod boot_image;
mod cpio;
mod detached;
mod drives;
mod export;
mod init;
mod invite;
mod join;
mod list;
mod qr;
mod revoke;
mod serve;

use cheetah_error::{Error, list as listed};
use cheetah_room::Room;
use cheetah_room::credentials::stored_credentials;
use cheetah_room::resolve::with_id;
use cheetah_tls::Role;
use clap::Subcommand;

use crate::failure::Result;
use crate::ui::Ui;

/// The options of `room`.
#[derive(Debug, clap::Args)]
#[command(about = "Make a room of machines, and let machines in")]
#[command(
    long_about = "A room is the set of machines that trust one examiner's key. All connections between them are \
encrypted, and each machine proves its role at every connection. One machine, the examiner's, makes the room and lets \
others in; after that, they work without it.

  cheetah room init lab                       once, on the examiner's machine
  cheetah room invite --role node             prints a string
  cheetah node --memory 12GiB --room STRING   on each machine that lends memory
  cheetah room list
  cheetah room revoke lab-7

Roles: a node lends memory; an agent serves a disk; an analyst reads drives; an examiner does everything.

With several rooms on a machine, choose one with --room NAME. See docs/guide/room.md."
)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// The verbs of `room`.
#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Args),
    Invite(invite::Args),
    Serve(serve::Args),
    Join(join::Args),
    Pending(approve::PendingArgs),
    Approve(approve::Args),
    List(list::Args),
    Drives(drives::Args),
    Revoke(revoke::Args),
    Export(export::Args),
    Credential(export::CredentialArgs),
    BootImage(boot_image::Args),
}

/// Runs the command. `room` is the value of `--room`.
pub async fn run(args: Args, room: Option<&str>, ui: Ui) -> Result<()> {
    match args.command {
        Command::Init(args) => init::run(&args, ui),
        Command::Invite(args) => invite::run(args, room, ui).await,
        Command::Serve(args) => serve::run(args, room, ui).await,
        Command::Join(args) => join::run(args, ui).await,
        Command::Pending(args) => approve::pending(&args, room, ui),
        Command::Approve(args) => approve::run(&args, room, ui),
        Command::List(args) => list::run(&args, room, ui).await,
        Command::Drives(args) => drives::run(args, room, ui).await,
        Command::Revoke(args) => revoke::run(&args, room, ui).await,
        Command::Export(args) => export::run(&args, room, ui),
        Command::Credential(args) => export::credential(&args, room, ui),
        Command::BootImage(args) => boot_image::run(args, room, ui).await,
    }
}

/// Opens the room named by `--room`, or the only one on this machine.
fn open(name: Option<&str>) -> Result<Room> {
    let names = Room::names()?;
    let wanted = |text: &str| text == name.unwrap_or(text);
    let member = stored_credentials()?.into_iter().find(|stored| {
        let id = stored.credential.room().map(|id| with_id(&stored.room, id));
        wanted(&stored.room) || id.is_some_and(|id| Some(&*id) == name)
    });
    let is_own = name.is_some_and(|name| names.iter().any(|own| own == name)) || name.is_none() && !names.is_empty();
    if let Some(stored) = member.filter(|_| !is_own) {
        let role = stored.credential.identity().map_or("member", |identity| identity.role.name());
        let at = if stored.at.is_empty() { String::new() } else { format!(" ({})", stored.at.join(", ")) };
        return Err(Error::misuse(format!(
            "this machine is in room {} as {role}; only the machine that made the room can do this{at}. Do not make another \
             room of that name here",
            stored.room
        ))
        .into());
    }
    if let Some(name) = name {
        return Ok(Room::open(name)?);
    }
    match &*names {
        [only] => Ok(Room::open(only)?),
        [] => Err(Error::misuse(
            "there is no room on this machine; make one (cheetah room init lab), or run this on the machine that has it",
        )
        .into()),
        several => Err(Error::misuse(format!("there are several rooms; name one: --room {}", several[0]))
            .into())
        .map_err(|failure: crate::failure::Failure| failure.while_doing(listed(several))),
    }
}

/// Parses a role of a member.
fn role(text: &str) -> std::result::Result<Role, String> {
    match text.parse() {
        Ok(Role::Room) | Err(_) => Err("write node, trusted-node, agent, analyst or examiner".into()),
        Ok(role) => Ok(role),
    }
}

/// Parses a length of time: a number and s, m, h or d. Returns seconds.
fn seconds(text: &str) -> std::result::Result<u64, String> {
    let why = || "write a number and a unit: 30m, 8h or 7d; at most 400d".to_owned();
    let unit = text.chars().next_back().ok_or_else(why)?;
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        _ => return Err(why()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| why())?;
    let seconds =
        number.checked_mul(factor).filter(|seconds| (1..=cheetah_room::register::OPEN_S_MAX).contains(seconds));
    seconds.ok_or_else(why)
}

/// Formats a length of time in the form that [`seconds`] parses.
fn shown_seconds(seconds: u64) -> String {
    for (factor, unit) in [(24 * 3600, "d"), (3600, "h"), (60, "m")] {
        if seconds >= factor && seconds.is_multiple_of(factor) {
            return format!("{} {unit}", seconds / factor);
        }
    }
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} m", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_units() {
        for (text, parsed) in [("90s", 90), ("30m", 1800), ("8h", 28_800), ("7d", 604_800)] {
            assert_eq!(seconds(text), Ok(parsed));
        }
        for text in ["", "8", "h", "0h", "-1h", "1w", "401d", "99999999999999999999d", "8ä"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(
            (shown_seconds(28_800), shown_seconds(5), shown_seconds(7201)),
            ("8 h".into(), "5 s".into(), "2 h".into())
        );
    }
}
