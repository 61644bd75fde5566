//! Processes that use the drive: writers, which hold the lease, and readers elsewhere, which follow the map.

use std::sync::Arc;
use std::time::Duration;

use cheetah_redundancy::geometry::ArrayGeometry;
use cheetah_redundancy::map::Regions;
use cheetah_redundancy::{
    ArrayPlace, DynLink, Engine, Environment, Map, MemberState, Members, NotStored, Redundancy, Redundant,
};
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;

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
        Box::new(Stored { map, places: (0..self.members).map(place).collect() })
    }
}

/// A writer that has the drive open.
pub struct Writer {
    pub process: Arc<Process>,
    pub term: u64,
    pub drive: Redundant,
    pub environment: Arc<SimulatedEnvironment>,
}

pub struct SimulatedEnvironment {
    world: Arc<World>,
    process: Arc<Process>,
    term: u64,
    losses_max: usize,
    pub places: Mutex<Vec<Place>>,
}

impl SimulatedEnvironment {
    async fn store_stored(&self, stored: Box<Stored>) -> Result<(), NotStored> {
        while self.world.state.lock().maps_held {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let map = &stored.map;
        let in_sync: Vec<usize> =
            (0..map.members.len()).filter(|member| map.members[*member].state == MemberState::InSync).collect();
        // So many losses the drive still survives.
        let left = (in_sync.len() + self.losses_max).saturating_sub(map.members.len());
        let puts = (0..map.members.len()).map(|member| {
            let request = Request::PutMap(stored.clone());
            let place = stored.places[member];
            async move {
                if self.world.with_node(place.node, |node| node.instance) != place.instance {
                    return Err("it is another instance".to_owned());
                }
                ask(&self.world, &self.process, place.node, self.term, request).await
            }
        });
        let answers = join_all(puts).await;
        let copies = in_sync.iter().filter(|member| answers[**member].is_ok()).count();
        if copies < left + 1 {
            let members = in_sync.into_iter().filter(|member| answers[*member].is_err()).collect();
            let why = answers.iter().filter_map(|answer| answer.as_ref().err()).next().cloned().unwrap_or_default();
            return Err(NotStored { why: format!("{copies} copies of the map, {} needed: {why}", left + 1), members });
        }
        let mut state = self.world.state.lock();
        if !self.process.is_alive() || state.term != self.term {
            return Err("another writer has the drive".to_owned().into());
        }
        state.drive_file = Some(stored);
        Ok(())
    }
}

impl Environment for SimulatedEnvironment {
    fn store(&self, map: Map) -> BoxFuture<'_, Result<(), NotStored>> {
        let places = self.places.lock().clone();
        Box::pin(self.store_stored(Box::new(Stored { map, places })))
    }

    fn reconnect(&self, member: usize) -> BoxFuture<'_, Result<DynLink, String>> {
        Box::pin(async move {
            let place = self.places.lock()[member];
            // The former connections of this process end first: they would cut off the new one to send again.
            self.process.forget(place.node);
            SimulatedLink::connect(&self.world, &self.process, place, Some(self.term)).await
        })
    }
}

/// Opens the drive for writing: takes the lease at the nodes, then follows the newest map.
pub async fn open(world: &Arc<World>, process: &Arc<Process>, shape: &Shape) -> Result<Writer, String> {
    let (term, nodes, drive_file) = {
        let mut state = world.state.lock();
        state.term += 1;
        (state.term, state.nodes.len(), state.drive_file.clone())
    };
    let answers = join_all((0..nodes).map(|node| ask(world, process, node, term, Request::Lease))).await;
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
    let environment = Arc::new(SimulatedEnvironment {
        world: world.clone(),
        process: process.clone(),
        term,
        losses_max: shape.losses_max(),
        places: Mutex::new(newest.places.clone()),
    });
    let engine = Engine::new(newest.map, shape.size(), shape.losses_max());
    let links = links.into_iter().enumerate().map(|(member, link)| (format!("member {member}").into(), link));
    let members = Members::writer(links.collect(), engine, environment.clone());
    let drive = Redundant::new(shape.arrays(), members).map_err(|error| error.to_string())?;
    drive.resync_in_background();
    Ok(Writer { process: process.clone(), term, drive, environment })
}

