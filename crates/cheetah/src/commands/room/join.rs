//! `cheetah room join`: joins a room without starting anything.

use std::io::{BufRead as _, IsTerminal as _};

use cheetah_room::client::{Me, wait_for_approval};
use cheetah_room::kept::Credentials;
use cheetah_room::place::{host_name, own_addresses};
use cheetah_room::resolve::{Purpose, Wanted, resolve};
use cheetah_room::{Invitation, PrivateKey};
use cheetah_tls::Role;
use serde_json::json;

use super::serve::PORT;
use crate::failure::{Context, Failure, Result};
use crate::room::report_clock;
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
    /// The invitation, a file that holds it, or HOST[:PORT] of the machine where cheetah room serve runs
    #[arg(value_name = "INVITATION|HOST")]
    place: String,

    /// Role to ask for: node, agent, analyst or examiner. An invitation has one already
    #[arg(long, value_parser = super::role)]
    role: Option<Role>,

    /// Name of this machine [default: the host's name]
    #[arg(long)]
    name: Option<String>,
}

/// Runs the command.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    let me = Me { name: args.name.clone().unwrap_or_else(host_name), hosts: own_addresses(), nbd_port: None };
    let is_file = std::path::Path::new(&args.place).is_file();
    if Invitation::is_meant(&args.place) || is_file {
        return with_invitation(&args, me, is_file, ui).await;
    }
    let Some(role) = args.role else {
        return Err(Failure::misused("say which role to ask for: --role node, agent, analyst or examiner"));
    };
    let (host, port) = parse_place(&args.place)?;
    let key = PrivateKey::generate()?;
    let show = async |code: cheetah_room::pending::Code, room_key: cheetah_tls::Fingerprint| {
        let value = json!({ "event": "waiting", "code": code.to_string(), "room_key_sha256": room_key.to_string() });
        let text = format!("code {code}; on the room's machine, run: cheetah room approve {code} --role {role}");
        ui.event(text, &value);
        Ok(())
    };
    let joined = wait_for_approval((&host, port), &key, &me, role, show).await?;
    // A machine in between could have approved this one in a room of its own. A node has nothing to lose by that.
    if role != Role::Node {
        confirm(&joined.room).await?;
    }
    report_clock(joined.clock_offset_s, ui);
    let kept = Credentials::open()?.keep(&joined)?;
    let value = json!({ "event": "joined", "room": joined.room, "role": role.name(), "file": kept.path });
    ui.answer(format_args!("joined room {} as {role}: {}", joined.room, kept.path.display()), &value);
    Ok(())
}

async fn with_invitation(args: &Args, me: Me, is_file: bool, ui: Ui) -> Result<()> {
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
        Role::Node => Purpose::Node,
        Role::Agent => Purpose::Agent,
        _ => Purpose::Client,
    };
    let membership = resolve(&Wanted { text: Some(text.trim()), purpose, ephemeral: false, me }).await?;
    let membership = membership.ok_or_else(|| Failure::failed("the invitation names no room"))?;
    if let Some(new) = membership.new {
        report_clock(new.clock_offset_s, ui);
    }
    let value =
        json!({ "event": "joined", "room": membership.room, "role": role.name(), "new": membership.new.is_some() });
    let how = if membership.new.is_some() { "joined" } else { "this machine is already in" };
    ui.answer(format_args!("{how} room {} as {role}", membership.room), &value);
    Ok(())
}

/// Asks the person at this machine whether the examiner typed the code, and it was accepted.
async fn confirm(room: &str) -> Result<()> {
    const HOW: &str = "for roles other than node, a person must confirm at a terminal; use an invitation instead (cheetah \
                       room invite)";
    if !std::io::stdin().is_terminal() {
        return Err(Failure::misused(HOW));
    }
    crate::ui::stderr::line(format_args!(
        "Did cheetah room approve accept this code on the machine of room {room}? Type yes, or anything else to stop:"
    ));
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let line = answer.await.context("asking was interrupted")?.context("cannot read the answer")?;
    if line.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::failed("not confirmed: the credential is not used; revoke the member on the room's machine"))
}

/// Parses `HOST[:PORT]`.
fn parse_place(text: &str) -> Result<(String, u16)> {
    let bad = || Failure::misused(format!("'{text}' is neither an invitation nor HOST:PORT; write examiner:{PORT}"));
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Ok((address.ip().to_string(), address.port()));
    }
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Ok((text.to_owned(), PORT));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?),
        None => (text, PORT),
    };
    host.parse::<cheetah_room::Host>().map_err(|_| bad())?;
    Ok((host.to_owned(), port))
}
