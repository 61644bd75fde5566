//! The joining machine's side of enrolment.
//!
//! It verifies the room's key during the TLS handshake. Before that it sends only a ClientHello, which contains nothing
//! of the invitation.

use std::sync::Arc;
use std::time::Duration;

use cheetah_control::http::caller::{Deadline, dial};
use cheetah_error::{Error, Fact, Result, next};
use cheetah_kit::clock::now_s;
use cheetah_kit::random;
use cheetah_tls::{Credential, Expected, Fingerprint, Role};
use hyper::{Method, StatusCode};
use rustls::pki_types::CertificateDer;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use crate::connection::{CONNECT_TIMEOUT, Connection, Failed, parse};
use crate::credential_file::der_of_list;
use crate::invitation::{Host, Invitation, parse_host_port};
use crate::key::PrivateKey;
use crate::pending::{Code, Joiner};
use crate::routes::{self, fill};
use crate::wire::{Begin, Begun, CheckIn, CheckedIn, Claims, Enrol, Enrolled, Reveal, ServerAt};

/// How long to ask whether a credential is still a member's.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(3);
/// Attempts to enrol, with pauses that double, when the server does not answer.
const ATTEMPTS: u32 = 4;
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The pause between questions whether a machine was approved.
const POLL_PAUSE: Duration = Duration::from_secs(1);

/// A machine's description of itself.
#[derive(Debug, Clone, Default)]
pub struct MachineInfo {
    /// The name that it would like.
    pub name: String,
    /// Its addresses.
    pub hosts: Vec<Host>,
}

/// A new member.
pub struct Joined {
    /// Its credential.
    pub credential: Credential,
    /// The same in PEM, to be kept.
    pub pem: Zeroizing<String>,
    /// The room's name.
    pub room: String,
    /// The addresses of the enrolment server, as `host:port`.
    pub at: Vec<String>,
    /// The clock of the room's machine minus this one's, in seconds.
    pub clock_offset_s: i64,
}

impl std::fmt::Debug for Joined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Joined").field("room", &self.room).finish_non_exhaustive()
    }
}

/// Joins a room with an invitation.
///
/// If the connection breaks, it tries again with the same key: the room returns the same certificate, and counts one
/// use.
///
/// # Errors
///
/// If no address answers, one of them is not the room, or the room refuses.
pub async fn enrol(invitation: &Invitation, key: &PrivateKey, machine: &MachineInfo) -> Result<Joined> {
    let mut pause = PAUSE_FIRST;
    let mut attempt = 1;
    loop {
        match enrol_once(invitation, key, machine).await {
            Ok(joined) => return Ok(joined),
            Err(Failed::Broken(why)) if attempt == ATTEMPTS => {
                return Err(Error::failed(format!("cannot join the room: {why}"))
                    .advise(why.steps().to_vec())
                    .next(next::Room::StartServingInviter));
            }
            Err(Failed::Broken(why)) => tracing::info!("the room does not answer, trying again: {why}"),
            Err(failed) => return Err(failed.into_error()),
        }
        sleep(pause).await;
        (pause, attempt) = (pause * 2, attempt + 1);
    }
}

async fn enrol_once(
    invitation: &Invitation,
    key: &PrivateKey,
    machine: &MachineInfo,
) -> std::result::Result<Joined, Failed> {
    let addresses: Vec<_> = invitation.hosts.iter().map(|host| (host.clone(), invitation.port)).collect();
    let connection = Connection::open_for_enrolment(&addresses, &invitation.room_key).await?;
    let claims = claims(key, &invitation.room_key, machine).map_err(Failed::Refused)?;
    let request = Enrol { token: invitation.token.to_hex().to_string(), claims };
    let answer: Enrolled = connection.ask(Method::POST, routes::ENROL, &request).await?;
    accept(&answer, key, &invitation.room_key, invitation.role, &addresses).map_err(Failed::Refused)
}

