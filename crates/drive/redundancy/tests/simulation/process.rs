//! Processes that use the drive: writers, which hold the lease, and readers, which follow the map.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::Device;
use cheetah_redundancy::engine::Epoch;
use cheetah_redundancy::geometry::ArrayGeometry;
use cheetah_redundancy::map::Regions;
use cheetah_redundancy::{
    ArrayPlace, Cause, DynLink, Engine, Environment, Map, MemberState, Members, NotReached, NotStored, ReadLease,
    Redundancy, Redundant, Votes,
};
use cheetah_seal::Sealed;
use futures::StreamExt as _;
use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::network::{Process, SimulatedLink, World, ask};
use crate::node::{Place, Reply, Request, Stored};

/// The shape of a drive.
#[derive(Debug, Clone)]
pub struct Shape {
    pub redundancy: Redundancy,
    pub members: usize,
    pub unit: u64,
    pub cycles: u64,
    pub region_bytes: u64,
}

impl Shape {
    pub fn geometry(&self) -> ArrayGeometry {
        ArrayGeometry::new(self.redundancy, self.unit, self.members, self.cycles).unwrap()
    }

    pub fn size(&self) -> u64 {
        self.geometry().size()
    }

    pub fn losses_max(&self) -> usize {
        self.redundancy.losses_max()
    }

    /// The drive file is available wherever it has a vote.
    pub fn votes(&self) -> Votes {
        Votes::new(self.members, self.losses_max())
    }

    fn arrays(&self) -> Vec<ArrayPlace> {
        vec![ArrayPlace { geometry: self.geometry(), places: (0..self.members).map(|member| (member, 0)).collect() }]
    }

    /// The map and the places of a new drive on the first nodes.
    pub fn created(&self, world: &World) -> Box<Stored> {
        let none = Regions::divided(self.size(), self.region_bytes);
        let mut map = Map::new(self.members, self.size());
        map.members.iter_mut().for_each(|member| member.missed = none.clone());
        map.unsettled = none;
        let place = |node: usize| Place { node, instance: world.with_node(node, |node| node.instance) };
        let incoming = vec![None; self.members];
        let former = vec![None; self.members];
        Box::new(Stored { map, places: (0..self.members).map(place).collect(), incoming, former })
    }
}

/// A writer that has the drive open.
pub struct Writer {
    pub process: Arc<Process>,
    pub term: u64,
    pub drive: Arc<Redundant>,
    pub environment: Arc<SimulatedEnvironment>,
    /// The sealed device over the drive, if it is sealed.
    pub sealed: Option<Sealed>,
}

pub struct SimulatedEnvironment {
    world: Arc<World>,
    process: Arc<Process>,
    term: u64,
    votes: Votes,
    pub places: Mutex<Vec<Place>>,
    /// The places that members move to, or moved to last.
    pub incoming: Mutex<Vec<Option<Place>>>,
    /// The places that members left: they have them in maps before these epochs.
    left: Mutex<Vec<Option<(Place, Epoch)>>>,
    /// The places in the map that was stored last.
    stored_places: Mutex<Vec<Place>>,
}

impl SimulatedEnvironment {
    /// The places that members move to, and those that readers may still read although the members left them.
    pub fn moving_places(&self, members: &Arc<Members>) -> Vec<Place> {
        let moving: Vec<usize> = members.moving().iter().map(|moving| moving.member).collect();
        let leaving = |member: &usize| members.is_leaving(*member);
        let incoming = self.incoming.lock().clone();
        let left = self.left.lock().clone();
        let incoming = (0..left.len()).filter(|member| moving.contains(member) || leaving(member)).map(|m| incoming[m]);
        let left = (0..left.len()).filter(leaving).map(|member| left[member].map(|(place, _)| place));
        incoming.chain(left).flatten().collect()
    }

