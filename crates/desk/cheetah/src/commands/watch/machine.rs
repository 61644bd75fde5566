//! One machine that is watched.

use std::time::Instant;

use cheetah_control::api::Status;
use cheetah_control::http::caller::words;
use cheetah_control::{ControlClient, ControlError};
use cheetah_drive::Session;
use cheetah_drive::status::NodeState;
use cheetah_error::Fact;
use cheetah_kit::clock::now_ms;
use cheetah_nbd::{Address, answering};
use futures::future::join_all;

use super::rate::Rate;
use super::targets::Target;
use crate::answers::watch::{Lends, Machine};

/// What a machine answered.
#[derive(Debug)]
pub enum Answer {
    /// A node, with its status.
    Node(Box<Status>),
    /// An agent.
    Agent,
    /// Nothing of use: what that says, and a sentence.
    None(NodeState, String),
}

/// Asks one machine, over connections that it keeps.
#[derive(Debug)]
pub struct Asker {
    clients: Vec<ControlClient>,
    nbd: Option<Address>,
    is_node: bool,
    /// The client that was answered last.
    last: usize,
    /// Whether it was answered the last time.
    answered: bool,
    session: Session,
}

impl Asker {
    /// Asks this machine, waiting as long as the session allows.
    pub fn new(target: &Target, session: &Session) -> Self {
        let client = |address: &String| {
            let client = ControlClient::new(address, session.credentials.acting_as());
            let client = client.with_timeout(session.timeout).keeping_connection();
            match target.expected {
                Some(expected) => client.expecting(expected),
                None => client,
            }
        };
        let clients = target.control.iter().map(client).collect();
        let (nbd, is_node, session) = (target.nbd.clone(), target.is_node, session.clone());
        Self { clients, nbd, is_node, last: 0, answered: false, session }
    }

    /// Asks it once: at the address that answered last, or else at all of them. If it has answered there just before, the others
    /// are tried the next time, so that a machine that is gone is noticed within one time limit.
    pub async fn ask(&mut self) -> Answer {
        if let (Some(address), true) = (&self.nbd, self.clients.is_empty()) {
            return match answering::check(address, self.session.timeout).await {
                Ok(()) => Answer::Agent,
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                    Answer::None(NodeState::Silent, error.to_string())
                }
                Err(error) => {
                    let fact = error.raw_os_error().map_or(Fact::Unreachable, Fact::of_errno);
                    Answer::None(fact.into(), error.to_string())
                }
            };
        }
        let first = match self.clients.get(self.last) {
            Some(client) => ask_at(client, self.is_node).await,
            None => return Answer::None(NodeState::Unreachable, "no address is known".to_owned()),
        };
        let answered_before = std::mem::replace(&mut self.answered, !matches!(first, Answer::None(..)));
        if answered_before || self.answered || self.clients.len() == 1 {
            return first;
        }
        let answers = join_all(self.clients.iter().map(|client| ask_at(client, self.is_node))).await;
        match answers.into_iter().enumerate().find(|(_, answer)| !matches!(answer, Answer::None(..))) {
            Some((index, answer)) => {
                (self.last, self.answered) = (index, true);
                answer
            }
            None => first,
        }
    }
}

async fn ask_at(client: &ControlClient, is_node: bool) -> Answer {
    let none = |error: ControlError| {
        let state = error.fact().map_or(NodeState::Unreachable, NodeState::from);
        Answer::None(state, cheetah_words::with(&error, error.steps()))
    };
    match is_node {
        true => client.status().await.map_or_else(none, |status| Answer::Node(Box::new(status))),
        false => client.identity().await.map_or_else(none, |_| Answer::Agent),
    }
}

/// A machine, and what was seen of it.
#[derive(Debug)]
pub struct WatchedMachine {
    /// The machine.
    pub target: Target,
    /// Until it was asked for the first time.
    answer: Option<Machine>,
    instance: Option<String>,
    restarts: u32,
    last_seen_ms: Option<u64>,
    read: Rate,
}

impl WatchedMachine {
    /// A machine that was not asked yet.
    pub fn new(target: Target) -> Self {
        Self { target, answer: None, instance: None, restarts: 0, last_seen_ms: None, read: Rate::default() }
    }

    /// What is known of it; `None` until it was asked.
    pub fn shown(&self) -> Option<Machine> {
        self.answer.clone()
    }

    /// The rate at which clients read from it, while it is known.
    pub fn read_bytes_per_s(&self) -> Option<u64> {
        self.answer.as_ref()?.lends.as_ref()?.read_bytes_per_s
    }

    /// Notes an answer. Returns whether its state is another than before.
    pub fn note(&mut self, answer: Answer) -> bool {
        let before = self.answer.as_ref().map(|machine| machine.state);
        let (mut state, mut problem, mut lends) = (NodeState::Ok, None, None);
        let mut name = self.target.name.clone();
        match answer {
            Answer::None(fact, why) => (state, problem) = (fact, Some(why)),
            Answer::Agent => {}
            Answer::Node(status) => {
                if self.instance.as_ref().is_some_and(|known| *known != status.instance) {
                    self.restarts = self.restarts.saturating_add(1);
                    self.read = Rate::default();
                }
                self.instance = Some(status.instance.clone());
                // A node that was named by its address says what it is called.
                let own = words(&status.name);
                if self.target.expected.is_none() && !own.is_empty() && !name.starts_with(&own) {
                    name = format!("{own} ({name})");
                }
                lends = Some(self.lends(*status));
            }
        }
        if problem.is_none() {
            self.last_seen_ms = Some(now_ms());
        }
        self.answer = Some(Machine {
            address: self.target.address(),
            last_seen_ms: self.last_seen_ms,
            lends,
            name,
            problem,
            restarts: self.restarts,
            role: if self.target.is_node { "node" } else { "agent" },
            state,
        });
        before.is_some_and(|before| before != state)
    }

    fn lends(&mut self, status: Status) -> Lends {
        let read_bytes = status.exports.iter().fold(0, |sum: u64, export| sum.saturating_add(export.read_bytes));
        let memory = status.memory;
        Lends {
            boot_image: status.boot_image,
            disks_visible: status.disks_visible,
            draining: status.draining.is_some(),
            dropped: status.dropped,
            exports: status.exports.len(),
            free_bytes: memory.free_bytes,
            lent_bytes: memory.lent_bytes,
            locked: memory.locked,
            read_bytes_per_s: self.read.note(Instant::now(), read_bytes),
            uptime_s: status.uptime_s,
            used_bytes: memory.used_bytes,
            version: words(&status.version),
            wiped_bytes: memory.wiped_bytes,
        }
    }
}
