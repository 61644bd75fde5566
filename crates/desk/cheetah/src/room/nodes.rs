//! The servers of a room's members, as the machine that has the room's key knows them.

use std::net::Ipv4Addr;
use std::time::Duration;

use cheetah_control::ControlClient;
use cheetah_error::Result;
use cheetah_nbd::uri::PORT as NBD_PORT;
use cheetah_nbd::{Address, answering};
use cheetah_room::register::Server;
use cheetah_room::resolve::own_room;
use cheetah_room::{Host, Member, Room};
use cheetah_tls::{Credential, CredentialSet, Expected, Roles};
use futures::future::join_all;

/// How long a server may take to accept the list of revoked certificates.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may take to answer at all.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Which servers have received the list of revoked certificates.
#[derive(Debug, Default)]
pub struct Answers {
    /// Names of the servers that have.
    pub notified: Vec<String>,
    /// Names of the other servers, and the reasons.
    pub missed: Vec<(String, String)>,
    /// Names of those that know of other revoked certificates than this room, and refused the list.
    pub refused: Vec<String>,
}

/// Why a server was not notified.
enum NotNotified {
    Refused,
    Missed(String),
}

/// Sends the list of revoked certificates to the nodes and the agents of a room.
pub async fn notify_servers(room: &Room) -> Result<Answers> {
    let register = room.register()?;
    let list = room.revocations_der()?;
    let examiner = room.examiner()?;
    let members = register.members().iter().filter(|member| member.revoked.is_none());
    let servers = members.flat_map(|member| servers(member).into_iter().map(move |server| (member, server)));
    let servers = servers.filter(|(_, server)| server.control_port.is_some());
    let results = servers
        .map(async |(member, server)| (notify((member, &server), &list, &examiner).await, shown(member, &server)));
    let mut answers = Answers::default();
    for (result, name) in join_all(results).await {
        match result {
            Ok(()) => answers.notified.push(name),
            Err(NotNotified::Refused) => answers.refused.push(name),
            Err(NotNotified::Missed(why)) => answers.missed.push((name, why)),
        }
    }
    Ok(answers)
}

/// Which servers of each member answer now, with the key of the member. A server that was killed stays known.
pub async fn answering(room: &Room, members: &[Member]) -> Result<Vec<Vec<bool>>> {
    let examiner = &room.examiner()?;
    let of_member = members
        .iter()
        .map(|member| join_all(member.servers.iter().map(move |server| answers(member, server, examiner))));
    Ok(join_all(of_member).await)
}

async fn answers(member: &Member, server: &Server, examiner: &Credential) -> bool {
    let expected = expected(member);
    let at_host = async |host: &Host| match server.control_port {
        Some(port) => {
            let client = ControlClient::new(host.with_port(port), Some(examiner));
            let client = client.with_timeout(ANSWER_TIMEOUT).expecting(expected);
            client.identity().await.is_ok()
        }
        // An agent that takes no part in measurements has no control port.
        None => {
            let address = Address::Tcp { host: host.to_string(), port: server.nbd_port };
            answering::check(&address, ANSWER_TIMEOUT).await.is_ok()
        }
    };
    join_all(server.hosts.iter().map(at_host)).await.contains(&true)
}

/// The identity that a server of a member must prove.
pub fn expected(member: &Member) -> Expected {
    Expected::roles(Roles::of(&[member.role])).with_key(member.key)
}

/// The name of a server, with that of its member, which the room has given it.
pub fn shown(member: &Member, server: &Server) -> String {
    if server.name == member.name { member.name.clone() } else { format!("{} of {}", server.name, member.name) }
}

