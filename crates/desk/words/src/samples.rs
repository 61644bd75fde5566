//! An example of each next step, for the table in the guide and for the tests.

use cheetah_error::Next;
use cheetah_error::next::{
    Acquisition, Attach, Drive, Files, Layout, Lease, Measure, Node, Room, Seal, Search, Source,
};

/// One of each, in the order of the table.
pub fn all() -> Vec<Next> {
    acquisition()
        .into_iter()
        .map(Next::from)
        .chain(files().into_iter().map(Next::from))
        .chain(source().into_iter().map(Next::from))
        .chain(lease().into_iter().map(Next::from))
        .chain(layout().into_iter().map(Next::from))
        .chain(drive().into_iter().map(Next::from))
        .chain(node().into_iter().map(Next::from))
        .chain(seal().into_iter().map(Next::from))
        .chain(room().into_iter().map(Next::from))
        .chain(attach().into_iter().map(Next::from))
        .chain(measure().into_iter().map(Next::from))
        .chain(search().into_iter().map(Next::from))
        .collect()
}

fn acquisition() -> Vec<Acquisition> {
    vec![
        Acquisition::Resume,
        Acquisition::FreeSpaceAndResume,
        Acquisition::GoOn,
        Acquisition::BeginAgain,
        Acquisition::PutBackOrBeginAgain,
        Acquisition::RemoveAndRunAgain,
        Acquisition::MoveAwayOrBeginAgain,
        Acquisition::RemoveAndBeginAgain,
        Acquisition::ProtectOrBeginAgain,
        Acquisition::ConnectOrBeginAgain,
        Acquisition::ConnectOrVouch,
        Acquisition::RepeatOrBeginAgain,
        Acquisition::RepeatBringingOrBeginAgain,
        Acquisition::RepeatOrAcquireAnew { destination: "DESTINATION".into() },
        Acquisition::FindOutAndBeginAgain,
        Acquisition::DistrustJournal,
        Acquisition::AskWriterOrBeginAgain,
        Acquisition::FinishImage,
        Acquisition::FinishOrAcquireAnew,
        Acquisition::SkipErrors,
        Acquisition::SkipMoreErrors { tolerated: 2 },
        Acquisition::ListenOrConnect,
        Acquisition::NameKey { key: "KEY".into() },
    ]
}

fn files() -> Vec<Files> {
    vec![
        Files::Replace,
        Files::MoveAwayOrReplace,
        Files::MoveAway,
        Files::Overwrite,
        Files::MakeSpace,
        Files::MakeSpaceOrSkip,
        Files::MakeSpaceOrSkipZeros,
    ]
}

fn source() -> Vec<Source> {
    vec![
        Source::WriteApart,
        Source::WriteApartOrFinish,
        Source::OpenWritable,
        Source::ExportKey { profile: "PROFILE".into() },
        Source::ChooseVolume,
        Source::AcquireOrRepack { name: "NAME".into(), command: "bgzip disk.raw".into() },
    ]
}

fn lease() -> Vec<Lease> {
    vec![
        Lease::ForceLease,
        Lease::ForceLeaseIfAlone,
        Lease::BringBackOrForceLease,
        Lease::CloseOrForceLease,
        Lease::CloseOrTakeLease,
        Lease::ShareOrTakeFill,
    ]
}

fn layout() -> Vec<Layout> {
    vec![
        Layout::NameMoreNodes { lost: 2 },
        Layout::ChooseLayout,
        Layout::ChooseLayoutLike,
        Layout::ChooseRedundancy,
        Layout::LeaveOutParts,
        Layout::LeaveOutThin,
        Layout::NameOnce,
        Layout::AddMemory,
    ]
}

fn drive() -> Vec<Drive> {
    vec![
        Drive::Fill { drive: "DRIVE".into() },
        Drive::AwaitFill,
        Drive::FillAgain,
        Drive::Repair,
        Drive::SeeRepair,
        Drive::RepairWritable,
        Drive::RefetchOrRewrite,
        Drive::GoOnRefetching { drive: "DRIVE".into() },
        Drive::SavePartial,
        Drive::Decide { drive: "DRIVE".into(), one: "lab-1".into(), other: "lab-2".into() },
        Drive::LeaveOutKeep,
        Drive::Verify,
        Drive::SeeVerify,
        Drive::SeeDifferences,
        Drive::NameDriveFile,
        Drive::FindDriveFile,
        Drive::DestroyFirst { path: "PATH".into() },
        Drive::OpenReadOnly,
        Drive::BringBackOrReadRest,
        Drive::BringBackOrAllowLost,
        Drive::BringBackOrRepair,
        Drive::SaveImage,
        Drive::DrainDrive { node: "NODE".into(), drive: "DRIVE".into() },
    ]
}

fn node() -> Vec<Node> {
    vec![
        Node::StartAnnouncing,
        Node::CheckNode,
        Node::AskStatus,
        Node::Undrain,
        Node::NameDrive,
        Node::NameDestination,
        Node::GiveHttp,
        Node::OverwriteServer,
    ]
}

fn seal() -> Vec<Seal> {
    vec![
        Seal::NameRecipient,
        Seal::GiveKey {
            identity_variable: "IDENTITY_VARIABLE".into(),
            passphrase_variable: "PASSPHRASE_VARIABLE".into(),
        },
        Seal::AskToShare,
        Seal::ShareOrDestroy,
        Seal::PrintRecipient,
        Seal::MakeIdentity,
        Seal::AcceptUnverified,
        Seal::TakeUnverified,
    ]
}

fn room() -> Vec<Room> {
    vec![
        Room::SayRoom,
        Room::SayRoomOrInsecure,
        Room::StartWithRoom,
        Room::NameMachine,
        Room::StartServing,
        Room::StartServingInviter,
        Room::RemoveDrive { name: "NAME".into() },
        Room::CompareMembers,
        Room::WaitOrInvite,
        Room::SeePending,
        Room::SayRole { role: "ROLE".into() },
        Room::Invite,
        Room::InviteForUses,
        Room::InviteAgain,
        Room::JoinAgain,
        Room::RejoinByInvitation,
        Room::JoinByInvitation,
        Room::InviteOrInit { name: "NAME".into() },
        Room::InviteWithRole { role: "ROLE".into() },
        Room::UseRoom,
        Room::InitOrGoThere { name: "NAME".into() },
        Room::RestoreOrInit,
    ]
}

fn attach() -> Vec<Attach> {
    vec![
        Attach::Unmount { dir: "DIR".into() },
        Attach::OtherDirOrUnmount { dir: "DIR".into() },
        Attach::CloseFiles { dir: "DIR".into() },
        Attach::RootOrMount,
        Attach::LoadNbdOrMount,
        Attach::LoadUblkOrOther,
        Attach::UseNbd,
        Attach::FreeDevice { device: "DEVICE".into() },
        Attach::DetachOne,
        Attach::AllowWrites { device: "DEVICE".into() },
        Attach::UseMount,
        Attach::CutOff,
        Attach::ExportOrGoThere,
    ]
}

fn measure() -> Vec<Measure> {
    vec![Measure::AllowMorePackets, Measure::NameOpenPort, Measure::GiveSectorSize]
}

fn search() -> Vec<Search> {
    vec![
        Search::NameFolder,
        Search::RepeatOrNameFolder,
        Search::AwaitOrNameFolder,
        Search::MakeSet,
        Search::DivideKnown,
    ]
}
