//! The upkeep of a membership, beside the work of a process: it keeps the list of revoked certificates current, and
//! reports the address of this process's server to the room.
//!
//! A list comes from the room itself on its machine, from the file of the credential, which processes on a machine
//! share, or from the room's enrolment server, if that runs. Examiners send it, too. A list that one process receives
//! reaches the others by the file.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cheetah_error::{Error, Result};
use cheetah_tls::{Credential, TlsError};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use crate::client::check_in;
use crate::credential_file::der_of_list;
use crate::credentials::Credentials;
use crate::machine::own_addresses;
use crate::resolve::{Membership, own_room};
use crate::wire::ServerAt;
use crate::{Host, Room};

/// How often files are looked at.
const FILE_PAUSE: Duration = Duration::from_secs(2);
/// How often the room is asked.
const ROOM_PAUSE: Duration = Duration::from_secs(30);
/// How long the end of a server may be held up by reporting it.
const ENDED_TIMEOUT: Duration = Duration::from_secs(2);

/// The upkeep of a membership. It ends with the runtime, not with this value.
pub struct Upkeep(Arc<Inner>);

struct Inner {
    credential: Credential,
    /// The file of the credential, which this process may write.
    file: Option<PathBuf>,
    /// The room, if this is its machine.
    own: Option<Arc<Room>>,
    /// The addresses of the enrolment server, as `host:port`.
    at: Vec<String>,
    server: watch::Sender<Option<ServerAt>>,
    /// The room's list that was taken last.
    seen: Mutex<Vec<u8>>,
}

/// Begins the upkeep of a membership of this process, as a task of the runtime that this is called in. It ends with the
/// runtime.
pub fn start(membership: &Membership) -> Upkeep {
    let credential = membership.credential.clone();
    let own = credential.room().and_then(|room| own_room(room).ok().flatten()).map(Arc::new);
    let (file, at) = (membership.file.clone(), membership.at.clone());
    let inner = Inner { credential, file, own, at, server: watch::Sender::new(None), seen: Mutex::default() };
    let inner = Arc::new(inner);
    tokio::spawn(inner.clone().run());
    Upkeep(inner)
}

/// A server of this machine that listens at an address.
pub fn server_at(name: String, nbd: SocketAddr, control_port: Option<u16>) -> ServerAt {
    let addresses = match nbd.ip() {
        any if any.is_unspecified() => {
            let own = own_addresses().into_iter().filter_map(|host| match host {
                Host::Ip(address) => Some(address),
                Host::Name(_) => None,
            });
            own.chain([Ipv4Addr::LOCALHOST.into()]).collect()
        }
        one => vec![one],
    };
    ServerAt { name, addresses, nbd_port: nbd.port(), control_port }
}

impl Upkeep {
    /// Reports the address of this process's server to the room, now and whenever the room can be reached.
    pub fn report_server(&self, server: ServerAt) {
        self.0.server.send_replace(Some(server));
    }

    /// Reports to the room that this process no longer serves.
    pub async fn server_ended(&self) {
        let Some(server) = self.0.server.send_replace(None) else { return };
        if let Ok(Err(error)) = timeout(ENDED_TIMEOUT, self.0.tell(Some(server), true)).await {
            tracing::debug!("the room does not know that this server has ended: {error}");
        }
    }
}

impl Inner {
    async fn run(self: Arc<Self>) {
        let mut server = self.server.subscribe();
        let mut said = String::new();
        let mut ask_at = Instant::now();
        loop {
            let files = self.clone();
            let read = blocking(move || files.read_files()).await.flatten();
            let mut failed = read.err().map(|error| error.to_string());
            if Instant::now() >= ask_at {
                let here = server.borrow_and_update().clone();
                failed = self.tell(here, false).await.err().map(|error| error.to_string()).or(failed);
                ask_at = Instant::now() + ROOM_PAUSE;
            }
            if let Some(why) = failed.filter(|why| *why != said) {
                tracing::info!("upkeep of the room: {why}");
                said = why;
            }
            tokio::select! {
                () = sleep(FILE_PAUSE) => {}
                Ok(()) = server.changed() => ask_at = Instant::now(),
            }
        }
    }

    /// Reads the list from the room on this machine and from the credential's file, and writes a newer one into the
    /// file.
    fn read_files(&self) -> Result<()> {
        if let Some(room) = &self.own {
            let list = room.revocations_kept()?.into_bytes();
            let mut seen = self.seen.lock();
            if list != *seen {
                self.take(&der_of_list(&list)?);
                *seen = list;
            }
        }
        let Some(file) = &self.file else { return Ok(()) };
        let credentials = Credentials::open()?;
        let kept = credentials.revocations(file)?.unwrap_or_default();
        let known = self.credential.revocations().unwrap_or_default();
        if kept == known {
            return Ok(());
        }
        if !kept.is_empty() {
            self.take(&kept);
        }
        match self.credential.revocations() {
            Some(list) if list != kept => credentials.put_revocations(file, &list),
            _ => Ok(()),
        }
    }

    fn take(&self, list: &[u8]) {
        match self.credential.replace_revocations(list) {
            Ok(()) | Err(TlsError::OldRevocations) => {}
            Err(error) => tracing::warn!("a list of revoked certificates is not used: {error}"),
        }
    }

    /// Reports this process's server to the room, and receives its list.
    async fn tell(&self, server: Option<ServerAt>, ended: bool) -> Result<()> {
        let (Some(identity), own) = (self.credential.identity(), &self.own) else { return Ok(()) };
        if let Some(room) = own.clone() {
            let Some(server) = server else { return Ok(()) };
            let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let (key, server) = (identity.key, Some(server.known_to(here)));
            return blocking(move || room.check_in(&key, server, ended)).await?;
        }
        if self.at.is_empty() {
            return Ok(());
        }
        let list = check_in(&self.credential, &self.at, server, ended).await?;
        self.take(&list);
        Ok(())
    }
}

/// Runs file operations beside the runtime. A task inside `block_in_place` goes on while the runtime shuts down, where
/// a timer panics.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.map_err(|error| Error::failed(format!("upkeep of the room: {error}")))
}