/// Sends the list to one server, at the first of its addresses that answers.
async fn notify(
    (member, server): (&Member, &Server),
    list: &[u8],
    examiner: &Credential,
) -> std::result::Result<(), NotNotified> {
    let mut why = "no address is known".to_owned();
    let expected = expected(member);
    for host in &server.hosts {
        let Some(port) = server.control_port else { break };
        let client = ControlClient::new(host.with_port(port), Some(examiner));
        let client = client.with_timeout(NOTIFY_TIMEOUT).expecting(expected);
        match client.replace_revocations(list.to_vec()).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_conflict() => return Err(NotNotified::Refused),
            Err(error) => why = error.to_string(),
        }
    }
    Err(NotNotified::Missed(why))
}

/// A member's servers. A node that has not reported any may be where nodes usually are.
fn servers(member: &Member) -> Vec<Server> {
    if !member.role.is_node() || !member.servers.is_empty() {
        return member.servers.clone();
    }
    let mut hosts = member.hosts.clone();
    hosts.push(Host::Ip(Ipv4Addr::LOCALHOST.into()));
    vec![Server { name: member.name.clone(), hosts, nbd_port: NBD_PORT, control_port: Some(NBD_PORT + 1) }]
}

/// This machine's room in which a process with these credentials acts, if this machine has the room's key.
fn acting_in(credentials: &CredentialSet) -> Option<Room> {
    own_room(credentials.acting_as()?.room()?).ok().flatten()
}

/// The servers of a room's members.
#[derive(Debug)]
pub struct RoomServers {
    /// The room's name.
    pub room: String,
    /// Each server, with its member.
    pub servers: Vec<(Member, Server)>,
}

/// The servers of the room in which a process with these credentials acts; `None` if this machine does not have the room's key.
///
/// # Errors
///
/// If its register cannot be read.
pub fn servers_of_room(credentials: &CredentialSet) -> Result<Option<RoomServers>> {
    let Some(room) = acting_in(credentials) else { return Ok(None) };
    let members = room.register()?.members().to_vec();
    let members = members.into_iter().filter(|member| member.revoked.is_none());
    let found = members.flat_map(|member| servers(&member).into_iter().map(move |server| (member.clone(), server)));
    Ok(Some(RoomServers { room: room.name().to_owned(), servers: found.collect() }))
}

/// The nodes of the room in which a process with these credentials acts, with the names of their machines.
fn nodes(credentials: &CredentialSet) -> Vec<(String, Server)> {
    let register = acting_in(credentials).and_then(|room| room.register().ok());
    let members = register.as_ref().map_or(&[][..], |register| register.members());
    let nodes = members.iter().filter(|member| member.role.is_node() && member.revoked.is_none());
    nodes.flat_map(|member| servers(member).into_iter().map(|server| (member.name.clone(), server))).collect()
}

/// The address of a node that is named as the room knows it; the text itself if the room knows no such node, or this
/// machine does not have the room.
pub fn node_address(text: &str, credentials: &CredentialSet) -> String {
    let nodes = nodes(credentials);
    let is_meant = |name: &str| name.eq_ignore_ascii_case(text);
    let mut named: Vec<_> = nodes.iter().filter(|(machine, _)| is_meant(machine)).collect();
    if named.is_empty() {
        // Members choose the names of their servers, so one that two of them use names none.
        named = nodes.iter().filter(|(_, server)| is_meant(&server.name)).collect();
        named.retain(|(machine, _)| nodes.iter().all(|(other, server)| other == machine || !is_meant(&server.name)));
    }
    let found = named.iter().find(|(_, server)| is_meant(&server.name)).or(named.first());
    let address = found.and_then(|(_, server)| Some(server.hosts.first()?.with_port(server.nbd_port)));
    address.unwrap_or_else(|| text.to_owned())
}

/// The addresses of all nodes of the room in which a process with these credentials acts. A node may have several.
pub fn node_addresses(credentials: &CredentialSet) -> Vec<String> {
    let nodes = nodes(credentials);
    let addresses =
        nodes.iter().flat_map(|(_, server)| server.hosts.iter().map(|host| host.with_port(server.nbd_port)));
    addresses.collect()
}