impl Writer {
    /// The process is killed: nothing more leaves it.
    pub fn kill(self, world: &World) {
        self.process.alive.store(false, std::sync::atomic::Ordering::Relaxed);
        world.break_connections(|connection| connection.process == self.process.id);
    }

    /// Returns once every member is in sync, and redundancy agrees with the data.
    pub async fn until_complete(&self, patience: Duration) -> bool {
        let complete = async {
            while self.map().members_in_sync() < self.map().members.len() || self.drive.members().to_settle() > 0 {
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
        let Reply::Lease { instance, .. } = ask(world, &self.process, node, self.term, Request::Lease).await? else {
            return Err("a strange answer".into());
        };
        let place = Place { node, instance };
        let link = SimulatedLink::connect(world, &self.process, place, Some(self.term)).await?;
        if self.map().members[member].state != MemberState::Stale {
            return Err("it is back".into());
        }
        self.environment.places.lock()[member] = place;
        self.drive.replace(member, link).await.map_err(|error| error.to_string())
    }
}

/// A reader elsewhere.
pub struct Reader {
    pub process: Arc<Process>,
    pub drive: Redundant,
    known: Stored,
}

impl Reader {
    pub async fn open(world: &Arc<World>, process: &Arc<Process>, shape: &Shape) -> Result<Self, String> {
        let known = newest(world, process, None).await.ok_or("there is no map")?.0;
        let links =
            join_all(known.places.iter().map(|place| SimulatedLink::connect(world, process, *place, None))).await;
        let links = links.into_iter().enumerate().map(|(member, link)| (format!("member {member}").into(), link.ok()));
        let members = Members::reader(links.collect(), &known.map);
        let drive = Redundant::new(shape.arrays(), members).map_err(|error| error.to_string())?;
        Ok(Self { process: process.clone(), drive, known })
    }

    /// Follows the map. Returns whether it is surely the newest.
    pub async fn follow(&mut self, world: &Arc<World>) -> bool {
        let Some((stored, confirmed)) = newest(world, &self.process, Some(&self.known)).await else { return false };
        let members = self.drive.members().clone();
        let mut links = Vec::new();
        for (member, place) in stored.places.iter().enumerate() {
            if *place != self.known.places[member] || !members.is_connected(member) {
                let link = SimulatedLink::connect(world, &self.process, *place, None).await.ok();
                links.push((member, link));
            }
        }
        members.follow(&stored.map, links);
        self.known = stored;
        confirmed
    }
}

/// The newest map that the nodes have, and whether every member in sync in it was heard.
async fn newest(world: &Arc<World>, process: &Process, known: Option<&Stored>) -> Option<(Stored, bool)> {
    let nodes = world.state.lock().nodes.len();
    let answers = join_all((0..nodes).map(|node| ask(world, process, node, 0, Request::GetMap))).await;
    let instances: Vec<u64> = world.state.lock().nodes.iter().map(|node| node.instance).collect();
    let maps = answers.iter().flatten().filter_map(|answer| match answer {
        Reply::Map(Some(stored)) => Some(&**stored),
        _ => None,
    });
    let drive_file = world.state.lock().drive_file.clone();
    let file = if known.is_none() { drive_file.as_deref() } else { None };
    let newest = maps.chain(known).chain(file).max_by_key(|stored| stored.map.epoch)?.clone();
    let heard = |member: usize| {
        let place = newest.places[member];
        answers[place.node].is_ok() && instances[place.node] == place.instance
    };
    let in_sync = |member: &usize| newest.map.members[*member].state == MemberState::InSync;
    let confirmed = (0..newest.map.members.len()).filter(in_sync).all(heard);
    Some((newest, confirmed))
}

/// How long a writer waits before it tries again to open the drive.
pub const OPEN_PAUSE: Duration = Duration::from_millis(300);
