//! The times of leases, looks and waits, and the relations between these times. That two writers never write, and that a
//! process which waits for another one does not give up too early, rests on the relations, so they are asserted. Those of
//! reads and writes are in [`cheetah_redundancy::timing`].

use std::time::Duration;

use cheetah_redundancy::timing::{PROBE_PAUSE_MAX, READ_LEASE_END};

/// The lifetime of a lease that is not renewed, in seconds: the time for which a dead writer blocks others.
pub(crate) const TTL_S: u64 = 30;
/// The interval of renewals.
pub(crate) const RENEWAL_S: u64 = TTL_S / 3;
/// How long a node may take to renew a lease.
pub(crate) const RENEW_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the leases of a round of renewals are relied on, from its beginning.
pub(crate) const RELIED_ON: Duration = Duration::from_secs(TTL_S - 5);
/// The pause after a failed round, at least; and at most, if no request waits.
pub(crate) const FAILED_PAUSE: Duration = Duration::from_millis(300);
/// See [`FAILED_PAUSE`].
pub(crate) const FAILED_PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long asking whether a node's process has ended may take.
pub(crate) const ENDED_TIMEOUT: Duration = Duration::from_millis(250);

/// How long a closing drive waits for a lost node without progress.
pub(crate) const REGAIN_PATIENCE: Duration = Duration::from_secs(3);

/// How long a node keeps an export whose creator is killed before it is recorded, in seconds.
pub(crate) const CONFIRM_S: u64 = 60;
/// The interval at which nodes are asked to go on waiting.
pub(crate) const CONFIRM_AGAIN: Duration = Duration::from_secs(CONFIRM_S / 4);

/// The interval at which a writer looks after its drive: at the members, for requests, and at nodes that are about to
/// leave.
pub(crate) const UPKEEP_LOOK: Duration = Duration::from_secs(1);
/// The pause before a writer tries a failed replacement again, or asks former nodes again to wipe their parts.
pub(crate) const UPKEEP_RETRY: Duration = Duration::from_secs(10);
/// The pause before a part that could not be moved is tried again.
pub(crate) const MOVE_RETRY: Duration = Duration::from_secs(5);
/// How long a node that may take a part may take to return its free memory.
pub(crate) const TARGET_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a node may take to store or return a note.
pub(crate) const NOTE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the nodes may take no message.
pub(crate) const LEAVE_WAIT: Duration = Duration::from_secs(30);
/// The longest wait of `repair` for the writer to notice a loss.
pub(crate) const NOTICE_WAIT: Duration = Duration::from_secs(20);
/// The longest wait of `repair` for the writer's answer. The writer may be frozen.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(120);
/// How long the writer of an export may say nothing to `drain` where nothing shows whether it moves parts.
pub(crate) const DRAIN_WORD_WAIT: Duration = Duration::from_secs(60);
/// How long a writer's lease may have ended before the writer counts as gone: it takes it again if it was only slow.
pub(crate) const LEASE_WAIT: Duration = Duration::from_secs(2 * TTL_S);
/// The longest wait of `rebalance` for word from another process that has the drive open for writing.
pub(crate) const MOVE_WORD_WAIT: Duration = Duration::from_secs(120);
/// How long a part may not move for reasons that a busy machine may have, too.
pub(crate) const DOUBT_WAIT: Duration = Duration::from_secs(60);
/// How long a node that a part has left may take to wipe it.
pub(crate) const WIPE_WAIT: Duration = Duration::from_secs(120);

/// How often a writer has looked, or tried again, before another process gives it up: its machine may be busy.
const TRIES: u128 = 5;

const _: () = {
    let renewal_ms = RENEWAL_S as u128 * 1000;
    // One renewal may be lost without losing the drive.
    assert!(2 * RENEWAL_S < TTL_S);
    // Clocks run at slightly different rates, by far less than a tenth.
    assert!(11 * RELIED_ON.as_millis() <= 10 * TTL_S as u128 * 1000);
    // While leases are relied on, a round may fail and be repeated.
    assert!(renewal_ms + 2 * RENEW_TIMEOUT.as_millis() + FAILED_PAUSE_MAX.as_millis() < RELIED_ON.as_millis());
    assert!(FAILED_PAUSE.as_millis() < FAILED_PAUSE_MAX.as_millis());
    // A write waits for the end of readers' leases, unless it is known sooner that a process has ended.
    assert!(ENDED_TIMEOUT.as_micros() < READ_LEASE_END.as_micros());
    // A node that is back has been reached before a closing drive ceases to wait for it.
    assert!(PROBE_PAUSE_MAX.as_millis() < REGAIN_PATIENCE.as_millis());
    // A node that is asked to wait goes on waiting if an answer is lost.
    assert!(2 * CONFIRM_AGAIN.as_millis() < CONFIRM_S as u128 * 1000);
    // A writer that was only slow has renewed its leases, or taken them again, before it counts as gone.
    assert!(LEASE_WAIT.as_millis() > (TTL_S + RENEWAL_S) as u128 * 1000);
    // A writer looks for requests at intervals, and answers by notes.
    let answer_ms = UPKEEP_LOOK.as_millis() + NOTE_TIMEOUT.as_millis();
    assert!(TRIES * NOTE_TIMEOUT.as_millis() <= LEAVE_WAIT.as_millis());
    assert!(TRIES * UPKEEP_LOOK.as_millis() <= NOTICE_WAIT.as_millis());
    assert!(TRIES * answer_ms <= ANSWER_WAIT.as_millis());
    assert!(TRIES * answer_ms <= DRAIN_WORD_WAIT.as_millis());
    assert!(TRIES * answer_ms <= MOVE_WORD_WAIT.as_millis());
    // A part that could not be moved has been tried again before its writer is believed.
    assert!(TRIES * (MOVE_RETRY.as_millis() + TARGET_TIMEOUT.as_millis()) <= DOUBT_WAIT.as_millis());
    // A former node has been asked again to wipe its part.
    assert!(TRIES * UPKEEP_RETRY.as_millis() <= WIPE_WAIT.as_millis());
};
