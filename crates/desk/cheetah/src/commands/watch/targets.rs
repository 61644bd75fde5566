//! The machines to watch.

use std::path::PathBuf;
use std::str::FromStr as _;

use cheetah_drive::{DriveFile, NodeSpec};
use cheetah_error::Error;
use cheetah_kit::authority::bracketed;
use cheetah_nbd::Address;
use cheetah_room::{Host, Member, register::Server};
use cheetah_tls::{CredentialSet, Expected, Role};

use crate::failure::{Failure, Result};
use crate::room::{RoomServers, expected, node_address, servers_of_room, shown_server};

/// The most machines that are watched.
const MACHINES_MAX: usize = 10_000;

/// A machine, and how to ask it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Whether it is a node; else it is an agent.
    pub is_node: bool,
    /// The addresses of its control API, `host:port` each, most promising first.
    pub control: Vec<String>,
    /// The address of its NBD server, of an agent without a control API.
    pub nbd: Option<Address>,
    /// The identity that it must prove, if the room says.
    pub expected: Option<Expected>,
}

/// The machines that the user wants to watch. They change: machines join the room, and drives move.
#[derive(Debug)]
pub struct Wanted {
    nodes: Vec<Target>,
    drives: Vec<PathBuf>,
    credentials: CredentialSet,
}

impl Wanted {
    /// The nodes named, and those of the drives, besides those of the room.
    pub fn of(nodes: &[String], drives: &[PathBuf], credentials: &CredentialSet) -> Result<Self> {
        let nodes = nodes.iter().map(|text| named(text, credentials)).collect::<Result<_>>()?;
        Ok(Self { nodes, drives: drives.to_vec(), credentials: credentials.clone() })
    }

    /// Whether there is any machine now.
    pub fn has_any(&self) -> Result<bool> {
        Ok(!self.nodes.is_empty() || servers_of_room(&self.credentials)?.is_some())
    }

    /// The name of the room, and the machines as of now, each once.
    pub fn now(&self) -> Result<(Option<String>, Vec<Target>)> {
        let (room, servers) = match servers_of_room(&self.credentials)? {
            Some(RoomServers { room, servers }) => (Some(room), servers),
            None => (None, Vec::new()),
        };
        let mut found: Vec<Target> = Vec::new();
        let of_room = servers.iter().filter_map(|(member, server)| of_server(member, server));
        for target in of_room.chain(self.nodes.iter().cloned()).chain(self.of_drives()) {
            if found.len() < MACHINES_MAX && !found.iter().any(|known| known.is_same(&target)) {
                found.push(target);
            }
        }
        Ok((room, found))
    }

    /// The nodes of the drives. A drive file that cannot be read is a problem of the drive.
    fn of_drives(&self) -> Vec<Target> {
        let files = self.drives.iter().filter_map(|path| DriveFile::load(path).ok());
        let nodes: Vec<_> = files.flat_map(|file| file.nodes().cloned().collect::<Vec<_>>()).collect();
        let with_control = nodes.into_iter().filter_map(|node| Some((node.name, node.http?)));
        with_control.map(|(name, http)| Target::node(name, http)).collect()
    }
}

impl Target {
    fn node(name: String, control: String) -> Self {
        Self { name, is_node: true, control: vec![control], nbd: None, expected: None }
    }

    /// Whether both are one machine: one address is that of both. Members that differ are not, as each claims what addresses it likes:
    /// one could hide another.
    fn is_same(&self, other: &Self) -> bool {
        let are_others = self.expected.is_some() && other.expected.is_some() && self.expected != other.expected;
        let same_nbd = self.nbd.is_some() && self.nbd == other.nbd;
        !are_others && (same_nbd || self.control.iter().any(|address| other.control.contains(address)))
    }

    /// The names and addresses of its machine.
    pub fn hosts(&self) -> Vec<String> {
        let without_port = |address: &String| {
            let host = address.rsplit_once(':').map_or(&**address, |(host, _)| host);
            host.trim_start_matches('[').trim_end_matches(']').to_owned()
        };
        self.control.iter().map(without_port).collect()
    }

    /// The first of them, if it has a control API.
    pub fn host(&self) -> Option<String> {
        self.hosts().into_iter().next()
    }

    /// By what it is told from others.
    pub fn key(&self) -> (String, Option<Expected>) {
        (self.address(), self.expected)
    }

    /// The address at which it is asked first.
    pub fn address(&self) -> String {
        let nbd = || self.nbd.as_ref().map(ToString::to_string);
        self.control.first().cloned().or_else(nbd).unwrap_or_default()
    }
}

fn of_server(member: &Member, server: &Server) -> Option<Target> {
    if !member.role.is_node() && member.role != Role::Agent {
        return None;
    }
    let at = |host: &Host, port| host.with_port(port);
    let control = match server.control_port {
        Some(port) => server.hosts.iter().map(|host| at(host, port)).collect(),
        None => Vec::new(),
    };
    let nbd = server.hosts.first().map(|host| Address::Tcp { host: host.to_string(), port: server.nbd_port });
    let nbd = nbd.filter(|_| control.is_empty());
    let (name, is_node) = (shown_server(member, server), member.role.is_node());
    Some(Target { name, is_node, control, nbd, expected: Some(expected(member)) })
}

/// A node as the user names it.
fn named(text: &str, credentials: &CredentialSet) -> Result<Target> {
    match NodeSpec::from_str(&node_address(text, credentials))? {
        NodeSpec::Node { host, port } => {
            Ok(Target::node(text.to_owned(), format!("{}:{}", bracketed(&host), port + 1)))
        }
        NodeSpec::Foreign(_) | NodeSpec::Auto => Err(Failure::from(Error::misuse(format!(
            "'{text}' cannot be watched; name a node of Cheetah: host, or host:port"
        )))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_claims_the_address_of_another_one_does_not_hide_it() {
        let of = |control: &[&str], expected| Target {
            control: control.iter().map(|address| (*address).to_owned()).collect(),
            expected,
            ..Target::node("a".into(), String::new())
        };
        let [node, trusted] = [Role::Node, Role::TrustedNode].map(Expected::role);
        let own = of(&["10.0.0.7:10810"], Some(node));
        let hostile = of(&["10.0.0.7:10810", "10.0.0.9:10810"], Some(trusted));
        assert!(!own.is_same(&hostile) && !hostile.is_same(&own) && own.key() != hostile.key());
        // The same machine, as a drive and as the user name it.
        let named = of(&["10.0.0.7:10810"], None);
        assert!(own.is_same(&named) && named.is_same(&own) && own.is_same(&of(&["10.0.0.7:10810"], Some(node))));
        assert!(!own.is_same(&of(&["10.0.0.7:10820"], Some(node))));
    }
}
