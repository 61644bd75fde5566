//! `cheetah room list`: the members and invitations of a room.

use cheetah_kit::clock::now_s;
use cheetah_room::Admission;
use cheetah_room::register::Server;
use comfy_table::{ColumnConstraint, Width};

use crate::answers::room::{List, Member, MemberServer, OpenInvitation, Serving};
use crate::failure::Result;
use crate::ui::Ui;
use crate::ui::table::table;

/// Columns for an IPv4 address with its port, and the space around it.
const ADDRESS_COLUMNS: u16 = 24;

/// The options of `room list`.
#[derive(Debug, clap::Args)]
#[command(about = "List the members of a room and its open invitations")]
#[command(
    long_about = "Lists the members of a room, with the fingerprints of their keys, and the invitations that are open. Names \
the members' servers that do not answer, such as nodes that were switched off.

  cheetah room list"
)]
pub struct Args {}

/// Runs the command.
pub async fn run(_: &Args, room: Option<&str>, ui: Ui) -> Result<()> {
    let room = super::open(room)?;
    let (register, now) = (room.register()?, now_s());
    let mut rows = table(&["name", "role", "key", "addresses", "joined by"]);
    // A part of a key cannot be compared, and that of an address cannot be used.
    for column in rows.column_iter_mut().skip(1).take(2) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    if let Some(addresses) = rows.column_mut(3) {
        addresses.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(ADDRESS_COLUMNS)));
    }
    let mut members = Vec::new();
    let answering = crate::room::answering(&room, register.members()).await?;
    for (member, answering) in register.members().iter().zip(&answering) {
        let hosts: Vec<_> = member.hosts.iter().map(ToString::to_string).collect();
        let servers = || member.servers.iter().zip(answering.iter().copied());
        let shown: Vec<_> = servers().map(shown_server).collect();
        let revoked = if member.revoked.is_some() { "REVOKED; " } else { "" };
        let key = member.key.to_string();
        rows.add_row([
            member.name.clone(),
            member.role.to_string(),
            key[..16].to_owned(),
            if shown.is_empty() { hosts.join(" ") } else { shown.join("\n") },
            format!("{revoked}{}", how(&member.by)),
        ]);
        members.push(Member {
            admitted_s: member.admitted,
            by: how(&member.by),
            key_sha256: key,
            name: &member.name,
            revoked_s: member.revoked,
            role: member.role.name(),
            serial: &member.serial,
            servers: servers().map(server_value).collect(),
            hosts,
        });
    }
    let mut text = format!("room {}, key {}\n{rows}", room.name(), room.key());
    let mut invitations = Vec::new();
    for invitation in register.invitations().iter().filter(|invitation| invitation.is_open(now)) {
        let left_s = invitation.expires.saturating_sub(now);
        text.push_str(&format!(
            "\ninvitation {} for {}: used {} of {} times, ends in {}",
            invitation.id,
            invitation.role,
            invitation.uses,
            invitation.uses_max,
            super::shown_seconds(left_s)
        ));
        invitations.push(OpenInvitation {
            ends_in_s: left_s,
            id: &invitation.id,
            role: invitation.role.name(),
            uses: invitation.uses,
            uses_max: invitation.uses_max,
        });
    }
    let value = List {
        id: room.id().to_string(),
        invitations,
        key_sha256: room.key().to_string(),
        members,
        room: room.name(),
        serving: room.serving()?.map(|serving| Serving { pid: serving.pid, port: serving.port }),
    };
    ui.answer(text, &value);
    Ok(())
}

/// The name and the first address of a server, and whether it answers.
fn shown_server((server, answers): (&Server, bool)) -> String {
    let at = server.hosts.first().map(|host| host.with_port(server.nbd_port)).unwrap_or_default();
    format!("{} at\n{at}{}", server.name, if answers { "" } else { ", does not answer" })
}

fn server_value((server, answers): (&Server, bool)) -> MemberServer<'_> {
    let nbd = server.hosts.iter().map(|host| host.with_port(server.nbd_port)).collect();
    MemberServer { answers, control_port: server.control_port, name: &server.name, nbd }
}

fn how(admission: &Admission) -> String {
    match admission {
        Admission::Founder => "room init".into(),
        Admission::Invitation(id) => format!("invitation {id}"),
        Admission::Approved => "code".into(),
        Admission::InAdvance => "credential file".into(),
        Admission::Exported => "room export".into(),
    }
}
