//! What can be done about files that are in the way, or do not fit.

use std::borrow::Cow;

use cheetah_error::next::Files;

/// The step as a clause.
pub(super) fn clause(step: &Files) -> Cow<'static, str> {
    match step {
        Files::Replace => "choose another name, or --force to replace it".into(),
        Files::MoveAwayOrReplace => "move it away, choose another name or use --force".into(),
        Files::MoveAway => "move it away, and run the same command again".into(),
        Files::Overwrite => "use another drive, or --force to overwrite it".into(),
        Files::MakeSpace => "nothing was written: free some space, or choose another place".into(),
        Files::MakeSpaceOrSkip => "nothing was written: free some space, or choose another place, or give --skip-space-check if the source is known to have that much less content".into(),
        Files::MakeSpaceOrSkipZeros => "nothing was written: free some space, or choose another place, or give --skip-space-check if the drive is known to have that much less content than zeros".into(),
    }
}