/// Reports a server of a member, or that it has ended, to the room, at one of these addresses (`host:port`), and asks
/// for the list of revoked certificates. Returns the list in DER.
///
/// # Errors
///
/// If no address answers, one of them is not the room, or the room refuses: after a revocation, for good.
pub async fn check_in(
    credential: &Credential,
    at: &[String],
    server: Option<ServerAt>,
    ended: bool,
) -> Result<Vec<u8>> {
    let places: Vec<_> = at.iter().filter_map(|place| parse_host_port(place)).collect();
    let tls = credential.client(Expected::role(Role::Room)).map_err(|error| Error::failed(error.to_string()))?;
    let connection = Connection::open(&places, &tls).await.map_err(Failed::into_error)?;
    let request = CheckIn { server, ended, time_s: now_s() };
    let answer: CheckedIn =
        connection.ask(Method::POST, routes::SERVERS, &request).await.map_err(Failed::into_error)?;
    der_of_list(answer.revocations.as_bytes())
}

/// Whether a room still has the member with this credential, as the machine at one of these addresses says; `None` if
/// none of them answers within a few seconds.
pub async fn is_member(credential: &Credential, at: &[(Host, u16)]) -> Option<bool> {
    let asking = async {
        let tls = credential.client(Expected::role(Role::Room)).ok()?;
        let connection = match Connection::open(at, &tls).await {
            Ok(connection) => connection,
            Err(_) => return None,
        };
        let request = CheckIn { server: None, ended: false, time_s: now_s() };
        match connection.ask::<CheckedIn>(Method::POST, routes::SERVERS, &request).await {
            Ok(_) => Some(true),
            Err(Failed::Refused(error)) => (error.fact() == Some(Fact::Refused)).then_some(false),
            Err(_) => None,
        }
    };
    timeout(MEMBER_TIMEOUT, asking).await.ok().flatten()
}

/// Joins the room at `host:port` without an invitation: shows the code, and waits until it is approved there.
///
/// The machine takes the role that it asks for and no other.
///
/// # Errors
///
/// If the address does not answer, the connection breaks, the room refuses, or nobody approves within ten minutes.
pub async fn wait_for_approval(
    (host, port): (&Host, u16),
    key: &PrivateKey,
    machine: &MachineInfo,
    role: Role,
    show: impl AsyncFnOnce(Code, Fingerprint) -> Result<()>,
) -> Result<Joined> {
    let plain = |failed: Failed| match failed {
        Failed::Broken(error) => error.said(|error| format!("cannot join the room: {error}; run the command again")),
        failed => failed.into_error(),
    };
    let joiner = Joiner::new(key.public()?.fingerprint(), random::bytes()?);
    let address = [(host.clone(), port)];
    // The key that the server has now is the one that the code covers, and the only one accepted from here on.
    let room_key = authority_at(host, port).await.map_err(plain)?;
    let begin = Begin {
        commitment: Fingerprint(joiner.commitment()).to_string(),
        name: machine.name.clone(),
        role: role.to_string(),
    };
    let connection = Connection::open_for_enrolment(&address, &room_key).await.map_err(plain)?;
    let begun: Begun = connection.ask(Method::POST, routes::PENDING, &begin).await.map_err(plain)?;
    let theirs = begun.nonce.parse::<Fingerprint>();
    let theirs =
        theirs.map_err(|_| Error::failed("the room's answer is malformed; update Cheetah on both machines"))?;
    if begun.id.len() > 64 || !begun.id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(Error::failed("the room's answer is malformed; update Cheetah on both machines"));
    }
    let (nonce, code) = joiner.reveal(&room_key, &theirs.0);
    let reveal = Reveal { nonce: Fingerprint(nonce).to_string(), claims: claims(key, &room_key, machine)? };
    let path = fill(routes::PENDING_ONE, [&begun.id]);
    let connection = Connection::open_for_enrolment(&address, &room_key).await.map_err(plain)?;
    connection.send(Method::PUT, &path, &reveal).await.map_err(plain)?;
    show(code, room_key).await?;
    loop {
        sleep(POLL_PAUSE).await;
        let asked = match Connection::open_for_enrolment(&address, &room_key).await {
            Ok(connection) => connection.send(Method::GET, &path, &()).await,
            Err(failed) => Err(failed),
        };
        match asked {
            Ok((StatusCode::OK, body)) => {
                let answer = parse(&body).map_err(plain)?;
                return accept(&answer, key, &room_key, role, &address);
            }
            Ok(_) => {}
            // The room's machine may be restarting the server; its table of waiting machines is kept.
            Err(Failed::Broken(why)) => tracing::info!("the room does not answer, trying on: {why}"),
            Err(failed) => return Err(failed.into_error()),
        }
    }
}

