//! A node: its content, its map, the lease under which it accepts writes, and its faults.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, Error};
use cheetah_redundancy::Map;
use tokio::sync::Notify;

pub const PAGE: u64 = 4096;

/// The place of a member: a node, and the instance of the node that holds the member's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub node: usize,
    pub instance: u64,
}

/// A map as it is stored, with the places of the members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub map: Map,
    pub places: Vec<Place>,
    /// The places that moving members move to.
    pub incoming: Vec<Option<Place>>,
    /// The places in the map that was stored before, where members have other ones now.
    pub former: Vec<Option<Place>>,
}

#[derive(Debug, Clone)]
pub enum Request {
    Read(ByteRange),
    Write(u64, Data),
    Flush,
    PutMap(Box<Stored>),
    GetMap,
    /// Takes the lease, or renews it. Requests sent before under this lease are refused from then on. If
    /// an instance is named, others refuse: a lease belongs to one export.
    Lease(Option<u64>),
}

#[derive(Debug)]
pub enum Reply {
    Data(Bytes),
    Done,
    Map(Option<Box<Stored>>),
    Lease { session: u64, stored: Option<Box<Stored>> },
    Failed(Error),
}

/// The lease under which a message was sent: the writer's term, and the session of its connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lease {
    pub term: u64,
    pub session: u64,
}

#[derive(Default)]
pub struct Node {
    pub up: bool,
    pub instance: u64,
    /// The process is stopped; messages wait.
    pub frozen: bool,
    /// Messages in both directions wait in the network.
    pub isolated: bool,
    /// Its machine needs the memory: it takes no new part.
    pub pressed: bool,
    /// The number of next maps that it refuses.
    pub refuse_maps: u32,
    /// Its next write fails, as if its connection had been lost.
    pub refuses_writes: bool,
    /// The number of writes after which it dies.
    pub dies_after_writes: Option<u32>,
    pub content: Vec<u8>,
    /// Pages whose digest does not match.
    pub damaged: BTreeSet<u64>,
    pub map: Option<Box<Stored>>,
    pub lease: Lease,
    pub wake: Arc<Notify>,
    /// The numbers of reads and writes answered.
    pub reads: u64,
    pub writes: u64,
}

impl Node {
    pub fn new(instance: u64, size: u64) -> Self {
        Self { up: true, instance, content: vec![0; size as usize], ..Self::default() }
    }

    /// Loses everything, and stays down until [`restart`](Self::restart).
    pub fn kill(&mut self) {
        self.up = false;
        self.frozen = false;
        self.damaged.clear();
        self.map = None;
        self.content.fill(0);
        self.lease = Lease::default();
        self.dies_after_writes = None;
        self.wake.notify_waiters();
    }

    /// Comes back empty.
    pub fn restart(&mut self, instance: u64) {
        self.up = true;
        self.instance = instance;
    }

    fn pages(range: ByteRange) -> std::ops::Range<u64> {
        range.offset / PAGE..range.end().div_ceil(PAGE)
    }

    fn eio(what: &str) -> Reply {
        Reply::Failed(Error::Io { context: what.into(), why: "page digest".into(), errno: cheetah_device::error::EIO })
    }

    /// Answers one request; `None` if the request is for another instance, or if the node dies of it.
    pub fn handle(&mut self, instance: Option<u64>, lease: Lease, request: Request) -> Option<Reply> {
        if !self.up || instance.is_some_and(|meant| meant != self.instance) {
            return None;
        }
        match &request {
            Request::Read(_) => self.reads += 1,
            Request::Write(..) => self.writes += 1,
            _ => {}
        }
        Some(match request {
            Request::Read(range) => {
                if self.damaged.range(Self::pages(range)).next().is_some() {
                    return Some(Self::eio("reading"));
                }
                Reply::Data(Bytes::copy_from_slice(&self.content[range.offset as usize..range.end() as usize]))
            }
            Request::Write(..) if lease.term < self.lease.term => Reply::Failed(Error::Fenced("a newer lease".into())),
            // The connection was cut off by a newer one.
            Request::Write(..) if lease != self.lease => return None,
            Request::Write(..) if self.refuses_writes => {
                Reply::Failed(Error::Io { context: "writing".into(), why: "a fault".into(), errno: 28 })
            }
            Request::Write(offset, data) => {
                let range = ByteRange::new(offset, data.len());
                let whole = |page: u64| range.contains(ByteRange::new(page * PAGE, PAGE));
                if self.damaged.range(Self::pages(range)).any(|page| !whole(*page)) {
                    return Some(Self::eio("writing"));
                }
                if let Some(left) = &mut self.dies_after_writes {
                    if *left == 0 {
                        self.kill();
                        return None;
                    }
                    *left -= 1;
                }
                self.damaged.retain(|page| !Self::pages(range).contains(page));
                data.copy_to(&mut self.content[range.offset as usize..range.end() as usize]);
                Reply::Done
            }
            Request::Flush => Reply::Done,
            Request::PutMap(_) if lease.term < self.lease.term => Reply::Failed(Error::Fenced("a newer lease".into())),
            Request::PutMap(stored) => {
                if self.refuse_maps > 0 {
                    self.refuse_maps -= 1;
                    return Some(Reply::Failed(Error::NoSpace("no room for the map".into())));
                }
                match &self.map {
                    Some(own) if own.map.epoch >= stored.map.epoch && *own != stored => {
                        Reply::Failed(Error::Fenced("a newer map".into()))
                    }
                    _ => {
                        self.map = Some(stored);
                        Reply::Done
                    }
                }
            }
            Request::GetMap => Reply::Map(self.map.clone()),
            Request::Lease(Some(meant)) if meant != self.instance => {
                Reply::Failed(Error::Invalid("it is another instance".into()))
            }
            Request::Lease(_) if lease.term < self.lease.term => Reply::Failed(Error::Fenced("a newer lease".into())),
            Request::Lease(_) => {
                self.lease = Lease { term: lease.term, session: self.lease.session + 1 };
                Reply::Lease { session: self.lease.session, stored: self.map.clone() }
            }
        })
    }
}
