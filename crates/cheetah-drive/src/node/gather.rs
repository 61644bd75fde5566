//! Waiting for nodes that join by themselves (`cheetah node --join`).
//!
//! A node is accepted only if it answers at the address it called from, as the instance it claims to be. So a drive never
//! starts with a node that cannot be reached.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use cheetah_control::ControlClient;
use cheetah_control::api::{BODY_BYTES_MAX, ErrorBody, Join};
use cheetah_device::supervise::{contain, panic_point};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use super::spec::{AvailableNode, host_port, shown_name};
use cheetah_error::{Error, Result};
use cheetah_image::hash::is_hex;

/// How long a joining node may take to answer.
const ASK_BACK_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of nodes asked concurrently.
const ASKING_MAX: usize = 64;

/// A listener that nodes join. They are taken in the order in which they join.
pub struct Gather {
    address: SocketAddr,
    joined: mpsc::Receiver<AvailableNode>,
    left: usize,
    /// Dropping it ends the server once it has answered all requests.
    _stop: oneshot::Sender<()>,
}

impl Gather {
    /// Listens on `address` for `wanted` nodes. An address beyond loopback is refused unless `insecure`.
    pub async fn listen(address: SocketAddr, wanted: usize, insecure: bool) -> Result<Self> {
        if !address.ip().is_loopback() && !insecure {
            return Err(Error::misuse(format!(
                "refusing to listen on {address}: anyone there could join; use a loopback address, or --insecure on a \
                 network you trust"
            )));
        }
        let listening = |error| Error::io(format_args!("listening for nodes on {address}"), &error);
        let listener = TcpListener::bind(address).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let (joined_here, joined) = mpsc::channel(wanted.max(1));
        let gate = Arc::new(Gate {
            wanted,
            instances: Mutex::default(),
            joined: joined_here,
            asking: Semaphore::new(ASKING_MAX),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let router =
            Router::new().route("/v1/join", post(join)).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(gate);
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let server = axum::serve(listener, service).with_graceful_shutdown(async move {
            // Nothing is ever sent.
            let _ = stopped.await;
        });
        tokio::spawn(async move { server.await });
        Ok(Self { address, joined, left: wanted, _stop: stop })
    }

    /// The address it listens on, for `cheetah node --join`.
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
struct Gate {
    wanted: usize,
    instances: Mutex<Vec<String>>,
    joined: mpsc::Sender<AvailableNode>,
    asking: Semaphore,
}

type Answer = (StatusCode, Json<serde_json::Value>);

fn refuse(status: StatusCode, error: String) -> Answer {
    (status, Json(serde_json::json!(ErrorBody { error })))
}

/// A panic costs the node that offers itself one attempt.
async fn join(State(gate): State<Arc<Gate>>, ConnectInfo(peer): ConnectInfo<SocketAddr>, body: Bytes) -> Answer {
    let accepted = contain("a node's joining", accept(&gate, peer, &body)).await;
    accepted.unwrap_or_else(|panicked| refuse(StatusCode::INTERNAL_SERVER_ERROR, panicked.to_string()))
}

async fn accept(gate: &Gate, peer: SocketAddr, body: &[u8]) -> Answer {
    panic_point("gather");
    let welcome = (StatusCode::OK, Json(serde_json::json!({})));
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
    let back = ControlClient::new(host_port(&host, join.http_port)).with_timeout(ASK_BACK_TIMEOUT);
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
