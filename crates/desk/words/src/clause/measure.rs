//! What can be done about a measurement.

use std::borrow::Cow;

use cheetah_error::next::Measure;

/// The step as a clause.
pub(super) fn clause(step: &Measure) -> Cow<'static, str> {
    match step {
        Measure::AllowMorePackets => "allow more with --packets-max".into(),
        Measure::NameOpenPort => "name an open port with --port".into(),
        Measure::GiveSectorSize => "--sector-size decides".into(),
    }
}
