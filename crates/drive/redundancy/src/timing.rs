//! The times of reads and writes when members are late or lost, and the relations between these times. That readers see no
//! overwritten content, and that requests end soon, rests on the relations, so they are asserted.

use std::time::Duration;

use cheetah_device::reconnect;

/// How long a reader may read after the beginning of a look at the map ([`read_lease`](crate::read_lease)).
pub const READ_LEASE: Duration = Duration::from_millis(250);
/// How long a writer waits for the end of every reader's lease.
pub const READ_LEASE_END: Duration = Duration::from_millis(275);
/// The pause between looks while there are reads.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// The pause while there are none, and the longest after a look that failed.
pub(crate) const IDLE_PAUSE: Duration = Duration::from_secs(1);

/// A read that takes longer than this is answered by the other members. Far above what a busy network takes, far below
/// what a tool would call a stall.
pub(crate) const HEDGE_AFTER: Duration = Duration::from_millis(200);
/// A member that has been silent for longer while it owes the answer to a write has missed the write.
pub(crate) const SILENCE_MAX: Duration = Duration::from_millis(400);
/// The interval of checks for silence.
pub(crate) const SILENCE_CHECK: Duration = Duration::from_millis(40);
/// The number of consecutive checks that must find silence: after this process was frozen, the first one finds its own.
pub(crate) const SILENT_CHECKS: u32 = 3;
/// How long a write may take that a member misses.
const WRITE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a member may be silent that owes the answer to a probe. A member that is merely slow is kept.
pub(crate) const PROBE_SILENCE_MAX: Duration = Duration::from_secs(1);
/// How long a member may be silent if the reader has no other member to ask.
pub(crate) const READ_SILENCE_MAX: Duration = Duration::from_secs(10);

/// The shortest pause between attempts to reach a member that was late or lost.
pub(crate) const PROBE_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between these attempts.
pub const PROBE_PAUSE_MAX: Duration = PROBE_PAUSE.saturating_add(reconnect::PAUSE_MAX);
/// After the loss of a member, reads wait this long for members that were lost before and may be back.
pub(crate) const RETURN_PATIENCE: Duration = Duration::from_secs(5);
/// The pause before members that may return are asked again.
pub(crate) const RETURN_PAUSE: Duration = Duration::from_millis(50);
/// The pause between attempts to find out whether a member's process has ended.
pub(crate) const GONE_PAUSE: Duration = Duration::from_millis(20);

const _: () = {
    // Clocks run at slightly different rates, by far less than a tenth.
    assert!(11 * READ_LEASE.as_micros() <= 10 * READ_LEASE_END.as_micros());
    // Two looks fit into a lease, so that reads go on if one of them is late.
    assert!(2 * LOOK_PAUSE.as_micros() <= READ_LEASE.as_micros());
    assert!(LOOK_PAUSE.as_micros() < IDLE_PAUSE.as_micros());
    // A late read is answered by others before its member is given up.
    assert!(HEDGE_AFTER.as_micros() < SILENCE_MAX.as_micros());
    // A write that a member misses waits until the silence is certain, and then for the end of readers' leases.
    let silence = SILENCE_MAX.as_micros() + SILENT_CHECKS as u128 * SILENCE_CHECK.as_micros();
    assert!(silence + READ_LEASE_END.as_micros() <= WRITE_PAUSE_MAX.as_micros());
    // The less a silent member costs, the longer it may be silent.
    assert!(SILENCE_MAX.as_micros() < PROBE_SILENCE_MAX.as_micros());
    assert!(PROBE_SILENCE_MAX.as_micros() < READ_SILENCE_MAX.as_micros());
    // A member that is back has been reached before reads cease to wait for it.
    assert!(PROBE_PAUSE_MAX.as_micros() < RETURN_PATIENCE.as_micros());
    assert!(RETURN_PAUSE.as_micros() < RETURN_PATIENCE.as_micros());
    // A writer asks more than once whether a process has ended before it has waited out the leases.
    assert!(2 * GONE_PAUSE.as_micros() < READ_LEASE_END.as_micros());
};
