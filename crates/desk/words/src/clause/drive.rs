//! What can be done about a drive.

use std::borrow::Cow;

use cheetah_error::next::Drive;

/// The step as a clause.
pub(super) fn clause(step: &Drive) -> Cow<'static, str> {
    match step {
        Drive::Fill { drive } => format!("mount or export it, which fills it, or fill it now with `cheetah load {drive}.drive`").into(),
        Drive::AwaitFill => "`cheetah status` says how far it is, and `cheetah load` without an image finishes it".into(),
        Drive::FillAgain => "finish the drive with `cheetah load`, and have the nodes' memory tested".into(),
        Drive::Repair => "run cheetah repair".into(),
        Drive::SeeRepair => "see cheetah repair".into(),
        Drive::RepairWritable => "make it writable, then run cheetah repair".into(),
        Drive::RefetchOrRewrite => "rewrite it, or run cheetah repair --from-source".into(),
        Drive::GoOnRefetching { drive } => format!("if no process does so any more, go on with `cheetah repair {drive}.drive --from-source`").into(),
        Drive::SavePartial => "save the rest with `cheetah save --partial`".into(),
        Drive::Decide { drive, one, other } => format!("it is not used until you decide: `cheetah repair {drive}.drive --keep {one}` or `--keep {other}` keeps the content of that side, and overwrites the other's").into(),
        Drive::LeaveOutKeep => "leave out --keep".into(),
        Drive::Verify => "`cheetah verify` compares its image with the digests made at load".into(),
        Drive::SeeVerify => "see cheetah verify".into(),
        Drive::SeeDifferences => "`cheetah verify` names each range that differs".into(),
        Drive::NameDriveFile => "name the file that `cheetah create` wrote".into(),
        Drive::FindDriveFile => "get it from its examiner, or name the drive by its room, as in lab:case42; `cheetah create` makes a new one".into(),
        Drive::DestroyFirst { path } => format!("choose another name, or `cheetah destroy {path}` first").into(),
        Drive::OpenReadOnly => "open it without --writable".into(),
        Drive::BringBackOrReadRest => "bring them back, or read the rest with `mount --allow-lost`, `export --allow-lost` or `save --partial`".into(),
        Drive::BringBackOrAllowLost => "bring the others back, or read what there is with --allow-lost".into(),
        Drive::BringBackOrRepair => "bring it back, or see `cheetah repair`".into(),
        Drive::SaveImage => "save its image (cheetah save)".into(),
        Drive::DrainDrive { node, drive } => format!("cheetah drain {node} --drive {drive} does").into(),
    }
}
