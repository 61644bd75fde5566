//! The room of a command: what `--room` names, for all of this process's connections.

pub mod archive;
mod asking;
pub mod drives;
mod nodes;

use cheetah_room::Host;
use cheetah_room::archive::Archive;
use cheetah_room::client::MachineInfo;
use cheetah_room::resolve::{Purpose, Wanted, address_to_ask, every_client, knows_no_room, named_room, resolve};
use cheetah_room::server::CLOCK_TOLERANCE_S;
use cheetah_room::upkeep;
use cheetah_tls::{CredentialSet, Role};

use self::asking::announced;
use crate::failure::{Failure, Result};
use crate::os;
use crate::ui::Ui;

pub use asking::ask;
pub use cheetah_room::upkeep::{Upkeep, server_at};
pub use nodes::{
    RoomServers, answering, expected, node_address, node_addresses, notify_servers, servers_of_room,
    shown as shown_server,
};

/// How a command takes part in a room.
#[derive(Debug)]
pub struct Participation {
    /// Its purpose in the room.
    pub purpose: Purpose,
    /// Whether a credential that is made now stays in memory.
    pub ephemeral: bool,
    /// This machine's name and addresses, for joining.
    pub machine: MachineInfo,
    /// How to proceed if this machine knows no room.
    pub without_room: WithoutRoom,
}

/// How a command proceeds on a machine that knows no room.
#[derive(Debug)]
pub enum WithoutRoom {
    /// Use no room.
    Proceed,
    /// Ask to join at this address.
    Ask(Host, u16),
    /// Ask to join the room that announces itself on the local network. Use no room if there is none.
    Discover,
}

/// What a command has once it takes part in a room.
#[derive(Default)]
pub struct Entered {
    /// The credentials with which it connects and listens. A client has those of every room that this machine knows.
    pub credentials: CredentialSet,
    /// The upkeep of its membership; `None` without a room.
    pub upkeep: Option<Upkeep>,
    /// What the room's machine keeps for clients; `None` without a room, and for a node and an agent.
    pub archive: Option<Archive>,
}

/// Resolves the room, and begins the upkeep of this machine's membership, if it has one.
pub async fn enter(text: Option<&str>, participation: Participation, ui: Ui) -> Result<Entered> {
    let Participation { purpose, ephemeral, machine, without_room } = participation;
    if ephemeral {
        // Before there is a key.
        lock_memory(ui);
    }
    let named = named_room(text);
    let place = match named.as_ref().and_then(|text| address_to_ask(text)) {
        None if named.is_none() && knows_no_room()? => match without_room {
            WithoutRoom::Proceed => None,
            WithoutRoom::Ask(host, port) => Some((host, port)),
            WithoutRoom::Discover => announced(ui).await?,
        },
        place => place,
    };
    let membership = match (place, purpose) {
        (Some(place), Purpose::Node) => Some(ask(&place, Role::Node, &machine, ephemeral, ui).await?),
        (Some(place), Purpose::Agent) => Some(ask(&place, Role::Agent, &machine, ephemeral, ui).await?),
        (Some((host, port)), Purpose::Client) => {
            let at = host.with_port(port);
            return Err(Failure::misused(format!(
                "{at} is where machines join a room; first run: cheetah room join {at} --role analyst"
            )));
        }
        (None, _) => resolve(&Wanted { text, purpose, ephemeral, machine }).await?,
    };
    // A drive file names its room, which may be another than this command's.
    let others = if purpose == Purpose::Client { every_client()? } else { Vec::new() };
    let Some(membership) = membership else {
        return Ok(Entered { credentials: CredentialSet::new(None, others), ..Entered::default() });
    };
    if let Some(new) = membership.new {
        let own = membership.credential.identity().map(|own| format!("{} (key {})", own.name, own.key));
        let (room, own) = (&membership.room, own.unwrap_or_default());
        ui.note(format_args!("joined room {room} as {own}"));
        report_clock(new.clock_offset_s, ui);
    }
    let archive = (purpose == Purpose::Client).then(|| Archive::of(&membership));
    let upkeep = Some(upkeep::start(&membership));
    let credentials = CredentialSet::new(Some(membership.credential), others);
    Ok(Entered { credentials, upkeep, archive })
}

/// Keeps all memory of this process, and with it its key, out of swap devices and core dumps.
fn lock_memory(ui: Ui) {
    if let Err(advice) = os::lock_own_memory() {
        ui.warn(format_args!("the memory of this process is NOT LOCKED, so its key may reach a swap device: {advice}"));
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
