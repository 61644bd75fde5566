//! The order for an acquisition, and its progress: data that the reader, the engine, the sinks, the journal and the report
//! use, and that know nothing of them.

mod destination;
mod distinct;
mod event;
mod request;

pub use destination::{Destination, Form};
pub use distinct::check as check_distinct;
pub use event::{AcquireEvent, Progress};
pub use request::{CHECKPOINT_BYTES_DEFAULT, ErrorsMax, Opener, Request};