    async fn store_stored(&self, stored: Box<Stored>) -> Result<(), NotStored> {
        while self.world.state.lock().maps_held {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let map = &stored.map;
        let former = self.stored_places.lock().clone();
        let written = (0..map.members.len()).filter(|member| map.members[*member].state.is_written());
        let (sender, mut answers) = tokio::sync::mpsc::unbounded_channel();
        // Until a map is stored with the new places, the former ones decide, too.
        let places = written.map(|member| (stored.places[member], true, stored.places[member] == former[member]));
        let left = (0..map.members.len()).filter(|member| stored.places[*member] != former[*member]);
        for (place, is_now, was_before) in places.chain(left.map(|member| (former[member], false, true))) {
            let request = Request::PutMap(stored.clone());
            let sender = sender.clone();
            let (world, process, term) = (self.world.clone(), self.process.clone(), self.term);
            // A late node may get the map after the map already counts as stored.
            tokio::spawn(async move {
                let answer = match world.with_node(place.node, |node| node.instance) == place.instance {
                    true => ask(&world, &process, place.node, term, request).await.map(|_| ()),
                    false => Err("it is another instance".to_owned()),
                };
                sender.send((is_now, was_before, answer)).ok();
            });
        }
        drop(sender);
        let (mut now, mut before, mut why) = (0, 0, Vec::new());
        let decide = |now: usize, before: usize| self.votes.decide(now, true) && self.votes.decide(before, true);
        while !decide(now, before)
            && let Some((is_now, was_before, answer)) = answers.recv().await
        {
            match answer {
                Ok(()) => (now, before) = (now + usize::from(is_now), before + usize::from(was_before)),
                Err(error) => why.push(cause(error)),
            }
        }
        if !decide(now, before) {
            return Err(NotStored::TooFew { stored: now, members: map.members.len(), why });
        }
        (*self.stored_places.lock()).clone_from(&stored.places);
        let mut state = self.world.state.lock();
        if !self.process.is_alive() || state.term != self.term {
            return Err(NotStored::Unconfirmed(cause("another writer has the drive")));
        }
        state.drive_file = Some(stored);
        Ok(())
    }
}

fn cause(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Cause {
    let why: Box<dyn std::error::Error + Send + Sync> = why.into();
    why.into()
}

impl Environment for SimulatedEnvironment {
    fn store(&self, map: Map) -> BoxFuture<'_, Result<(), NotStored>> {
        let mut places = self.places.lock().clone();
        for (place, left) in places.iter_mut().zip(&*self.left.lock()) {
            if let Some((former, _)) = left.filter(|(_, until)| map.epoch < *until) {
                *place = former;
            }
        }
        let incoming = self.incoming.lock().clone();
        let incoming = map
            .members
            .iter()
            .zip(incoming)
            .map(|(member, place)| place.filter(|_| member.incoming.is_some()))
            .collect();
        let stored = self.stored_places.lock().clone();
        let former = stored.into_iter().zip(&places).map(|(former, now)| Some(former).filter(|former| former != now));
        let former = former.collect();
        Box::pin(self.store_stored(Box::new(Stored { map, places, incoming, former })))
    }

    fn moved(&self, member: usize, epoch: Epoch) {
        let place = self.incoming.lock()[member].unwrap();
        let former = std::mem::replace(&mut self.places.lock()[member], place);
        self.left.lock()[member] = Some((former, epoch));
    }

    fn reconnect(&self, member: usize) -> BoxFuture<'_, Result<DynLink, NotReached>> {
        Box::pin(async move {
            let place = self.places.lock()[member];
            // Former connections of this process end first: by reconnecting, they would cut off the new connection.
            self.process.forget(place);
            let connected = SimulatedLink::connect(&self.world, &self.process, place, Some(self.term)).await;
            connected.map_err(|why| NotReached::Unreachable(cause(why)))
        })
    }

