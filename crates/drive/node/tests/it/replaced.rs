//! A client abandons a connection and repeats its writes: writes of the old connection that reach the node later must

//! not overwrite newer ones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cheetah_control::api::{LeaseRequest, NewExport};
use cheetah_device::{ByteRange, Data, Device, Error};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::server::Exports as _;
use cheetah_node::{Node, NodeConfig};
use futures::FutureExt;
use futures::executor::block_on;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const MIB: u64 = 1 << 20;
/// How long a client waits for an answer that does not come. Everything else takes much less.
const SHORT: Duration = Duration::from_secs(4);
/// `NBD_EPERM`
const EPERM: [u8; 4] = [0, 0, 0, 1];

fn start() -> Node {
    let node = Node::start(NodeConfig::new(8 * MIB, SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    node.exports().create(&NewExport::thin("e", MIB)).unwrap();
    node
}

/// The contexts of a writer.
fn contexts(node: &Node) -> Vec<String> {
    let request = LeaseRequest { holder: "Ada".into(), ttl_s: 60, force: false };
    let lease = node.exports().acquire_lease("e", &request).unwrap().token;
    vec![format!("x-cheetah:instance/{}", node.status().instance), format!("x-cheetah:lease/{lease}")]
}

#[test]
fn a_replaced_connection_can_read_but_not_write() {
    let node = start();
    let base = contexts(&node);
    let open = |name: char, count: u64| {
        let mut contexts = base.clone();
        contexts.push(format!("x-cheetah:connection/{}/{count}", name.to_string().repeat(32)));
        let export = node.exports().open("e", &contexts).unwrap();
        (export.contexts.len() == contexts.len(), export.device)
    };
    let write = |device: &dyn Device| block_on(device.write(0, vec![1; 10].into(), false));
    // As a negotiation does: to select contexts, to ask for information, and to go.
    let (_, first) = open('a', 1);
    let (_, again) = open('a', 1);
    let (_, other) = open('b', 1);
    write(&*first).unwrap();
    write(&*again).unwrap();

    let (granted, newer) = open('a', 2);
    assert!(granted);
    for old in [&first, &again] {
        assert!(matches!(write(&**old), Err(Error::Fenced(_))));
        assert!(matches!(block_on(old.zero(ByteRange::new(0, 1), Default::default())), Err(Error::Fenced(_))));
        assert!(matches!(block_on(old.trim(ByteRange::new(0, 1))), Err(Error::Fenced(_))));
        assert_eq!(block_on(old.read(ByteRange::new(0, 10))).unwrap(), [1; 10][..]);
    }
    write(&*newer).unwrap();
    write(&*other).unwrap();

    let (granted, late) = open('a', 1);
    assert!(!granted && !late.geometry().writable, "an attempt that was given up long ago");
    assert!(matches!(write(&*late), Err(Error::Fenced(_))));
    write(&*newer).unwrap();
    let odd = node.exports().open("e", &[base[1].clone(), "x-cheetah:connection/what".into()]).unwrap();
    assert!(!odd.device.geometry().writable);
}

/// The behaviour of a proxy on its first connection.
#[derive(Clone, Copy, PartialEq)]
enum First {
    Carry,
    /// Withhold the requests of the client.
    Withhold,
    /// Close the client's connection, and keep withholding the requests.
    HangUp,
    /// Deliver the withheld requests to the node.
    Deliver,
}

/// A proxy to a node, which can delay the first connection.
struct Proxy {
    addr: SocketAddr,
    first: watch::Sender<First>,
    /// Bytes; `None` before it begins.
    withheld: watch::Receiver<Option<usize>>,
    /// The replies of the node to the withheld requests.
    answer: JoinHandle<Vec<u8>>,
}

impl Proxy {
    async fn start(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let ((first, what), (tell, withheld)) = (watch::channel(First::Carry), watch::channel(None));
        let answer = tokio::spawn(async move {
            let late = late(accept(&listener, node).await, what, tell);
            tokio::spawn(async move {
                loop {
                    let (mut client, mut node) = accept(&listener, node).await;
                    tokio::spawn(async move { copy_bidirectional(&mut client, &mut node).await });
                }
            });
            late.await
        });
        Self { addr, first, withheld, answer }
    }

    fn client(&self, contexts: Vec<String>, connections: usize, timeout: Duration) -> ClientConfig {
        let config = ClientConfig::new(format!("nbd://{}/e", self.addr).parse().unwrap());
        ClientConfig { contexts, writable: true, connections, timeout, ..config }
    }

    async fn withhold(&mut self) {
        self.first.send_replace(First::Withhold);
        self.withholds(0).await;
    }

    /// Waits until it withholds that number of bytes.
    async fn withholds(&mut self, len: usize) {
        self.withheld.wait_for(|withheld| withheld.is_some_and(|withheld| withheld >= len)).await.unwrap();
    }

    /// Delivers a write that was withheld, and expects that it is refused.
    async fn deliver(self) {
        self.first.send_replace(First::Deliver);
        let answer = self.answer.await.unwrap();
        assert_eq!(answer.get(20..24), Some(&EPERM[..]), "{answer:?}");
    }
}

async fn accept(listener: &TcpListener, node: SocketAddr) -> (TcpStream, TcpStream) {
    let (client, _) = listener.accept().await.unwrap();
    (client, TcpStream::connect(node).await.unwrap())
}

async fn late(
    (mut client, mut node): (TcpStream, TcpStream),
    mut what: watch::Receiver<First>,
    tell: watch::Sender<Option<usize>>,
) -> Vec<u8> {
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut node) => {}
        _ = what.wait_for(|what| *what != First::Carry) => {}
    }
    tell.send_replace(Some(0));
    let mut withheld = Vec::new();
    let withhold = async {
        while client.read_buf(&mut withheld).await.is_ok_and(|len| len > 0) {
            tell.send_replace(Some(withheld.len()));
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = withhold => {}
        _ = what.wait_for(|what| *what != First::Withhold) => {}
    }
    drop(client);
    what.wait_for(|what| *what == First::Deliver).await.unwrap();
    node.write_all(&withheld).await.unwrap();
    node.shutdown().await.unwrap();
    let mut answer = Vec::new();
    node.read_to_end(&mut answer).await.unwrap();
    answer
}

fn old() -> Data {
    vec![1; 5000].into()
}

fn new() -> Data {
    vec![2; 5000].into()
}

async fn holds_the_new(client: &Client) {
    assert_eq!(client.read(ByteRange::new(0, 5000)).await.unwrap(), [2; 5000][..]);
}

/// Writes the new data, and retries while the node counts as lost on a machine that stalls.
async fn write_in_the_end(client: &Client) {
    while let Err(error) = client.write(0, new(), false).await {
        assert!(matches!(error, Error::Lost { .. }), "{error}");
        // The client connects again on this same thread.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

// On one thread, so that the first connection is up first, and is used.
#[tokio::test]
async fn the_old_copy_of_a_repeated_write_is_refused() {
    for connections in [1, 3] {
        let node = start();
        let mut proxy = Proxy::start(node.nbd_address()).await;
        let config = proxy.client(contexts(&node), connections, Duration::from_secs(60));
        let client = Arc::new(Client::connect(config).await.unwrap());
        client.write(0, vec![0; 5000].into(), false).await.unwrap();
        proxy.withhold().await;
        let writing = tokio::spawn({
            let client = Arc::clone(&client);
            async move { client.write(0, old(), false).await }
        });
        proxy.withholds(5000).await;
        proxy.first.send_replace(First::HangUp);
        writing.await.unwrap().unwrap();
        client.write(0, new(), false).await.unwrap();
        proxy.deliver().await;
        holds_the_new(&client).await;
    }
}

// On one thread, so that the first connection is up first, and is used.
#[tokio::test]
async fn the_late_copy_of_a_failed_write_is_refused() {
    for connections in [1, 3] {
        let node = start();
        let mut proxy = Proxy::start(node.nbd_address()).await;
        let config = proxy.client(contexts(&node), connections, SHORT);
        let client = Client::connect(config).await.unwrap();
        proxy.withhold().await;
        let lost = client.write(0, old(), false).await.unwrap_err();
        assert!(matches!(lost, Error::Lost { .. }), "{lost}");
        proxy.withholds(5000).await;
        // The other connections are up, yet this waits until the first one is replaced.
        write_in_the_end(&client).await;
        proxy.deliver().await;
        holds_the_new(&client).await;
    }
}

// On one thread, as above.
#[tokio::test]
async fn the_late_copy_of_an_abandoned_write_is_refused() {
    for connections in [1, 3] {
        let node = start();
        let mut proxy = Proxy::start(node.nbd_address()).await;
        let config = proxy.client(contexts(&node), connections, SHORT);
        let client = Client::connect(config).await.unwrap();
        client.write(0, vec![0; 5000].into(), false).await.unwrap();
        // Once its reply has arrived, other changes are not held up.
        assert!(client.write(0, old(), false).now_or_never().is_none());
        client.write(0, new(), false).await.unwrap();
        holds_the_new(&client).await;

        proxy.withhold().await;
        assert!(client.write(0, old(), false).now_or_never().is_none());
        proxy.withholds(5000).await;
        write_in_the_end(&client).await;
        proxy.deliver().await;
        holds_the_new(&client).await;
    }
}
