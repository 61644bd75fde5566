//! What can be done about an acquisition, and about what it writes.

use std::borrow::Cow;

use cheetah_error::next::Acquisition;

/// The step as a clause.
pub(super) fn clause(step: &Acquisition) -> Cow<'static, str> {
    match step {
        Acquisition::Resume => "run the same command to resume".into(),
        Acquisition::FreeSpaceAndResume => "free some space, and run the same command to resume".into(),
        Acquisition::GoOn => "run the same command to go on".into(),
        Acquisition::BeginAgain => "begin again with --restart".into(),
        Acquisition::PutBackOrBeginAgain => "put it back, or begin again with --restart".into(),
        Acquisition::RemoveAndRunAgain => "remove it, and run the same command again".into(),
        Acquisition::MoveAwayOrBeginAgain => "move it away, and put the partial image back, or begin again with --restart once it is away".into(),
        Acquisition::RemoveAndBeginAgain => "remove it, and begin again with --restart".into(),
        Acquisition::ProtectOrBeginAgain => "protect it again (blockdev --setro), or begin again with --restart".into(),
        Acquisition::ConnectOrBeginAgain => "connect that one again, or begin again with --restart".into(),
        Acquisition::ConnectOrVouch => "connect that one again, or, if you know that it is the same, run the command again with --same-source".into(),
        Acquisition::RepeatOrBeginAgain => "repeat the command it was begun with, or begin again with --restart".into(),
        Acquisition::RepeatBringingOrBeginAgain => "repeat the command that was bringing it in, or begin again with --restart".into(),
        Acquisition::RepeatOrAcquireAnew { destination } => format!("repeat that one, or throw it away and acquire {destination} anew with --restart").into(),
        Acquisition::FindOutAndBeginAgain => "find out why, and begin again with --restart".into(),
        Acquisition::DistrustJournal => "nothing is resumed from it: find out why, and begin again with --restart".into(),
        Acquisition::AskWriterOrBeginAgain => "let the user who began resume, or begin again with --restart".into(),
        Acquisition::FinishImage => "run the same acquire command again to finish it".into(),
        Acquisition::FinishOrAcquireAnew => "run the same acquire command again to finish it, or acquire it anew with --restart".into(),
        Acquisition::SkipErrors => "to skip and record what cannot be read, run the same command with --max-errors N, or unlimited".into(),
        Acquisition::SkipMoreErrors { tolerated } => format!("that is more than --max-errors {tolerated}; to skip and record what cannot be read, run the same command with --max-errors N, or unlimited").into(),
        Acquisition::ListenOrConnect => "give --listen or --connect".into(),
        Acquisition::NameKey { key } => format!("if you know whose it is, name it: --key {key}").into(),
    }
}