    fn read_bytes(&self, _member: usize) -> BoxFuture<'_, Option<u64>> {
        Box::pin(std::future::ready(None))
    }

    fn is_gone(&self, member: usize) -> BoxFuture<'_, bool> {
        let place = self.places.lock()[member];
        Box::pin(async move { self.world.is_gone(place, &self.process) })
    }
}

/// Opens the drive for writing: takes the lease at the nodes, then follows the newest map.
pub async fn open(world: &Arc<World>, process: &Arc<Process>, shape: &Shape) -> Result<Writer, String> {
    let (term, nodes, drive_file) = {
        let mut state = world.state.lock();
        state.term += 1;
        (state.term, state.nodes.len(), state.drive_file.clone())
    };
    let answers = join_all((0..nodes).map(|node| ask(world, process, node, term, Request::Lease(None)))).await;
    let mut newest = drive_file.ok_or("there is no drive file")?;
    for answer in answers.iter().flatten() {
        if let Reply::Lease { stored: Some(stored), .. } = answer
            && stored.map.epoch > newest.map.epoch
        {
            newest = stored.clone();
        }
    }
    let links = join_all(newest.places.iter().zip(&newest.map.members).map(|(place, member)| async move {
        match member.state {
            MemberState::Stale => None,
            _ => SimulatedLink::connect(world, process, *place, Some(term)).await.ok(),
        }
    }))
    .await;
    let readable = newest.map.members.iter().zip(&links);
    let readable = readable.filter(|(member, link)| member.state == MemberState::InSync && link.is_some()).count();
    if readable + shape.losses_max() < shape.members {
        return Err("too many members are lost".into());
    }
    if world.state.lock().term != term || !process.is_alive() {
        return Err("another writer was faster".into());
    }
    // The writer of this map may have died before it was stored at enough nodes of the map before. Readers may have that one.
    let former = newest.former.iter().zip(&newest.places).map(|(former, now)| {
        former.filter(|former| !world.is_gone(*former, process) && !world.is_released(*former)).unwrap_or(*now)
    });
    let stored_places = former.collect();
    let environment = Arc::new(SimulatedEnvironment {
        world: world.clone(),
        process: process.clone(),
        term,
        votes: shape.votes(),
        places: Mutex::new(newest.places.clone()),
        incoming: Mutex::new(newest.incoming.clone()),
        left: Mutex::new(vec![None; shape.members]),
        stored_places: Mutex::new(stored_places),
    });
    let mut engine = Engine::new(newest.map, shape.size(), shape.losses_max());
    let mut filled = Vec::new();
    for member in 0..shape.members {
        if engine.map().members[member].incoming.is_none() {
            continue;
        }
        let place = newest.incoming[member].ok_or("a member moves to nowhere")?;
        match SimulatedLink::connect(world, process, place, Some(term)).await {
            Ok(link) => filled.push((member, link)),
            Err(_) => drop(engine.abandon_move(member)),
        }
    }
    if world.state.lock().term != term || !process.is_alive() {
        return Err("another writer was faster".into());
    }
    let links = links.into_iter().enumerate().map(|(member, link)| (format!("member {member}").into(), link));
    let members = Members::writer(links.collect(), engine, environment.clone());
    for (member, link) in filled {
        members.attach(member, link);
    }
    let drive = Redundant::new(shape.arrays(), members).map_err(|error| error.to_string())?;
    drive.resync_in_background();
    Ok(Writer { process: process.clone(), term, drive: Arc::new(drive), environment, sealed: None })
}

impl Writer {
    /// The device that users write: the sealed one, or the drive.
    pub fn device(&self) -> &dyn Device {
        match &self.sealed {
            Some(sealed) => sealed,
            None => &*self.drive,
        }
    }

    /// Kills the process: nothing more leaves it.
    pub fn kill(self, world: &World) {
        self.process.alive.store(false, std::sync::atomic::Ordering::Relaxed);
        world.break_connections(|connection| connection.process == self.process.id);
    }

