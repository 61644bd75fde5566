//! One pass over a source: chunks go to the hashes and to every sink, and checkpoints that are durable in all
//! sinks go to the journal.
//!
//! | part | content |
//! |---|---|
//! | [`Pass`] | the pass itself, from where the journal stands to the end, or to where it is stopped |
//! | [`sink_queues`](SinkQueues) | a task and a queue for each sink, so that all of them work at once |
//! | `checkpoint` | when a checkpoint is due, and the one in progress |
//! | [`Look`] | what is in doubt about a source, looked for while it is read |
//! | `eta_meter` | rate and remaining time (no I/O) |
//! | `readback` | reading back a sink's content |
//! | [`SourceFiles`] | hashes of the files that the source is read from |
//! | `disks` | the disks that a volume lies on, each of them compared |
//! | [`recognise()`](recognise::recognise) | whether a source that is opened again is the same |

mod checkpoint;
mod disks;
mod eta_meter;
mod look;
mod pass;
mod readback;
mod recognise;
mod sink_queues;
mod source_files;
mod unrecognised;

pub use checkpoint::Checkpoints;
pub use disks::{compare as compare_disks, examine as examine_disks};
pub use eta_meter::EtaMeter;
pub use look::Look;
pub use pass::{Damage, Pass, PassEnd, StopSignal, Tally, recognise_first, too_many, unacquirable};
pub use readback::{Replay, read_back};
pub use sink_queues::SinkQueues;
pub use source_files::{SourceFiles, watch, watch_all};
