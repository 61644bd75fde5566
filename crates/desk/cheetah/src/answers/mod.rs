//! The answers of commands for programs (`--json`): one type for each. Only these can be printed.
//!
//! Fields stand in the order in which they are printed. In this crate's own types, that is alphabetical after `event`.

pub mod access;
pub mod acquire;
pub mod care;
pub mod content;
pub mod create;
pub mod demo;
pub mod failure;
pub mod generate;
pub mod keys;
pub mod node;
pub mod probe;
pub mod room;
pub mod verify;

use serde::Serialize;

/// A value that `--json` prints on one line.
pub trait Answer: Serialize {}

/// Makes types answers.
macro_rules! answers {
    ($($answer:ty,)*) => { $(impl Answer for $answer {})* };
}

answers! {
    access::Attach<'_>,
    access::Detach<'_>,
    access::Export<'_>,
    access::Mount<'_>,
    access::Serve<'_>,
    access::Unmount<'_>,
    acquire::Acquire<'_>,
    acquire::Discard,
    care::Check<'_>,
    care::Drain<'_>,
    care::Keep<'_>,
    care::Rebalance<'_>,
    care::Refetch<'_>,
    care::Repair<'_>,
    care::Undrain<'_>,
    content::Fill<'_>,
    content::Load<'_>,
    content::Save<'_>,
    content::SavePartial<'_>,
    create::Create<'_>,
    create::Enlarge<'_>,
    create::Gather<'_>,
    demo::Demo<'_>,
    failure::Failed<'_>,
    generate::ManPages<'_>,
    generate::Text<'_>,
    keys::Identity<'_>,
    keys::Recipient<'_>,
    keys::Recipients<'_>,
    node::Node<'_>,
    probe::Send<'_>,
    room::Approve<'_>,
    room::Ask<'_>,
    room::BootImage<'_>,
    room::Credential<'_>,
    room::Drives<'_>,
    room::Export<'_>,
    room::Init<'_>,
    room::Invite<'_>,
    room::Join<'_>,
    room::List<'_>,
    room::Pending<'_>,
    room::RemoveDrive<'_>,
    room::Revoke<'_>,
    room::Serve<'_>,
    verify::Custody<'_>,
    verify::VerifyDrive<'_>,
    verify::VerifyImage<'_>,
    verify::VerifyLog<'_>,
    verify::VerifyTriage<'_>,
    cheetah_acquire::acquire::AcquireEvent,
    cheetah_drive::destroy::Destroyed,
    cheetah_drive::status::DriveStatus,
    cheetah_probe::path::PathReport,
}
