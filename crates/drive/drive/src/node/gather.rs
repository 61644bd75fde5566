//! Waiting for nodes that join by themselves.
//!
//! A node is accepted only if it answers at the address it called from, as the instance it claims to be. So a drive
//! never starts with a node that cannot be reached.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Json, Router};
use cheetah_control::api::{BODY_BYTES_MAX, ErrorBody, Join, Joined};
use cheetah_control::http::{self, Ends, Member};
use cheetah_control::{ControlClient, routes};
use cheetah_device::supervise::{contain, panic_point};
use cheetah_tls::{Credential, CredentialSet, Expected, Roles};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};
use tokio::time::sleep;

use super::spec::{AvailableNode, host_port, shown_name};
use cheetah_error::{Error, Result};
use cheetah_image::hash::is_hex;

/// How long a joining node may take to answer.
const ASK_BACK_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of nodes asked concurrently.
const ASKING_MAX: usize = 64;
/// How long the listener continues after all wanted nodes have joined.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// Limits for callers.
const LIMITS: http::Limits = http::Limits { connections_max: 256, life_max: Duration::from_secs(30) };

/// A listener that nodes join. Nodes are accepted in the order in which they join.
pub struct JoinListener {
    address: SocketAddr,
    joined: mpsc::Receiver<AvailableNode>,
    left: usize,
    /// Dropping it ends the server once it has answered all requests.
    _stop: oneshot::Sender<()>,
}

impl JoinListener {
    /// Listens on `address` for `wanted` nodes. In a room, nodes must be nodes of that room;
    /// without one, an address beyond loopback is refused unless `insecure`.
    pub async fn listen(
        address: SocketAddr,
        wanted: usize,
        insecure: bool,
        credentials: &CredentialSet,
    ) -> Result<Self> {
        let tls = credentials.server(address, insecure).map_err(cheetah_control::exposed)?;
        let listening = |error| Error::io(format_args!("listening for nodes on {address}"), &error);
        let listener = TcpListener::bind(address).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let (joined_here, joined) = mpsc::channel(wanted.max(1));
        let gate = Arc::new(JoinLimit {
            wanted,
            instances: Mutex::default(),
            joined: joined_here,
            asking: Semaphore::new(ASKING_MAX),
            credential: credentials.acting_as().cloned(),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let router =
            Router::new().route(routes::JOIN, post(join)).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(gate);
        let with_caller = move |Ends { peer, .. }| router.clone().layer(Extension(ConnectInfo(peer)));
        tokio::spawn(async move {
            tokio::select! {
                never = http::serve(listener, LIMITS, tls, with_caller) => match never {},
                () = async {
                    // Nothing is ever sent.
                    let _ = stopped.await;
                    // The last response must still be sent.
                    sleep(LAST_ANSWER).await;
                } => {}
            }
        });
        Ok(Self { address, joined, left: wanted, _stop: stop })
    }

    /// The address it listens on, which nodes call to join.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next node to join; `None` when all wanted nodes have joined.
    pub async fn next(&mut self) -> Option<AvailableNode> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.joined.recv().await
    }
}

/// Accepts as many nodes as are wanted, each instance once.
struct JoinLimit {
    wanted: usize,
    instances: Mutex<Vec<String>>,
    joined: mpsc::Sender<AvailableNode>,
    asking: Semaphore,
    /// That of this side.
    credential: Option<Credential>,
}

type Answer = std::result::Result<Json<Joined>, (StatusCode, Json<ErrorBody>)>;

fn refuse(status: StatusCode, error: String) -> Answer {
    Err((status, Json(ErrorBody { error, next: Vec::new() })))
}

/// A panic fails one attempt of the joining node.
async fn join(
    State(gate): State<Arc<JoinLimit>>,
    Extension(ConnectInfo(peer)): Extension<ConnectInfo<SocketAddr>>,
    Extension(member): Extension<Member>,
    body: Bytes,
) -> Answer {
    if !member.is_one_of(Roles::NODES) {
        return refuse(StatusCode::FORBIDDEN, format!("{member} is no node"));
    }
    let accepted = contain("a node's joining", accept(&gate, peer, &member, &body)).await;
    accepted.unwrap_or_else(|panicked| refuse(StatusCode::INTERNAL_SERVER_ERROR, panicked.to_string()))
}

async fn accept(gate: &JoinLimit, peer: SocketAddr, member: &Member, body: &[u8]) -> Answer {
    panic_point("gather");
    let welcome = Ok(Json(Joined {}));
    let join = match serde_json::from_slice::<Join>(body) {
        Ok(join) if is_hex(&join.instance, 32) && join.nbd_port != 0 && join.http_port != 0 => join,
        Ok(_) => return refuse(StatusCode::BAD_REQUEST, "the instance or a port is malformed".into()),
        Err(error) => return refuse(StatusCode::BAD_REQUEST, format!("not an offer to join: {error}")),
    };
    if gate.instances.lock().await.contains(&join.instance) {
        return welcome;
    }
    let Ok(_asking) = gate.asking.try_acquire() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many nodes join at once; try again".into());
    };
    let host = peer.ip().to_canonical().to_string();
    let mut expected = Expected::roles(Roles::NODES);
    if let Some(standing) = &member.0 {
        // The key proves that it is the machine that called, not another one at its address.
        expected = expected.with_key(standing.identity().key);
    }
    let back = ControlClient::new(host_port(&host, join.http_port), gate.credential.as_ref());
    let back = back.with_timeout(ASK_BACK_TIMEOUT).expecting(expected);
    let status = match back.status().await {
        Ok(status) if status.instance == join.instance => status,
        Ok(_) => return refuse(StatusCode::CONFLICT, format!("another node answers at {}", back.addr())),
        Err(error) => return refuse(StatusCode::BAD_GATEWAY, format!("you cannot be reached back: {error}")),
    };
    let mut instances = gate.instances.lock().await;
    if instances.contains(&join.instance) {
        return welcome;
    }
    if instances.len() >= gate.wanted {
        return refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the drive has the {} nodes it waits for", gate.wanted),
        );
    }
    let found = AvailableNode::node(shown_name(&join.name, &host, status.nbd_port), &host, join.http_port, &status);
    // The channel has room for all wanted nodes.
    if gate.joined.try_send(found).is_err() {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the drive waits no longer".into());
    }
    instances.push(join.instance);
    welcome
}
