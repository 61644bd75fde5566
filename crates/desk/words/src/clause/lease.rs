//! What can be done if another process has the right to write to a drive, or to fill it.

use std::borrow::Cow;

use cheetah_error::next::Lease;

/// The step as a clause.
pub(super) fn clause(step: &Lease) -> Cow<'static, str> {
    match step {
        Lease::ForceLease => "wait for it to end, open the drive read-only, or take it over with --force-lease".into(),
        Lease::ForceLeaseIfAlone => "use --force-lease if you know that none does".into(),
        Lease::BringBackOrForceLease => {
            "bring nodes back, or use --force-lease if you know that nobody writes to it".into()
        }
        Lease::CloseOrForceLease => "close the drive there first, or use --force-lease".into(),
        Lease::CloseOrTakeLease => {
            "close the drive there, or take the lease from that process with --force-lease".into()
        }
        Lease::ShareOrTakeFill => {
            "share it from there with `cheetah export`, or take the fill over with --force-lease".into()
        }
    }
}
