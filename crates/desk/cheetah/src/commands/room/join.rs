//! `cheetah room join`: joins a room without starting anything.

use std::borrow::Cow;

use cheetah_device::path_text::path_to_text;
use cheetah_room::client::MachineInfo;
use cheetah_room::invitation::parse_host_port;
use cheetah_room::machine::{PORT, host_name, own_addresses};
use cheetah_room::resolve::{Membership, Purpose, Wanted, resolve};
use cheetah_room::{Host, Invitation};
use cheetah_tls::Role;

use crate::answers::room::Join;
use crate::failure::{Context, Failure, Result};
use crate::room::{ask, report_clock};
use crate::ui::Ui;

/// The options of `room join`.
#[derive(Debug, clap::Args)]
#[command(about = "Join a room with this machine")]
#[command(
    long_about = "Joins a room, with an invitation or, without one, by a code: this machine shows 8 digits, and the \
examiner types them at the room's machine (cheetah room approve). The credential is kept in the user's configuration \
directory, and other commands find it there.

  cheetah room join room1.AQEqO…
  cheetah room join examiner --role node
  cheetah room join examiner:10812 --role analyst"
)]
pub struct Args {
    /// The invitation, a file that holds it, or HOST or HOST:PORT of the machine where cheetah room serve runs
    #[arg(value_name = "INVITATION|HOST")]
    place: String,

    /// Role to ask for: node, trusted-node, agent, analyst or examiner. An invitation has one already
    #[arg(long, value_parser = super::role)]
    role: Option<Role>,

    /// Name of this machine [default: the host's name]
    #[arg(long)]
    name: Option<String>,
}

/// Runs the command.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    let machine = MachineInfo { name: args.name.clone().unwrap_or_else(host_name), hosts: own_addresses() };
    let is_file = std::path::Path::new(&args.place).is_file();
    if Invitation::is_meant(&args.place) || is_file {
        return with_invitation(&args, machine, is_file, ui).await;
    }
    let Some(role) = args.role else {
        return Err(Failure::misused(
            "say which role to ask for: --role node, trusted-node, agent, analyst or examiner",
        ));
    };
    let (host, port) = place(&args.place)?;
    let membership = ask(&(host, port), role, &machine, false, ui).await?;
    answer(&membership, membership.file.as_ref().map(path_to_text), role, ui);
    Ok(())
}

fn answer(membership: &Membership, file: Option<Cow<'_, str>>, role: Role, ui: Ui) {
    if let Some(new) = membership.new {
        report_clock(new.clock_offset_s, ui);
    }
    let (new, room) = (membership.new.is_some(), membership.room.as_str());
    let value = Join::Joined { file, new, role: role.name(), room };
    let how = if new { "joined" } else { "this machine is already in" };
    ui.answer(format_args!("{how} room {room} as {role}"), &value);
}

async fn with_invitation(args: &Args, machine: MachineInfo, is_file: bool, ui: Ui) -> Result<()> {
    let text = match is_file {
        true => std::fs::read_to_string(&args.place).context(format_args!("cannot read {}", args.place))?,
        false => args.place.clone(),
    };
    let invitation: Invitation = text.parse().map_err(Failure::misused)?;
    let role = invitation.role;
    if args.role.is_some_and(|wanted| wanted != role) {
        return Err(Failure::misused(format!("the invitation is for the role {role}; leave --role out")));
    }
    let purpose = match role {
        Role::Node | Role::TrustedNode => Purpose::Node,
        Role::Agent => Purpose::Agent,
        _ => Purpose::Client,
    };
    let membership = resolve(&Wanted { text: Some(text.trim()), purpose, ephemeral: false, machine }).await?;
    let membership = membership.ok_or_else(|| Failure::failed("the invitation names no room"))?;
    answer(&membership, None, role, ui);
    Ok(())
}

/// Parses `HOST[:PORT]`.
fn place(text: &str) -> Result<(Host, u16)> {
    let place = text.parse().ok().map(|host| (host, PORT)).or_else(|| parse_host_port(text));
    place.ok_or_else(|| {
        Failure::misused(format!("'{text}' is neither an invitation nor HOST:PORT; write examiner:{PORT}"))
    })
}
