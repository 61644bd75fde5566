//! The room of a command: what `--room` names, for all of this process's connections.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use cheetah_control::ControlClient;
use cheetah_error::Result as Told;
use cheetah_nbd::uri::PORT as NBD_PORT;
use cheetah_room::client::Me;
use cheetah_room::kept::Credentials;
use cheetah_room::resolve::{Purpose, Wanted, every_client, own_room, resolve};
use cheetah_room::server::CLOCK_TOLERANCE_S;
use cheetah_room::{Host, Member, Room};
use cheetah_tls::{Credential, Expected, Role, wallet};
use futures::future::join_all;

use crate::failure::Result;
use crate::ui::Ui;

/// How long a node may take to hear of revoked certificates.
const TELL_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a server looks whether it has heard of revoked certificates.
const KEEP_PAUSE: Duration = Duration::from_secs(2);

/// How a command takes part in a room.
#[derive(Debug)]
pub struct Part {
    /// What for.
    pub purpose: Purpose,
    /// Whether a credential that is made now stays in memory.
    pub ephemeral: bool,
    /// What this machine says about itself when it joins.
    pub me: Me,
}

/// Resolves the room and sets the credentials of this process.
pub async fn enter(text: Option<&str>, part: Part, ui: Ui) -> Result<()> {
    let Part { purpose, ephemeral, me } = part;
    let membership = resolve(&Wanted { text, purpose, ephemeral, me }).await?;
    if purpose == Purpose::Client {
        // A drive file names its room, which may be another than this command's.
        every_client()?.into_iter().for_each(wallet::add);
    }
    let Some(membership) = membership else { return Ok(()) };
    if let Some(new) = membership.new {
        let own = membership.credential.identity().map(|own| format!("{} (key {})", own.name, own.key));
        let (room, own) = (&membership.room, own.unwrap_or_default());
        ui.note(format_args!("joined room {room} as {own}"));
        report_clock(new.clock_offset_s, ui);
    }
    if let Some(file) = membership.file.filter(|_| purpose != Purpose::Client) {
        tokio::spawn(keep_revocations(membership.credential.clone(), file));
    }
    wallet::set_default(Some(membership.credential));
    if ephemeral {
        lock_memory(ui);
    }
    if purpose == Purpose::Client {
        hand_on_revocations();
    }
    Ok(())
}

/// Keeps the revoked certificates that this process hears of, for the next one.
async fn keep_revocations(credential: Credential, file: PathBuf) {
    let mut kept = credential.revocations();
    loop {
        tokio::time::sleep(KEEP_PAUSE).await;
        let known = credential.revocations();
        if known == kept {
            continue;
        }
        let (list, path) = (known.clone().unwrap_or_default(), file.clone());
        let put = move || Credentials::open().and_then(|credentials| credentials.put_revocations(&path, &list));
        match tokio::task::spawn_blocking(put).await {
            Ok(Ok(())) => kept = known,
            Ok(Err(error)) => tracing::warn!("the list of revoked certificates is not kept: {error}"),
            Err(_) => return,
        }
    }
}

/// Tells the room's nodes of revoked certificates beside the command's own work: some may have been unreachable when it
/// happened.
fn hand_on_revocations() {
    let room = acting_in().filter(|room| room.register().is_ok_and(|register| register.revision() > 0));
    if let Some(room) = room {
        tokio::spawn(async move {
            if let Ok(answers) = tell_nodes(&room).await {
                tracing::debug!(?answers, "handed on the revoked certificates");
            }
        });
    }
}

/// Keeps all memory of this process, and with it its key, out of swap devices and core dumps.
fn lock_memory(ui: Ui) {
    use rustix::mm::MlockAllFlags;
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    // Locking must not make a later allocation fail, which it does at a limit.
    let unlimited = rustix::process::getrlimit(rustix::process::Resource::Memlock).current.is_none();
    let may = unlimited || rustix::process::geteuid().is_root();
    let locked = may && rustix::mm::mlockall(flags).is_ok();
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok();
    if !locked || !hidden {
        ui.warn(
            "the memory of this process is NOT LOCKED, so its key may reach a swap device: run as root, or raise the \
             limit (ulimit -l unlimited)",
        );
    }
}

