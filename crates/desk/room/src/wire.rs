//! The messages of enrolment: JSON over TLS. [`routes`](crate::routes) has the requests.

use std::net::IpAddr;

use cheetah_error::Result;
use cheetah_tls::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::invitation::Host;
use crate::key::{PrivateKey, PublicKey};
use crate::register::{MEMBER_HOSTS_MAX, Server, clean_name, is_assignable};

/// The most bytes of a request's body.
pub const REQUEST_LEN_MAX: usize = 16 << 10;
/// The most bytes of an answer's body: a list of as many revoked certificates as a room can have fits.
pub const ANSWER_LEN_MAX: usize = 2 << 20;

/// The signature that proves possession of a key covers this, the room's key and the public key.
const PROOF_CONTEXT: &[u8] = b"cheetah enrolment v1\0";

/// A machine's claims about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claims {
    /// Its public key, in base64.
    pub public_key: String,
    /// The signature, by this key, of the room's key and this key, in base64. It proves possession of the private key.
    pub proof: String,
    /// The name that it would like.
    #[serde(default)]
    pub name: String,
    /// Its IP addresses.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Its clock: seconds since 1970. It is only reported.
    #[serde(default)]
    pub time_s: u64,
}

/// Joins with an invitation.
#[derive(Clone, Serialize, Deserialize)]
pub struct Enrol {
    /// The token: 32 hexadecimal digits.
    pub token: String,
    /// The machine.
    #[serde(flatten)]
    pub claims: Claims,
}

/// A member's certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Enrolled {
    /// The certificate, in PEM.
    pub certificate: String,
    /// The authority's certificate, in PEM.
    pub authority: String,
    /// The list of revoked certificates, in PEM.
    pub revocations: String,
    /// The room's name.
    pub room: String,
    /// The clock of the room's machine: seconds since 1970.
    pub time_s: u64,
}

/// A member reports a server, and asks for the list of revoked certificates. Its certificate says which member it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CheckIn {
    /// Its server, if it has one.
    #[serde(default)]
    pub server: Option<ServerAt>,
    /// Whether that server has ended.
    #[serde(default)]
    pub ended: bool,
    /// Its clock: seconds since 1970. It is only reported.
    #[serde(default)]
    pub time_s: u64,
}

/// A server, as described by the machine that runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAt {
    /// Its name.
    pub name: String,
    /// The IP addresses that it listens on.
    pub addresses: Vec<IpAddr>,
    /// The port of its NBD server.
    pub nbd_port: u16,
    /// The port of its control API, if it has one.
    #[serde(default)]
    pub control_port: Option<u16>,
}

/// The answer to a member that checks in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckedIn {
    /// The list of revoked certificates, in PEM.
    pub revocations: String,
    /// The clock of the room's machine: seconds since 1970.
    pub time_s: u64,
}

impl ServerAt {
    /// The server, for the room's register. For a member on another machine, loopback addresses are left out, and the
    /// address that it called from comes first if it listens there.
    pub fn known_to(&self, caller: IpAddr) -> Server {
        let caller = caller.to_canonical();
        let here = caller.is_loopback();
        let mut addresses: Vec<IpAddr> = self.addresses.iter().take(MEMBER_HOSTS_MAX).copied().collect();
        addresses.retain(|address| is_assignable(*address) || (here && address.is_loopback()));
        addresses.sort_by_key(|address| (address.is_loopback(), *address != caller, address.is_ipv6()));
        addresses.dedup();
        Server {
            name: clean_name(&self.name),
            hosts: addresses.into_iter().map(Host::Ip).collect(),
            nbd_port: self.nbd_port,
            control_port: self.control_port,
        }
    }
}

/// The drives that the room hands out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DriveNames {
    /// Their names.
    pub drives: Vec<String>,
}

/// Begins to wait for approval.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin {
    /// The commitment: 64 hexadecimal digits.
    pub commitment: String,
    /// The name that the machine would like.
    pub name: String,
    /// The role that it asks for.
    pub role: String,
}

/// The room's nonce.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begun {
    /// The id of the pending request.
    pub id: String,
    /// The nonce: 64 hexadecimal digits.
    pub nonce: String,
}

/// Reveals the key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reveal {
    /// The joiner's nonce: 64 hexadecimal digits.
    pub nonce: String,
    /// The machine.
    #[serde(flatten)]
    pub claims: Claims,
}

impl Claims {
    /// The claims of the machine with key `key` to a room.
    ///
    /// # Errors
    ///
    /// If the key cannot sign.
    pub fn new(key: &PrivateKey, room_key: &Fingerprint, name: &str, hosts: Vec<String>, time_s: u64) -> Result<Self> {
        use base64::Engine as _;
        let public = key.public()?;
        let proof = key.sign(&proof_message(room_key, &public))?;
        let proof = base64::engine::general_purpose::STANDARD.encode(proof);
        Ok(Self { public_key: public.to_string(), proof, name: name.to_owned(), hosts, time_s })
    }

    /// The public key, if the machine has proved possession of the private key.
    pub fn proven_key(&self, room_key: &Fingerprint) -> Option<PublicKey> {
        use base64::Engine as _;
        if self.proof.len() > 256 {
            return None;
        }
        let public = PublicKey::parse(&self.public_key)?;
        let proof = base64::engine::general_purpose::STANDARD.decode(&self.proof).ok()?;
        public.has_signed(&proof_message(room_key, &public), &proof).then_some(public)
    }
}

fn proof_message(room_key: &Fingerprint, public: &PublicKey) -> Vec<u8> {
    [PROOF_CONTEXT, &room_key.0, &public.fingerprint().0].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_addresses_that_the_room_can_reach() {
        let listens = ["127.0.0.1", "10.0.0.7", "fe80::1", "fd00::7", "192.168.1.7", "0.0.0.0"];
        let addresses = listens.iter().map(|address| address.parse().unwrap()).collect();
        let server = ServerAt { name: "lab 7".into(), addresses, nbd_port: 1, control_port: Some(2) };
        let known = |caller: &str| {
            let known = server.known_to(caller.parse().unwrap());
            assert_eq!(known.name, "lab-7");
            known.hosts.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(known("::ffff:192.168.1.7"), ["192.168.1.7", "10.0.0.7", "fd00::7"]);
        assert_eq!(known("127.0.0.1"), ["10.0.0.7", "192.168.1.7", "fd00::7", "127.0.0.1"]);
        let many = ServerAt { addresses: vec!["10.0.0.1".parse().unwrap(); 1000], ..server };
        assert!(many.known_to("10.0.0.1".parse().unwrap()).hosts.len() <= MEMBER_HOSTS_MAX);
    }

    #[test]
    fn a_key_without_its_private_half_is_not_proven() {
        let (key, room) = (PrivateKey::generate().unwrap(), Fingerprint([1; 32]));
        let claims = Claims::new(&key, &room, "lab", Vec::new(), 0).unwrap();
        assert_eq!(claims.proven_key(&room), Some(key.public().unwrap()));
        assert_eq!(claims.proven_key(&Fingerprint([2; 32])), None, "a proof for one room is none for another");
        let other = PrivateKey::generate().unwrap().public().unwrap().to_string();
        assert_eq!(Claims { public_key: other, ..claims }.proven_key(&room), None);
    }
}