/// The key of the authority that the server at an address presents. Only a handshake is sent. Each later connection
/// verifies that the server has this key, and the code shows whether it is the right room.
async fn authority_at(host: &Host, port: u16) -> std::result::Result<Fingerprint, Failed> {
    let refused = |error: &dyn std::fmt::Display| Failed::Refused(Error::failed(error.to_string()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| refused(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth();
    let at = host.with_port(port);
    let stream = dial(&at, Deadline::after(CONNECT_TIMEOUT)).await;
    let stream = stream.map_err(|error| Failed::Broken(Error::failed(format!("{at}: {error}"))))?;
    let name = rustls::pki_types::ServerName::try_from("room.invalid").map_err(|error| refused(&error))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = match timeout(CONNECT_TIMEOUT, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(Failed::Broken(Error::failed(format!("{at}: no TLS: {error}")))),
        Err(_) => {
            return Err(Failed::Broken(Error::failed(format!("{at}: no TLS within {} s", CONNECT_TIMEOUT.as_secs()))));
        }
    };
    let authority = stream.get_ref().1.peer_certificates().filter(|chain| chain.len() == 2).map(|chain| &chain[1]);
    let fingerprint = authority.and_then(|certificate| Fingerprint::of_certificate(certificate).ok());
    fingerprint.ok_or_else(|| refused(&format!("{at} is not the enrolment server of a room; check the address")))
}

/// Accepts any certificate, to learn which one a server presents.
#[derive(Debug)]
struct AnyServer;

impl rustls::client::danger::ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &rustls::pki_types::ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> std::result::Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> std::result::Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not accepted".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> std::result::Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn claims(key: &PrivateKey, room_key: &Fingerprint, machine: &MachineInfo) -> Result<Claims> {
    let hosts = machine.hosts.iter().map(ToString::to_string).collect();
    Claims::new(key, room_key, &machine.name, hosts, now_s())
}

/// Checks what the room issued: its own authority, the machine's key, and the role that was asked for.
fn accept(
    answer: &Enrolled,
    key: &PrivateKey,
    room_key: &Fingerprint,
    role: Role,
    at: &[(Host, u16)],
) -> Result<Joined> {
    let pem = [key.to_pem().as_str(), &answer.certificate, &answer.authority, &answer.revocations].concat();
    let pem = Zeroizing::new(pem);
    let credential = Credential::from_pem(pem.as_bytes())
        .map_err(|error| Error::failed(format!("the room's certificate cannot be used: {error}")))?;
    let own = key.public()?.fingerprint();
    let identity = credential.identity().filter(|identity| identity.key == own);
    if credential.authority_key() != *room_key || identity.is_none() {
        return Err(Error::failed("the room's certificate is for another key or room; it is not used"));
    }
    if let Some(identity) = identity.filter(|identity| identity.role != role) {
        let given = identity.role;
        return Err(Error::failed(format!("the room gives the role {given}, not {role}; make a new invitation there")));
    }
    let clock_offset_s = i64::try_from(i128::from(answer.time_s) - i128::from(now_s())).unwrap_or(i64::MAX);
    let room = answer.room.chars().filter(|c| !c.is_control()).take(64).collect();
    let at = at.iter().map(|(host, port)| host.with_port(*port)).collect();
    Ok(Joined { credential, pem, room, at, clock_offset_s })
}
