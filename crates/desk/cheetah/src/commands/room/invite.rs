//! `cheetah room invite`: makes an invitation.

use std::net::SocketAddr;
use std::path::PathBuf;

use cheetah_device::path_text::path_to_text;
use cheetah_kit::clock::now_s;
use cheetah_room::invitation::HOSTS_MAX;
use cheetah_room::machine::PORT;
use cheetah_room::resolve::SecretFile;
use cheetah_room::{Host, Invitation, Room, Serving};
use cheetah_tls::Role;

use super::{detached, qr, seconds, shown_seconds};
use crate::answers::room as answers;
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// The options of `room invite`.
#[derive(Debug, clap::Args)]
#[command(about = "Make an invitation: one string that lets machines in")]
#[command(
    long_about = "Makes an invitation, and prints it on the last line: one string with the address of this machine, \
the fingerprint of the room's key, and a secret. Anyone with the string can join with its role until it expires or is \
used up. If no process lets machines in yet, one is started in the background; it ends with the last invitation.

  cheetah room invite --role node
  cheetah room invite --role analyst --expires 30m --uses 1 --qr
  cheetah room invite --role node --uses 500 --out lab.invitation"
)]
pub struct Args {
    /// Role of the machines that join: node, trusted-node (a node that may be lent keys of sealed drives), agent, analyst or
    /// examiner
    #[arg(long, value_parser = super::role)]
    role: Role,

    /// How long it is valid: 30m, 8h, 7d
    #[arg(long, value_name = "TIME", default_value = "8h", value_parser = seconds)]
    expires: u64,

    /// How many machines may join with it [default: 500 for nodes, 1 for other roles]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5000))]
    uses: Option<u32>,

    /// Address of this machine for those that join; repeatable [default: all of its addresses]
    #[arg(long, value_name = "HOST")]
    address: Vec<Host>,

    /// Address at which to let machines in [default: every address, port 10812]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    listen: Option<SocketAddr>,

    /// Also write the string to a new file that only you can read; --room FILE takes it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Also show it as a QR code
    #[arg(long)]
    qr: bool,

    /// Start no process that lets machines in; run cheetah room serve yourself
    #[arg(long)]
    no_serve: bool,
}

/// Runs the command.
pub async fn run(args: Args, room: Option<&str>, ui: Ui) -> Result<()> {
    let room = super::open(room)?;
    let uses = args.uses.unwrap_or(if args.role.is_node() { 500 } else { 1 });
    let terms = Terms {
        role: args.role,
        expires: args.expires,
        uses,
        address: args.address,
        listen: args.listen,
        no_serve: args.no_serve,
    };
    let file = args.out.as_deref().map(SecretFile::create).transpose()?;
    let (invitation, id, serving) = make(&room, terms).await?;
    let text = invitation.to_string();
    if let Some(file) = file {
        file.write(format!("{text}\n").as_bytes()).inspect_err(|_| close(&room, &id))?;
    }
    let hosts: Vec<_> = invitation.hosts.iter().map(|host| host.with_port(invitation.port)).collect();
    if ui.is_json() {
        let value = answers::Invite {
            expires_s: args.expires,
            file: args.out.as_deref().map(path_to_text),
            hosts: &hosts,
            id: &id,
            invitation: &text,
            role: args.role.name(),
            room: room.name(),
            server_pid: serving.map(|serving| serving.pid),
            uses,
        };
        ui.answer("", &value);
        return Ok(());
    }
    describe(&room, &args.role, &hosts, (args.expires, uses), ui);
    if args.qr {
        ui.say(qr::draw(&text)?);
    }
    ui.say(text);
    Ok(())
}

/// The role, the limits and the addresses of an invitation, as the options of the command.
pub struct Terms {
    pub role: Role,
    pub expires: u64,
    pub uses: u32,
    pub address: Vec<Host>,
    pub listen: Option<SocketAddr>,
    pub no_serve: bool,
}

/// Makes an invitation, and starts a process that lets machines in, unless there is one or it is not wanted. Returns
/// the invitation, its number, and that process.
pub async fn make(room: &Room, terms: Terms) -> Result<(Invitation, String, Option<Serving>)> {
    if terms.address.len() > HOSTS_MAX {
        return Err(Failure::misused(format!("an invitation holds at most {HOSTS_MAX} addresses")));
    }
    // The server ends when no invitation is open, so the invitation comes first; its address is known afterwards.
    let (mut invitation, id) = room.invite(terms.role, (Vec::new(), 0), terms.expires, terms.uses)?;
    let serving = match room.serving()? {
        Some(serving) => Some(serving),
        None if terms.no_serve => room.last_serving()?.filter(|_| terms.listen.is_none()),
        None => Some(detached::start(room, terms.listen).await.inspect_err(|_| close(room, &id))?),
    };
    invitation.port = match (&serving, terms.listen) {
        (Some(serving), _) => serving.port,
        (None, Some(listen)) => listen.port(),
        (None, None) => PORT,
    };
    let listens = serving.as_ref().map(|serving| serving.address).or(terms.listen.map(|listen| listen.ip()));
    invitation.hosts = if terms.address.is_empty() { hosts(listens) } else { terms.address };
    Ok((invitation, id, serving))
}

/// Closes an invitation that is not handed out.
pub fn close(room: &Room, id: &str) {
    if let Err(error) = room.change(|register| Ok(register.close(id, now_s()))) {
        tracing::error!("invitation {id} is still open; close it (cheetah room revoke {id}): {error}");
    }
}

fn describe(room: &Room, role: &Role, hosts: &[String], (expires, uses): (u64, u32), ui: Ui) {
    let next = match role {
        Role::Node | Role::TrustedNode => "cheetah node --memory SIZE --room STRING",
        Role::Agent => "cheetah serve DISK --room STRING",
        _ => {
            "cheetah room join STRING, then cheetah mount ROOM:NAME DIRECTORY, as in lab:case42, while cheetah room serve runs \
             here: the room hands out the drive files (cheetah room drives lists them). A copy of the drive file \
             (case42.drive) and of the files beside it does as well; it is not secret: a sealed drive's key is in it only \
             encrypted"
        }
    };
    let machines = if uses == 1 { "one machine".to_owned() } else { format!("{uses} machines") };
    ui.note(format_args!(
        "invitation to room {} for the role {role}: {machines}, within {}, at {}; keep it secret\n{}: {next}",
        room.name(),
        shown_seconds(expires),
        hosts.join(", "),
        if uses == 1 { "there, run" } else { "on each, run" },
    ));
}

/// The addresses for an invitation: the one that the server listens on, or this machine's.
fn hosts(listens: Option<std::net::IpAddr>) -> Vec<Host> {
    if let Some(address) = listens.filter(|address| !address.is_unspecified()) {
        return vec![Host::Ip(address)];
    }
    let mut hosts = cheetah_room::machine::own_addresses();
    hosts.truncate(HOSTS_MAX);
    if hosts.is_empty() {
        hosts.push(Host::Ip(std::net::Ipv4Addr::LOCALHOST.into()));
    }
    hosts
}
