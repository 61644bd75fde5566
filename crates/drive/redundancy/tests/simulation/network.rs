//! The network carries, delays and repeats messages, and loses them with their connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Geometry, Io, Result};
use cheetah_redundancy::{DynLink, MemberLink};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::node::{Lease, Node, Place, Reply, Request};
use crate::random::{Random, mix};

/// The faults of the network.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// Messages that are held up, per million.
    pub stalled_ppm: u64,
    /// Connections that break under a message, per million messages.
    pub broken_ppm: u64,
    /// Whether messages take time at all.
    pub latency: bool,
}

/// Injected faults, by kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub stalled: u64,
    pub connections_broken: u64,
    pub repeated: u64,
    pub killed: u64,
    pub frozen: u64,
    pub isolated: u64,
    pub damaged: u64,
    pub maps_refused: u64,
    pub writers_killed: u64,
    pub rivals: u64,
    pub readers_cut_off: u64,
    /// Nodes that went back to an old snapshot of their content.
    pub rolled_back: u64,
    /// Nodes that were new.
    pub joined: u64,
    /// Nodes whose machine needed the memory.
    pub pressed: u64,
    /// Parts that such nodes dropped.
    pub dropped: u64,
}

impl Faults {
    /// All faults except delayed messages, by far the most frequent kind.
    pub fn total(&self) -> u64 {
        self.connections_broken
            + self.repeated
            + self.killed
            + self.frozen
            + self.isolated
            + self.damaged
            + self.maps_refused
            + self.writers_killed
            + self.rivals
            + self.readers_cut_off
            + self.rolled_back
            + self.joined
            + self.pressed
            + self.dropped
    }

    pub fn add(&mut self, other: &Self) {
        self.stalled += other.stalled;
        self.connections_broken += other.connections_broken;
        self.repeated += other.repeated;
        self.killed += other.killed;
        self.frozen += other.frozen;
        self.isolated += other.isolated;
        self.damaged += other.damaged;
        self.maps_refused += other.maps_refused;
        self.writers_killed += other.writers_killed;
        self.rivals += other.rivals;
        self.readers_cut_off += other.readers_cut_off;
        self.rolled_back += other.rolled_back;
        self.joined += other.joined;
        self.pressed += other.pressed;
        self.dropped += other.dropped;
    }
}

/// Nodes and the network between them and the processes.
pub struct World {
    pub state: Mutex<State>,
    begun: Instant,
}

pub struct State {
    pub random: Random,
    pub nodes: Vec<Node>,
    pub connections: Vec<std::sync::Weak<Connection>>,
    pub weather: Weather,
    pub faults: Faults,
    /// A digest of everything that happened.
    pub trace: u64,
    /// The drive file's copy of the map.
    pub drive_file: Option<Box<Stored>>,
    pub term: u64,
    pub instances: u64,
    /// The number of writes that still arrive. Later ones are lost.
    pub writes_left: Option<u64>,
    /// Maps are not stored for now.
    pub maps_held: bool,
    /// The places that members left, and whose bytes were wiped while the process went on.
    pub released: BTreeSet<Place>,
    /// A node and a process that reach each other and nothing else.
    pub cut_off: Option<(usize, u64)>,
    /// Nodes and processes that do not reach each other.
    pub severed: BTreeSet<(usize, u64)>,
}

use crate::node::Stored;

/// A process that uses the drive.
pub struct Process {
    pub id: u64,
    pub alive: AtomicBool,
    /// For each place, how often this process gave up its connections.
    given_up: Mutex<BTreeMap<Place, u64>>,
}

impl Process {
    pub fn new(id: u64) -> Arc<Self> {
        Arc::new(Self { id, alive: AtomicBool::new(true), given_up: Mutex::default() })
    }

    /// Gives up the connections to a place. Those to another place on the same node go on.
    pub fn forget(&self, place: Place) {
        *self.given_up.lock().entry(place).or_default() += 1;
    }

    fn given_up(&self, place: Place) -> u64 {
        self.given_up.lock().get(&place).copied().unwrap_or(0)
    }

    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
}

/// A connection to an instance of a node.
pub struct Connection {
    pub process: u64,
    pub node: usize,
    instance: Option<u64>,
    lease: Lease,
    state: Mutex<ConnectionState>,
}

struct ConnectionState {
    broken: bool,
    next: u64,
    waiting: BTreeMap<u64, (Instant, oneshot::Sender<Reply>)>,
    heard: Instant,
}

impl Connection {
    fn new(process: u64, node: usize, instance: Option<u64>, lease: Lease) -> Arc<Self> {
        let state = ConnectionState { broken: false, next: 0, waiting: BTreeMap::new(), heard: Instant::now() };
        Arc::new(Self { process, node, instance, lease, state: Mutex::new(state) })
    }