/// Warns of a clock that differs from the one of the room's machine.
pub fn report_clock(offset_s: i64, ui: Ui) {
    if offset_s.unsigned_abs() > CLOCK_TOLERANCE_S {
        ui.warn(format_args!(
            "the clock of this machine differs by {} s from that of the room's machine; set it, or dates in records are \
             wrong",
            offset_s.saturating_neg()
        ));
    }
}

/// Which nodes know the revoked certificates.
#[derive(Debug, Default)]
pub struct Answers {
    /// Names of the nodes that do.
    pub reached: Vec<String>,
    /// Names of the others, and why not.
    pub missed: Vec<(String, String)>,
}

/// Tells the nodes of a room which certificates are revoked.
pub async fn tell_nodes(room: &Room) -> Told<Answers> {
    let register = room.register()?;
    let nodes = register.members().iter().filter(|member| member.role == Role::Node && member.revoked.is_none());
    let list = room.revocations_der()?;
    let credential = room.examiner()?;
    wallet::set_default(Some(credential));
    let told = join_all(nodes.map(async |member| (member.name.clone(), tell(member, &list).await))).await;
    let mut answers = Answers::default();
    for (name, told) in told {
        match told {
            Ok(()) => answers.reached.push(name),
            Err(why) => answers.missed.push((name, why)),
        }
    }
    Ok(answers)
}

/// Tells one node, at the first of its addresses that answers.
async fn tell(member: &Member, list: &[u8]) -> std::result::Result<(), String> {
    let mut why = "no address is known".to_owned();
    for address in control_addresses(member) {
        let client = ControlClient::new(address).with_timeout(TELL_TIMEOUT).expecting(expected(member));
        match client.replace_revocations(list.to_vec()).await {
            Ok(()) => return Ok(()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// A node with the key of this member.
fn expected(member: &Member) -> Expected {
    Expected::role(Role::Node).with_key(member.key)
}

/// Where a member's NBD server may be. A member that joined from this machine may listen on loopback only.
fn nbd_addresses(member: &Member) -> impl Iterator<Item = (Host, u16)> {
    let port = member.nbd_port.unwrap_or(NBD_PORT);
    let loopback = Host::Ip(Ipv4Addr::LOCALHOST.into());
    member.hosts.iter().cloned().chain([loopback]).map(move |host| (host, port))
}

fn control_addresses(member: &Member) -> impl Iterator<Item = String> {
    nbd_addresses(member).filter_map(|(host, port)| port.checked_add(1).map(|port| host.with_port(port)))
}

/// This machine's room in which the process acts, if it has the room's key.
fn acting_in() -> Option<Room> {
    let credential = wallet::default()?;
    own_room(credential.room()?).ok().flatten()
}

/// The address of a node that is named as the room knows it; the text itself if the room knows no such node, or this
/// machine does not have the room.
pub fn node_address(text: &str) -> String {
    let register = acting_in().and_then(|room| room.register().ok());
    let member = register.as_ref().and_then(|register| register.member(text));
    let node = member.filter(|member| member.role == Role::Node && member.revoked.is_none());
    let address = node.and_then(|member| nbd_addresses(member).next());
    address.map_or_else(|| text.to_owned(), |(host, port)| host.with_port(port))
}

/// The addresses of all nodes of the room in which this process acts.
pub fn node_addresses() -> Vec<String> {
    let register = acting_in().and_then(|room| room.register().ok());
    let members = register.as_ref().map_or(&[][..], |register| register.members());
    let nodes = members.iter().filter(|member| member.role == Role::Node && member.revoked.is_none());
    nodes.filter_map(|member| nbd_addresses(member).next()).map(|(host, port)| host.with_port(port)).collect()
}
