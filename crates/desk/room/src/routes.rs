//! The paths of a room's machine, each written once for its server and its clients. [`fill`] gives them their values.
//!
//! The bodies are JSON over TLS, of types in [`wire`](crate::wire), or files.

pub use cheetah_control::routes::fill;

/// `POST` [`Enrol`](crate::wire::Enrol): [`Enrolled`](crate::wire::Enrolled).
pub const ENROL: &str = "/v1/enrol";
/// `POST` [`Begin`](crate::wire::Begin): [`Begun`](crate::wire::Begun).
pub const PENDING: &str = "/v1/pending";
/// `PUT` [`Reveal`](crate::wire::Reveal): 204. `GET`: 202 while the machine waits, then
/// [`Enrolled`](crate::wire::Enrolled).
pub const PENDING_ONE: &str = "/v1/pending/{id}";
/// `POST` [`CheckIn`](crate::wire::CheckIn), of a member: [`CheckedIn`](crate::wire::CheckedIn).
pub const SERVERS: &str = "/v1/servers";
/// `POST` [`Heads`](crate::heads::Heads), of an examiner or analyst: 204.
pub const HEADS: &str = "/v1/heads";
/// `GET`, of an examiner or analyst: [`Heads`](crate::heads::Heads).
pub const HEADS_OF_LOG: &str = "/v1/heads/{log}";
/// `GET`, of an examiner or analyst: [`DriveNames`](crate::wire::DriveNames).
pub const DRIVES: &str = "/v1/drives";
/// `GET`, of an examiner or analyst: the file, or 404.
pub const DRIVE_PART: &str = "/v1/drives/{name}/{part}";
/// `PUT`, of an examiner: 204. `DELETE`, of an examiner: 204, or 404; the part `drive` is the whole drive, and the id
/// `any` is any.
pub const DRIVE_PART_OF_ID: &str = "/v1/drives/{name}/{part}/{id}";