    /// Breaks the connection. Every task that waits for an answer gets an error.
    pub fn break_off(&self) {
        let mut state = self.state.lock();
        state.broken = true;
        state.waiting.clear();
    }

    fn silent_for(&self) -> Option<Duration> {
        let state = self.state.lock();
        let oldest = state.waiting.values().map(|(since, _)| *since).min()?;
        Some(Instant::now() - oldest.max(state.heard))
    }
}

pub fn lost(why: &str) -> Error {
    Error::Lost { device: "node".into(), range: ByteRange::new(0, 0), why: why.into() }
}

impl World {
    pub fn new(seed: u64, nodes: usize, size: u64, weather: Weather) -> Arc<Self> {
        let state = State {
            random: Random::new(seed),
            nodes: (0..nodes).map(|node| Node::new(node as u64 + 1, size)).collect(),
            connections: Vec::new(),
            weather,
            faults: Faults::default(),
            trace: 0,
            drive_file: None,
            term: 0,
            instances: nodes as u64 + 1,
            writes_left: None,
            maps_held: false,
            released: BTreeSet::new(),
            cut_off: None,
            severed: BTreeSet::new(),
        };
        Arc::new(Self { state: Mutex::new(state), begun: Instant::now() })
    }

    /// Adds an event to the trace.
    pub fn note(&self, what: &[u64]) {
        let now = (Instant::now() - self.begun).as_millis() as u64;
        let mut state = self.state.lock();
        for number in [now].iter().chain(what) {
            state.trace = mix(state.trace.rotate_left(7) ^ *number);
        }
    }

    pub fn trace(&self) -> u64 {
        self.state.lock().trace
    }

    pub fn with_node<T>(&self, node: usize, with: impl FnOnce(&mut Node) -> T) -> T {
        with(&mut self.state.lock().nodes[node])
    }

    /// Wipes the bytes at a place that a member left. Its node can then be used again.
    pub fn release(&self, place: Place) {
        if self.with_node(place.node, |node| node.up && node.instance == place.instance) {
            self.state.lock().released.insert(place);
            self.kill(place.node);
            self.restart(place.node);
        }
    }

    pub fn is_released(&self, place: Place) -> bool {
        self.state.lock().released.contains(&place)
    }

    /// Whether the process at a place has ended, as far as another process can tell.
    pub fn is_gone(&self, place: Place, process: &Process) -> bool {
        !self.is_released(place)
            && !self.is_cut(place.node, process.id)
            && self.with_node(place.node, |node| !node.isolated && (!node.up || node.instance != place.instance))
    }

    /// Kills a node: its content is gone, its connections break.
    pub fn kill(&self, node: usize) {
        self.state.lock().nodes[node].kill();
        self.break_connections(|connection| connection.node == node);
    }

    pub fn restart(&self, node: usize) {
        let mut state = self.state.lock();
        state.instances += 1;
        let instance = state.instances;
        state.nodes[node].restart(instance);
    }

    /// Adds an empty node; returns its number.
    pub fn join(&self) -> usize {
        let mut state = self.state.lock();
        state.instances += 1;
        let (instance, size) = (state.instances, state.nodes[0].content.len() as u64);
        state.nodes.push(Node::new(instance, size));
        state.nodes.len() - 1
    }

    /// Freezes or thaws a node.
    pub fn freeze(&self, node: usize, frozen: bool) {
        self.with_node(node, |node| {
            node.frozen = frozen;
            node.wake.notify_waiters();
        });
    }

    pub fn isolate(&self, node: usize, isolated: bool) {
        self.with_node(node, |node| {
            node.isolated = isolated;
            node.wake.notify_waiters();
        });
    }

    /// Cuts a node and a process off together, or ends that.
    pub fn cut_off(&self, together: Option<(usize, u64)>) {
        let mut state = self.state.lock();
        state.cut_off = together;
        state.nodes.iter().for_each(|node| node.wake.notify_waiters());
    }

    fn is_cut(&self, node: usize, process: u64) -> bool {
        let state = self.state.lock();
        state.severed.contains(&(node, process))
            || state.cut_off.is_some_and(|(other, reader)| (node == other) != (process == reader))
    }

    pub fn break_connections(&self, which: impl Fn(&Connection) -> bool) {
        let all: Vec<Arc<Connection>> = {
            let mut state = self.state.lock();
            state.connections.retain(|connection| connection.strong_count() > 0);
            state.connections.iter().filter_map(std::sync::Weak::upgrade).collect()
        };
        all.iter().filter(|connection| which(connection)).for_each(|connection| connection.break_off());
    }

