//! What each role may do at a node, on the wire: every operation, tried by every role.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use cheetah_control::api::{LeaseRequest, NewExport, NewMap, NewNote};
use cheetah_control::jobs::{Digest, NewJob, Stretch, UnitPlace, Units, Work};
use cheetah_control::receipt::Asked;
use cheetah_control::{ControlClient, ControlError};
use cheetah_device::{ByteRange, Data, Device as _};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::{Address, NbdUri};
use cheetah_node::{Node, NodeConfig, Scan};
use cheetah_tls::testing::Room;
use cheetah_tls::{Credential, Expected, Role, TlsError};
use hyper::Method;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const EXPORT: &str = "case42";

/// The client that tries an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Actor {
    Member(Role),
    /// An examiner that was revoked.
    Revoked,
    /// An examiner of another room.
    Stranger,
    /// A client without a credential, over an unencrypted connection.
    Clear,
}

const ACTORS: [Actor; 8] = [
    Actor::Member(Role::Examiner),
    Actor::Member(Role::Analyst),
    Actor::Member(Role::Node),
    Actor::Member(Role::TrustedNode),
    Actor::Member(Role::Agent),
    Actor::Revoked,
    Actor::Stranger,
    Actor::Clear,
];

/// Defines the operations, and the list of all of them.
macro_rules! operations {
    ($($name:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Operation { $($name),* }
        const OPERATIONS: &[Operation] = &[$(Operation::$name),*];
    };
}

operations! {
    Open,
    Read,
    OpenToWrite,
    Write,
    Status,
    Metrics,
    Map,
    Notes,
    Probe,
    Create,
    Lease,
    Renew,
    Release,
    StoreMap,
    StoreNote,
    Delete,
    StartJob,
    JobLines,
    CancelJob,
}

use Operation::*;

/// The table of docs/guide/security.md: whether an actor may do that at a node.
fn may(actor: Actor, operation: Operation) -> bool {
    let reads = matches!(operation, Open | Read | Status | Metrics | Map | Notes | Probe);
    match actor {
        Actor::Member(Role::Examiner) => true,
        Actor::Member(Role::Analyst) => reads,
        Actor::Member(_) | Actor::Revoked | Actor::Stranger | Actor::Clear => false,
    }
}

/// A node with an export, and the credentials of all actors.
struct Stage {
    node: Node,
    room: Room,
    examiner: Credential,
    revoked: Credential,
    stranger: Credential,
}

impl Stage {
    async fn new() -> Self {
        let room = Room::new();
        let credential = room.credential("pc7", Role::Node);
        let (examiner, revoked) = (room.credential("desk", Role::Examiner), room.credential("eve", Role::Examiner));
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = NodeConfig {
            credential: Some(credential.clone()),
            scan: NonZeroUsize::new(1).map(Scan::with),
            ..NodeConfig::new(64 * MIB, at)
        };
        let stage = Self {
            node: Node::start(config).unwrap(),
            examiner,
            revoked,
            stranger: Room::new().credential("x", Role::Examiner),
            room,
        };
        credential.replace_revocations(&stage.room.revocations(&[&stage.revoked])).unwrap();
        stage.reset().await;
        stage
    }

    fn credential(&self, actor: Actor) -> Option<Credential> {
        match actor {
            Actor::Member(Role::Examiner) => Some(self.examiner.clone()),
            Actor::Member(role) => Some(self.room.credential("someone", role)),
            Actor::Revoked => Some(self.revoked.clone()),
            Actor::Stranger => Some(self.stranger.clone()),
            Actor::Clear => None,
        }
    }

    fn control(&self, actor: Actor) -> ControlClient {
        let credential = self.credential(actor);
        ControlClient::new(self.node.http_address(), credential.as_ref()).with_timeout(Duration::from_secs(30))
    }

    /// The export, empty, without a lease. Returns the token of a new lease.
    async fn reset(&self) -> String {
        let examiner = self.control(Actor::Member(Role::Examiner));
        let force = LeaseRequest { holder: "test".into(), ttl_s: 60, force: true };
        if let Ok(lease) = examiner.acquire_lease(EXPORT, &force).await {
            examiner.delete_export(EXPORT, Some(&lease.token), &Asked::default()).await.unwrap();
        }
        let _ = examiner.delete_export("new", None, &Asked::default()).await;
        examiner.create_export(&NewExport::reserved(EXPORT, MIB)).await.unwrap();
        let token = examiner.acquire_lease(EXPORT, &force).await.unwrap().token;
        let map = NewMap { token: token.clone(), epoch: 1, map: "map".into() };
        examiner.store_map(EXPORT, &map).await.unwrap();
        token
    }

    /// A job on the export.
    fn job(&self) -> NewJob {
        let units = vec![UnitPlace { export: 0, text: 0 }];
        let stretches = vec![Stretch { rounds: 1, units, export_step: 0, text_step: 0 }];
        let units = Units { unit_bytes: 64 << 10, stretches };
        NewJob {
            instance: self.node.status().instance,
            export: EXPORT.into(),
            units,
            work: Work::Digest(Digest::default()),
            key: None,
        }
    }

    /// Tries to open the export.
    async fn open(&self, actor: Actor, lease: Option<&str>) -> Result<std::sync::Arc<Client>, String> {
        let at = self.node.nbd_address();
        let address = Address::Tcp { host: at.ip().to_string(), port: at.port() };
        let config = ClientConfig {
            credentials: self.credential(actor).into(),
            expected: Expected::role(Role::Node),
            writable: lease.is_some(),
            contexts: lease.map(|token| format!("x-cheetah:lease/{token}")).into_iter().collect(),
            timeout: Duration::from_secs(30),
            ..ClientConfig::new(NbdUri::new(address, EXPORT))
        };
        Client::connect(config).await.map(Into::into).map_err(|error| error.to_string())
    }

    /// Whether the actor, who has got hold of the lease's token, can do that.
    async fn can(&self, actor: Actor, operation: Operation) -> bool {
        let token = self.reset().await;
        let control = self.control(actor);
        let lease = LeaseRequest { holder: "actor".into(), ttl_s: 60, force: true };
        let range = ByteRange::new(0, 4096);
        let done: Result<(), ControlError> = match operation {
            Open => return self.open(actor, None).await.is_ok(),
            Read => {
                return match self.open(actor, None).await {
                    Ok(client) => client.read(range).await.is_ok(),
                    Err(_) => false,
                };
            }
            OpenToWrite => return self.open(actor, Some(&token)).await.is_ok(),
            Write => {
                let client = match self.open(actor, Some(&token)).await {
                    Ok(client) => client,
                    // It may still try to write over a connection for reading.
                    Err(_) => match self.open(actor, None).await {
                        Ok(client) => client,
                        Err(_) => return false,
                    },
                };
                let written = client.write(0, Data::from(vec![7; 4096]), false).await.is_ok();
                let read = self.open(Actor::Member(Role::Examiner), None).await.unwrap().read(range).await.unwrap();
                assert_eq!(read.into_bytes().contains(&7), written);
                return written;
            }
            Status => control.status().await.map(drop),
            Metrics => control.metrics().await.map(drop),
            Map => control.map(EXPORT).await.map(drop),
            Notes => control.notes(EXPORT).await.map(drop),
            Probe => control.get::<Value>("/v1/probe").await.map(drop),
            Create => control.create_export(&NewExport::thin("new", MIB)).await.map(drop),
            Lease => control.acquire_lease(EXPORT, &lease).await.map(drop),
            Renew => control.renew_lease(EXPORT, &token).await.map(drop),
            Release => control.release_lease(EXPORT, &token).await,
            StoreMap => control.store_map(EXPORT, &NewMap { token, epoch: 2, map: "other".into() }).await,
            StoreNote => control.store_note(EXPORT, &NewNote { name: "a".into(), text: "b".into() }).await,
            StartJob => control.start_job(&self.job()).await.map(drop),
            JobLines | CancelJob => {
                // It has got hold of the id.
                let id = self.control(Actor::Member(Role::Examiner)).start_job(&self.job()).await.unwrap().id;
                let done = match operation {
                    JobLines => control.job_lines(&id, 0, 0).await.map(drop),
                    _ => control.cancel_job(&id).await,
                };
                let _ = self.control(Actor::Member(Role::Examiner)).cancel_job(&id).await;
                done
            }
            Delete => control.delete_export(EXPORT, Some(&token), &Asked::default()).await.map(drop),
        };
        match done {
            Ok(()) => true,
            Err(ControlError::Refused { status, error, .. }) => {
                assert_eq!(status, 403, "{actor:?} {operation:?}: {error}");
                false
            }
            Err(ControlError::NoAnswer { .. } | ControlError::NotANode { .. }) => {
                assert!(!matches!(actor, Actor::Member(_)), "{actor:?} {operation:?}: a member gets an answer");
                false
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_can_do_what_the_table_says_and_nothing_else() {
    let stage = Stage::new().await;
    let mut wrong = Vec::new();
    for actor in ACTORS {
        for &operation in OPERATIONS {
            if stage.can(actor, operation).await != may(actor, operation) {
                wrong.push((actor, operation));
            }
        }
    }
    assert_eq!(wrong, []);
    // The last operation of all actors but examiners left the export as it was.
    assert_eq!(stage.node.status().exports.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_revoked_certificates_is_taken_from_any_member_if_the_room_signed_it() {
    let stage = Stage::new().await;
    let victim = stage.room.credential("mallory", Role::Examiner);
    let list = stage.room.revocations(&[&stage.revoked, &victim]);
    let old = Room::new().revocations(&[&victim]);
    for role in [Role::Examiner, Role::Analyst, Role::Node, Role::Agent] {
        let member = stage.control(Actor::Member(role));
        let refusal = member.replace_revocations(old.clone()).await.unwrap_err();
        let ControlError::Refused { status: 400, error, .. } = &refusal else { panic!("{refusal}") };
        assert_eq!(*error, TlsError::ForeignRevocations.to_string());
        member.replace_revocations(list.clone()).await.unwrap();
    }
    for actor in [Actor::Stranger, Actor::Revoked, Actor::Clear] {
        assert!(stage.control(actor).replace_revocations(list.clone()).await.is_err(), "{actor:?}");
    }
    let client = ControlClient::new(stage.node.http_address(), Some(&victim));
    assert!(client.status().await.is_err(), "it is revoked now");
}

/// Refusals do not reveal which exports or paths exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_path_is_refused_before_it_is_looked_up() {
    let stage = Stage::new().await;
    for role in [Role::Node, Role::Agent] {
        let control = stage.control(Actor::Member(role));
        for (method, path) in [(Method::GET, "/nothing"), (Method::POST, "/v1/exports/x/lease"), (Method::PATCH, "/v1")]
        {
            match control.send::<Value>(method.clone(), path, &json!({})).await.unwrap_err() {
                ControlError::Refused { status: 403, .. } => {}
                other => panic!("{method} {path}: {other}"),
            }
        }
    }
}