    /// Whether every member is in sync and there, none moves, and redundancy agrees with the data. The map alone does
    /// not tell: a loss is in it only once a write or a check of idle members has met it.
    pub fn is_complete(&self) -> bool {
        let (members, map) = (self.drive.members(), self.map());
        let places = self.environment.places.lock().clone();
        let is_there = |place: &Place| {
            self.environment.world.with_node(place.node, |node| node.up && node.instance == place.instance)
        };
        map.members_in_sync() == map.members.len()
            && members.moving().is_empty()
            && members.to_settle() == 0
            && (0..members.len()).all(|member| members.is_connected(member))
            && places.iter().all(is_there)
    }

    /// Returns once redundancy [is complete](Self::is_complete).
    pub async fn until_complete(&self, patience: Duration) -> bool {
        let complete = async {
            while !self.is_complete() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(patience, complete).await.is_ok()
    }

    /// Waits until a member is, or is no longer, stale.
    pub async fn until_stale(&self, member: usize, stale: bool) {
        while (self.map().members[member].state == MemberState::Stale) != stale {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn map(&self) -> Map {
        self.drive.members().map().unwrap()
    }

    /// Puts an empty node in the place of a stale member.
    pub async fn replace(&self, world: &Arc<World>, member: usize, node: usize) -> Result<(), String> {
        let place = Place { node, instance: world.with_node(node, |node| node.instance) };
        let link = SimulatedLink::connect(world, &self.process, place, Some(self.term)).await?;
        if self.map().members[member].state != MemberState::Stale {
            return Err("it is back".into());
        }
        let recorded = |_| self.environment.places.lock()[member] = place;
        self.drive.members().replace(member, link, recorded).await.map_err(|error| error.to_string())
    }
}

impl Writer {
    /// Begins to move a member to an empty node. With `pause`, the node is connected to only then.
    pub async fn begin_move(
        &self,
        world: &Arc<World>,
        member: usize,
        node: usize,
        pause: Duration,
    ) -> Result<Place, String> {
        let place = Place { node, instance: world.with_node(node, |node| node.instance) };
        let members = self.drive.members();
        let recorded = |_| self.environment.incoming.lock()[member] = Some(place);
        members.begin_move(member, recorded).await.map_err(|error| error.to_string())?;
        tokio::time::sleep(pause).await;
        match SimulatedLink::connect(world, &self.process, place, Some(self.term)).await {
            Ok(link) => drop(members.attach(member, link)),
            Err(_) => members.abandon_move(member).await.map_err(|error| error.to_string())?,
        }
        Ok(place)
    }

    /// Waits until a member moves no more. Returns whether it is at `place`, and readers elsewhere know that.
    pub async fn until_moved(&self, member: usize, place: Place) -> bool {
        while self.process.is_alive() && self.map().members[member].incoming.is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while self.process.is_alive() && self.drive.members().is_leaving(member) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.environment.places.lock()[member] == place
    }
}

/// A reader in another process.
pub struct Reader {
    pub drive: Arc<Redundant>,
    known: Stored,
    votes: Votes,
}

impl Reader {
    /// A reader that follows no map, of a drive that nobody writes.
    pub async fn open(world: &Arc<World>, process: &Arc<Process>, shape: &Shape) -> Result<Self, String> {
        Self::open_with(world, process, shape, None).await
    }

    /// A reader that follows the map until it is dropped.
    pub async fn open_following(
        world: &Arc<World>,
        process: &Arc<Process>,
        shape: &Shape,
    ) -> Result<FollowingReader, String> {
        let lease = ReadLease::new(false);
        let reader = Self::open_with(world, process, shape, Some(lease.clone())).await?;
        let drive = reader.drive;
        let (world, process) = (world.clone(), process.clone());
        let (members, mut known, votes) = (Arc::downgrade(drive.members()), reader.known, reader.votes);
        let task = tokio::spawn(async move {
            loop {
                lease.due().await;
                let begun = Instant::now();
                let found = newest(&world, &process, &known, votes).await;
                let Some(members) = members.upgrade() else { return };
                let (stored, decides) = found;
                follow(&world, &process, &members, &mut known, stored).await;
                match decides {
                    true => lease.confirmed(begun),
                    false => lease.failed("too few nodes answer"),
                }
            }
        });
        Ok(FollowingReader { drive, task })
    }

    async fn open_with(
        world: &Arc<World>,
        process: &Arc<Process>,
        shape: &Shape,
        lease: Option<Arc<ReadLease>>,
    ) -> Result<Self, String> {
        let file = world.state.lock().drive_file.clone().ok_or("there is no map")?;
        let known = newest(world, process, &file, shape.votes()).await.0;
        let links =
            join_all(known.places.iter().map(|place| SimulatedLink::connect(world, process, *place, None))).await;
        let links = links.into_iter().enumerate().map(|(member, link)| (format!("member {member}").into(), link.ok()));
        let members = match lease {
            Some(lease) => Members::leased_reader(links.collect(), &known.map, lease),
            None => Members::reader(links.collect(), &known.map),
        };
        let drive = Redundant::new(shape.arrays(), members).map_err(|error| error.to_string())?;
        Ok(Self { drive: Arc::new(drive), known, votes: shape.votes() })
    }
}

/// A reader that follows the map.
pub struct FollowingReader {
    pub drive: Arc<Redundant>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for FollowingReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Applies a map.
async fn follow(
    world: &Arc<World>,
    process: &Arc<Process>,
    members: &Arc<Members>,
    known: &mut Stored,
    stored: Stored,
) {
    let mut links = Vec::new();
    for (member, place) in stored.places.iter().enumerate() {
        let moved = *place != known.places[member];
        let is_in_sync = stored.map.members[member].state == MemberState::InSync;
        if moved || is_in_sync && !members.is_connected(member) {
            // Reads do not wait for a node that does not answer.
            let connected = SimulatedLink::connect(world, process, *place, None);
            let link = tokio::time::timeout(Duration::from_millis(50), connected).await;
            links.push((member, link.ok().and_then(Result::ok)));
        }
    }
    members.follow(&stored.map, links);
    *known = stored;
}

/// The newest map at enough nodes, and whether a newer one is impossible.
async fn newest(world: &Arc<World>, process: &Process, known: &Stored, votes: Votes) -> (Stored, bool) {
    let mut best = known.clone();
    loop {
        let asked = best.clone();
        // A place whose process has ended, or whose bytes were wiped, answers no more. It may have had the only newer map
        // that this reader could have found, so it does not count.
        let asks = asked.places.iter().map(|place| async move {
            match world.with_node(place.node, |node| node.instance) == place.instance {
                true => ask(world, process, place.node, 0, Request::GetMap).await,
                false => Err("it is another instance".to_owned()),
            }
        });
        let mut answers: FuturesUnordered<_> = asks.collect();
        let mut heard = 0;
        while let Some(answer) = answers.next().await {
            heard += usize::from(answer.is_ok());
            if let Ok(Reply::Map(Some(stored))) = answer
                && stored.map.epoch > best.map.epoch
            {
                best = *stored;
            }
            if votes.decide(heard, true) {
                break;
            }
        }
        // The drive file is available where it has a vote. Elsewhere it names nodes that took the places of others.
        if (votes.of_file() > 0 || !votes.decide(heard, true))
            && let Some(file) = world.state.lock().drive_file.clone()
            && file.map.epoch > best.map.epoch
        {
            best = *file;
        }
        if best.places == asked.places {
            return (best, votes.decide(heard, true));
        }
    }
}

/// How long a writer waits before it tries again to open the drive.
pub const OPEN_PAUSE: Duration = Duration::from_millis(300);