    fn connect(&self, process: &Process, node: usize, instance: Option<u64>, lease: Lease) -> Arc<Connection> {
        let connection = Connection::new(process.id, node, instance, lease);
        let mut state = self.state.lock();
        if state.connections.len() > 64 {
            state.connections.retain(|connection| connection.strong_count() > 0);
        }
        state.connections.push(Arc::downgrade(&connection));
        connection
    }

    /// Sends a request and waits for the answer. `None` if the connection breaks before.
    async fn request(self: &Arc<Self>, process: &Process, on: &Arc<Connection>, request: Request) -> Option<Reply> {
        if !process.is_alive() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut state = on.state.lock();
            if state.broken {
                return None;
            }
            state.next += 1;
            let number = state.next;
            state.waiting.insert(number, (Instant::now(), sender));
            number
        };
        let (there, back, breaks, arrives) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let mut delay = || {
                if !state.weather.latency {
                    return 0;
                }
                if state.random.chance(state.weather.stalled_ppm) {
                    state.faults.stalled += 1;
                    return 20 + state.random.below(200);
                }
                state.random.below(3) / 2
            };
            let (there, back) = (delay(), delay());
            let breaks = state.random.chance(state.weather.broken_ppm);
            state.faults.connections_broken += u64::from(breaks);
            (there, back, breaks, state.random.chance(500_000))
        };
        tokio::spawn(carry(self.clone(), on.clone(), number, request, Delays { there, back, breaks, arrives }));
        receiver.await.ok()
    }
}

struct Delays {
    there: u64,
    back: u64,
    breaks: bool,
    /// Whether the message arrives although its connection broke.
    arrives: bool,
}

/// Carries one message and its answer. The sender may have ended meanwhile.
async fn carry(world: Arc<World>, connection: Arc<Connection>, number: u64, request: Request, delays: Delays) {
    if delays.there > 0 {
        sleep(Duration::from_millis(delays.there)).await;
    }
    if delays.breaks {
        connection.break_off();
        // Messages sent before the break arrive now, or later.
        if !delays.arrives {
            return;
        }
        sleep(Duration::from_millis(delays.back * 7)).await;
    }
    let (node, process) = (connection.node, connection.process);
    let wait = |for_isolation_only: bool| {
        let world = world.clone();
        async move {
            loop {
                let wake = world.with_node(node, |node| node.wake.clone());
                let mut notified = std::pin::pin!(wake.notified());
                notified.as_mut().enable();
                let waits = world.with_node(node, |node| node.isolated || (node.frozen && !for_isolation_only));
                if !waits && !world.is_cut(node, process) {
                    return;
                }
                notified.await;
            }
        }
    };
    wait(false).await;
    if connection.state.lock().broken && !delays.arrives {
        return;
    }
    if let Request::Write(..) = request
        && let Some(left) = &mut world.state.lock().writes_left
    {
        match left.checked_sub(1) {
            Some(fewer) => *left = fewer,
            None => return,
        }
    }
    let kind = match &request {
        Request::Read(range) => [1, range.offset, range.len],
        Request::Write(offset, data) => [2, *offset, data.len()],
        Request::Flush => [3, 0, 0],
        Request::PutMap(stored) => [4, stored.map.epoch, 0],
        Request::GetMap => [5, 0, 0],
        Request::Lease(instance) => [6, connection.lease.term, instance.unwrap_or(0)],
    };
    let reply = world.with_node(node, |node| node.handle(connection.instance, connection.lease, request));
    let outcome = match &reply {
        None => 0,
        Some(Reply::Failed(_)) => 1,
        Some(_) => 2,
    };
    world.note(&[connection.process, node as u64, kind[0], kind[1], kind[2], outcome]);
    if crate::verbose() {
        let now = (Instant::now() - world.begun).as_millis();
        let process = connection.process;
        println!("{now:>6} process {process} node {node} {kind:?} {:?} -> {outcome}", connection.lease);
    }
    let Some(reply) = reply else {
        connection.break_off();
        return;
    };
    if delays.back > 0 {
        sleep(Duration::from_millis(delays.back)).await;
    }
    wait(true).await;
    let mut state = connection.state.lock();
    state.heard = Instant::now();
    if let Some((_, sender)) = state.waiting.remove(&number) {
        sender.send(reply).ok();
    }
}

/// A member behind the network.
pub struct SimulatedLink {
    remote: Arc<Remote>,
    device: DynDevice,
}

struct Remote {
    world: Arc<World>,
    process: Arc<Process>,
    place: Place,
    /// The writer's term; `None` for a reader.
    term: Option<u64>,
    size: u64,
    connection: Mutex<Arc<Connection>>,
    connecting: tokio::sync::Mutex<()>,
    /// How often connections to the place had been given up when this one was made.
    given_up: u64,
}

