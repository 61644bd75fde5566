//! What can be done about a source that cannot be used as it was asked for.

use std::borrow::Cow;

use cheetah_error::next::Source;

/// The step as a clause.
pub(super) fn clause(step: &Source) -> Cow<'static, str> {
    match step {
        Source::WriteApart => "to let tools write, keep what they write apart with --overlay memory".into(),
        Source::WriteApartOrFinish => "let tools write with --overlay memory, or finish it first (cheetah load)".into(),
        Source::OpenWritable => "say --writable too".into(),
        Source::ExportKey { profile } => format!("export its key first: eval \"$(aws configure export-credentials --profile {profile} --format env)\"").into(),
        Source::ChooseVolume => "choose one with --partition N, or --volume NAME".into(),
        Source::AcquireOrRepack { name, command } => format!("acquire it to a drive, a raw image or an E01 first (cheetah acquire {name} case.drive), or compress it again in blocks ({command})").into(),
    }
}
