//! What the room's machine keeps for the members: heads of custody logs and drive files. A member's side.

use std::sync::Arc;

use bytes::Bytes;
use cheetah_error::{Error, Fact, Result, next};
use cheetah_tls::{Credential, Expected, Role, RoomId};
use hyper::{Method, StatusCode};
use tokio::task::spawn_blocking;

use crate::connection::{Connection, Failed};
use crate::drives::{PART_LEN_MAX, Part};
use crate::heads::{HEADS_SENT_MAX, Heads, SentHead};
use crate::invitation::{Host, parse_host_port};
use crate::resolve::{Membership, own_room};
use crate::room::Room;
use crate::routes::{self, fill};
use crate::server::archive::ANY;
use crate::wire::DriveNames;

/// The archive of a room, as a member uses it.
#[derive(Debug, Clone)]
pub struct Archive {
    credential: Credential,
    /// The room, if this is its machine.
    own: Option<Arc<Room>>,
    /// The addresses of the room's machine.
    at: Vec<(Host, u16)>,
    name: String,
}

impl Archive {
    /// The archive of the room of this membership.
    pub fn of(membership: &Membership) -> Self {
        let credential = membership.credential.clone();
        let own = credential.room().and_then(|room| own_room(room).ok().flatten()).map(Arc::new);
        let at = membership.at.iter().filter_map(|place| parse_host_port(place)).collect();
        Self { credential, own, at, name: membership.room.clone() }
    }

    /// The room.
    pub fn room(&self) -> Option<RoomId> {
        self.credential.room()
    }

    /// The room's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The role of this member.
    pub fn role(&self) -> Option<Role> {
        self.credential.identity().map(|own| own.role)
    }

    /// Whether the room's machine has an address that is known here.
    pub fn is_reachable(&self) -> bool {
        self.own.is_some() || !self.at.is_empty()
    }

    /// Sends heads to the room's machine.
    ///
    /// # Errors
    ///
    /// If it does not answer, or refuses.
    pub async fn send_heads(&self, heads: Vec<SentHead>) -> Result<()> {
        if let Some(room) = &self.own {
            let own = self.credential.identity().map(|own| (own.name.clone(), own.key));
            let (name, key) = own.ok_or_else(|| Error::failed("the credential names no member"))?;
            return here(room, move |room| {
                heads.chunks(HEADS_SENT_MAX).try_for_each(|heads| room.keep_heads((&name, &key), heads))
            })
            .await;
        }
        for heads in heads.chunks(HEADS_SENT_MAX) {
            let sent = Heads { heads: heads.to_vec() };
            let connection = self.connect().await?;
            connection.send(Method::POST, routes::HEADS, &sent).await.map_err(Failed::into_error)?;
        }
        Ok(())
    }

    /// The heads that the room's machine has of the log with this id.
    ///
    /// # Errors
    ///
    /// If it does not answer, or refuses.
    pub async fn heads(&self, log: &str) -> Result<Vec<SentHead>> {
        if let Some(room) = &self.own {
            let log = log.to_owned();
            return here(room, move |room| room.heads(&log)).await;
        }
        let path = fill(routes::HEADS_OF_LOG, [log]);
        let answer: Heads = self.connect().await?.ask(Method::GET, &path, &()).await.map_err(Failed::into_error)?;
        Ok(answer.heads)
    }

    /// The names of the drives that the room hands out.
    ///
    /// # Errors
    ///
    /// If its machine does not answer, or refuses.
    pub async fn drives(&self) -> Result<Vec<String>> {
        if let Some(room) = &self.own {
            return here(room, Room::drive_names).await;
        }
        let answer: DriveNames =
            self.connect().await?.ask(Method::GET, routes::DRIVES, &()).await.map_err(Failed::into_error)?;
        Ok(answer.drives)
    }

    /// One of the files of a drive; `None` if the room has none.
    ///
    /// # Errors
    ///
    /// If its machine does not answer, or refuses.
    pub async fn part(&self, name: &str, part: Part) -> Result<Option<Vec<u8>>> {
        if let Some(room) = &self.own {
            let name = name.to_owned();
            return here(room, move |room| room.part(&name, part)).await;
        }
        let path = fill(routes::DRIVE_PART, [name, &part.to_string()]);
        let sent = self.connect().await?.send_bytes(Method::GET, &path, Bytes::new(), PART_LEN_MAX).await;
        found(sent).map(|found| found.map(Vec::from))
    }

    /// Gives the room one of the files of a drive, in place of an earlier one; `None` for one that the drive does not have.
    ///
    /// # Errors
    ///
    /// If its machine does not answer, or refuses: another drive has the name.
    pub async fn keep_part(&self, (name, id): (&str, &str), part: Part, content: Option<Vec<u8>>) -> Result<()> {
        if let Some(room) = &self.own {
            let (name, id) = (name.to_owned(), id.to_owned());
            return here(room, move |room| room.keep_part(&name, &id, part, content.as_deref())).await;
        }
        let path = fill(routes::DRIVE_PART_OF_ID, [name, &part.to_string(), id]);
        let method = if content.is_some() { Method::PUT } else { Method::DELETE };
        let body = content.unwrap_or_default().into();
        found(self.connect().await?.send_bytes(method, &path, body, PART_LEN_MAX).await).map(drop)
    }

    /// Has the room no longer hand out a drive: the one with this id, if one is given. Returns whether it did before.
    ///
    /// # Errors
    ///
    /// If its machine does not answer, or refuses.
    pub async fn forget(&self, name: &str, id: Option<&str>) -> Result<bool> {
        if let Some(room) = &self.own {
            let (name, id) = (name.to_owned(), id.map(str::to_owned));
            return here(room, move |room| room.forget_drive(&name, id.as_deref())).await;
        }
        let path = fill(routes::DRIVE_PART_OF_ID, [name, &Part::Drive.to_string(), id.unwrap_or(ANY)]);
        let sent = self.connect().await?.send_bytes(Method::DELETE, &path, Bytes::new(), PART_LEN_MAX).await;
        Ok(found(sent)?.is_some())
    }

    async fn connect(&self) -> Result<Connection> {
        let tls =
            self.credential.client(Expected::role(Role::Room)).map_err(|error| Error::failed(error.to_string()))?;
        Connection::open(&self.at, &tls).await.map_err(|failed| match failed {
            Failed::Broken(why) => {
                Error::node(Fact::Unreachable, format!("the machine of room {} does not answer ({why})", self.name))
                    .advise(why.steps().to_vec())
                    .next(next::Room::StartServing)
            }
            failed => failed.into_error(),
        })
    }
}

/// The answer; `None` for one that says that there is no such thing.
fn found(sent: std::result::Result<(StatusCode, Bytes), Failed>) -> Result<Option<Bytes>> {
    match sent {
        Ok((_, body)) => Ok(Some(body)),
        Err(Failed::Missing) => Ok(None),
        Err(failed) => Err(failed.into_error()),
    }
}

/// Runs `work`, which waits for the disk, on a blocking thread.
async fn here<T: Send + 'static>(
    room: &Arc<Room>,
    work: impl FnOnce(&Room) -> Result<T> + Send + 'static,
) -> Result<T> {
    let room = room.clone();
    spawn_blocking(move || work(&room))
        .await
        .map_err(|error| Error::failed(format!("the archive of the room: {error}")))?
}