/// Takes the lease at a node, or only asks for its map. Waits for the answer for at most a second.
pub async fn ask(
    world: &Arc<World>,
    process: &Process,
    node: usize,
    term: u64,
    request: Request,
) -> std::result::Result<Reply, String> {
    for _ in 0..4 {
        let connection = world.connect(process, node, None, Lease { term, session: 0 });
        match tokio::time::timeout(Duration::from_secs(1), world.request(process, &connection, request.clone())).await {
            Ok(Some(Reply::Failed(error))) => return Err(error.to_string()),
            Ok(Some(reply)) => return Ok(reply),
            Ok(None) => {}
            Err(_) => return Err("it does not answer".into()),
        }
    }
    Err("the connection breaks".into())
}

impl SimulatedLink {
    /// Connects under a new session, so that requests sent before can no longer take effect; a reader takes no session.
    pub async fn connect(
        world: &Arc<World>,
        process: &Arc<Process>,
        place: Place,
        term: Option<u64>,
    ) -> std::result::Result<DynLink, String> {
        let connection = handshake(world, process, place, term).await?;
        Ok(Self::over(world, process, place, term, connection))
    }

    fn over(
        world: &Arc<World>,
        process: &Arc<Process>,
        place: Place,
        term: Option<u64>,
        connection: Arc<Connection>,
    ) -> DynLink {
        let remote = Arc::new(Remote {
            world: world.clone(),
            process: process.clone(),
            place,
            term,
            size: world.with_node(place.node, |node| node.content.len() as u64),
            connection: Mutex::new(connection),
            connecting: tokio::sync::Mutex::new(()),
            given_up: process.given_up(place),
        });
        Arc::new(Self { device: Arc::new(SimulatedMember(remote.clone())), remote })
    }
}

async fn handshake(
    world: &Arc<World>,
    process: &Arc<Process>,
    place: Place,
    term: Option<u64>,
) -> std::result::Result<Arc<Connection>, String> {
    let Some(term) = term else {
        ask(world, process, place.node, 0, Request::GetMap).await?;
        if world.with_node(place.node, |node| node.instance) != place.instance {
            return Err("it is another instance".into());
        }
        return Ok(world.connect(process, place.node, Some(place.instance), Lease::default()));
    };
    match ask(world, process, place.node, term, Request::Lease(Some(place.instance))).await? {
        Reply::Lease { session, .. } => {
            Ok(world.connect(process, place.node, Some(place.instance), Lease { term, session }))
        }
        _ => Err("a strange answer".into()),
    }
}

impl Remote {
    /// Sends a request, and sends it again if its connection breaks and can be made again.
    async fn request(&self, request: Request) -> Result<Reply> {
        for attempt in 0..4 {
            let connection = self.connection.lock().clone();
            match self.world.request(&self.process, &connection, request.clone()).await {
                Some(Reply::Failed(error)) => return Err(error),
                Some(reply) => return Ok(reply),
                None if !self.process.is_alive() => return Err(lost("the process is dead")),
                None => {}
            }
            let _connecting = self.connecting.lock().await;
            if self.given_up != self.process.given_up(self.place) {
                return Err(lost("this connection was given up"));
            }
            let unchanged = Arc::ptr_eq(&connection, &self.connection.lock());
            if unchanged {
                match handshake(&self.world, &self.process, self.place, self.term).await {
                    Ok(connection) => *self.connection.lock() = connection,
                    Err(why) => return Err(lost(&why)),
                }
            }
            if attempt < 3 && matches!(request, Request::Write(..)) {
                self.world.state.lock().faults.repeated += 1;
            }
        }
        Err(lost("its connection breaks again and again"))
    }

    async fn change(&self, request: Request) -> Result<()> {
        self.request(request).await.map(|_| ())
    }
}

struct SimulatedMember(Arc<Remote>);

impl Device for SimulatedMember {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.0.size, writable: true, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            match self.0.request(Request::Read(range)).await? {
                Reply::Data(bytes) => Ok(bytes.into()),
                _ => Err(lost("a strange answer")),
            }
        })
    }

    fn write(&self, offset: u64, data: Data, _fua: bool) -> Io<'_, ()> {
        Io::later(async move { self.0.change(Request::Write(offset, data)).await })
    }

    fn flush(&self) -> Io<'_, ()> {
        Io::later(async move { self.0.change(Request::Flush).await })
    }
}

impl MemberLink for SimulatedLink {
    fn device(&self) -> &DynDevice {
        &self.device
    }

    fn silent_for(&self) -> Option<Duration> {
        self.remote.connection.lock().silent_for()
    }
}
