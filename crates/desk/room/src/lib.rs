//! A room: the machines that trust one examiner's key, and how a machine joins them.
//!
//! The machine where the room was made has its key (`room`), which signs the certificate of each member (`authority`). A
//! member has a role and proves it at every connection (crate `cheetah-tls`). A machine becomes a member
//!
//! * with an **invitation** ([`Invitation`]): one string with the room's addresses, the fingerprint of its key, and a token;
//! * without one, by a **code** that both machines show ([`pending`]); [`announce`] finds the room;
//! * with a **credential** made in advance and carried to it.
//!
//! [`client`] and [`server`] exchange messages ([`wire`]); [`Register`] decides who is admitted, without I/O;
//! [`directory`] keeps keys from others; [`resolve`] turns the name of a room into a credential; [`upkeep`] keeps a member's list
//! of revoked members current.
//!
//! # Attacks, and what stops them
//!
//! | attack | what stops it |
//! |---|---|
//! | another machine answers at the address of an invitation | the handshake fails unless the server has a certificate by the key whose fingerprint is in the string; until then nothing but a ClientHello is sent |
//! | a member (a node, even another examiner) poses as the enrolment server to collect tokens | the server's certificate must have the role `room`, which is made for each run of the server, by the room's key, and never given to a member |
//! | a captured enrolment is replayed | TLS; no early data |
//! | the answer is lost, or a machine dies, after a use was counted | the use and the member are one atomic write, and the machine asks again with the same key: it gets its certificate, and no second use is counted |
//! | a token is used more often than invited by many requests at once | the register is changed under a lock, on stable storage before the answer |
//! | a revoked member joins again, since it knows the string | revoking closes the invitation that admitted it; its key is refused for good |
//! | a member takes the name of another | names are unique and given by the room; that of a revoked member is not given away |
//! | a member claims the address of another, to pose as it towards tools that check host names | a certificate has the address that the machine called from, and others only if no member has them |
//! | a member asks for another role | the role is the invitation's, or what the examiner approved; a key has one role |
//! | a certificate for a key that the machine does not have | the request is signed with it |
//! | a man in the middle while a code is compared | it must commit itself before it knows the code; attempts are limited, finished or not ([`pending`]) |
//! | an old list of revoked certificates | lists are numbered, and none replaces a newer one |
//! | another user reads a key, or replaces a file by a link | owner-only rights, checked at each use; nothing is followed ([`directory`]) |
//! | callers that occupy the enrolment server | seconds a connection, some KiB a request; the oldest connection makes way |
//!
//! An invitation on a command line can be read by other users of that machine while the command runs (`/proc`); a file
//! with the string cannot.

#![forbid(unsafe_code)]

pub mod announce;
pub mod archive;
pub mod authority;
pub mod client;
mod connection;
pub mod credential_file;
pub mod credentials;
pub mod directory;
pub mod drives;
pub mod heads;
pub mod invitation;
pub mod key;
pub mod machine;
mod os;
pub mod pending;
pub mod register;
pub mod resolve;
pub mod room;
pub mod routes;
pub mod server;
pub mod upkeep;
pub mod wire;

pub use cheetah_tls::Fingerprint;
pub use invitation::{Host, Invitation, Token};
pub use key::{PrivateKey, PublicKey};
pub use register::{Admission, Member, Register};
pub use room::{Room, Serving};
