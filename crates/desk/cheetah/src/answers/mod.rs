//! The answers of commands for programs (`--json`): one type for each. Only these can be printed.
//!
//! Fields stand in the order in which they are printed. In this crate's own types, that is alphabetical after `event`.

pub mod access;
pub mod acquire;
pub mod care;
pub mod content;
pub mod create;
pub mod demo;
pub mod doctor;
pub mod failure;
pub mod generate;
pub mod keys;
pub mod node;
pub mod probe;
#[cfg(test)]
mod reference;
pub mod room;
pub mod search;
pub mod verify;
pub mod watch;

use serde::Serialize;

/// A value that `--json` prints on one line.
pub trait Answer: Serialize {}

/// Makes types answers, and lists them for the reference: the name of its schema, the type, the verb that prints it, and
/// when.
macro_rules! answers {
    ($($name:literal: $answer:ty, $verb:literal, $when:literal;)*) => {
        $(impl Answer for $answer {})*

        #[cfg(test)]
        fn all() -> Vec<reference::Entry> {
            use schemars::SchemaGenerator as Generator;
            vec![$(reference::Entry {
                name: $name,
                verb: $verb,
                when: $when,
                schema: Generator::into_root_schema_for::<$answer>,
            },)*]
        }
    };
}

answers! {
    "acquire": acquire::Acquire<'_>, "acquire", "with `--listen`, while it waits for an agent; and at the end";
    "acquire-running": cheetah_acquire::order::AcquireEvent, "acquire", "while it acquires; progress once a second";
    "discard": acquire::Discard, "acquire --discard", "at the end; also `save --discard`";
    "attach": access::Attach<'_>, "attach", "once the block device can be used";
    "create": create::Create<'_>, "create", "at the end";
    "gather": create::Gather<'_>, "create", "with `--wait` or `--gather`, while nodes join; also `enlarge --wait`";
    "custody": verify::Custody<'_>, "custody", "at the end";
    "demo": demo::Demo<'_>, "demo", "at the end";
    "destroy": cheetah_drive::destroy::Destroyed, "destroy", "at the end";
    "detach": access::Detach<'_>, "detach", "at the end";
    "doctor": doctor::Doctor<'_>, "doctor", "at the end";
    "drain": care::Drain<'_>, "drain", "at the end";
    "undrain": care::Undrain<'_>, "drain --undrain", "at the end";
    "recipient": keys::Recipient<'_>, "drive identity", "at the end";
    "identity": keys::Identity<'_>, "drive identity FILE", "at the end";
    "recipients": keys::Recipients<'_>, "drive share", "at the end; also `drive unshare`";
    "enlarge": create::Enlarge<'_>, "enlarge", "at the end";
    "export": access::Export<'_>, "export", "once clients can connect";
    "generate": generate::Text<'_>, "generate", "at the end";
    "man-pages": generate::ManPages<'_>, "generate man --out", "at the end";
    "load": content::Load<'_>, "load", "at the end";
    "fill": content::Fill<'_>, "mount", "when a drive that fills is complete; also `attach`, `export`, and the answer of `load` without a source";
    "mount": access::Mount<'_>, "mount", "once the files can be used";
    "node": node::Node<'_>, "node", "once the memory can be used, and when it is wiped";
    "probe": cheetah_probe::path::PathReport, "probe", "at the end";
    "probe-send": probe::Send<'_>, "probe --send", "after each train, and at the end";
    "rebalance": care::Rebalance<'_>, "rebalance", "at the end";
    "repair": care::Repair<'_>, "repair", "at the end";
    "repair-check": care::Check<'_>, "repair --check", "at the end";
    "repair-from-source": care::Refetch<'_>, "repair --from-source", "at the end, if ranges had to be fetched";
    "repair-keep": care::Keep<'_>, "repair --keep", "at the end";
    "approve": room::Approve<'_>, "room approve", "at the end";
    "boot-image": room::BootImage<'_>, "room boot-image", "at the end";
    "credential": room::Credential<'_>, "room credential", "at the end";
    "drives": room::Drives<'_>, "room drives", "at the end";
    "remove-drive": room::RemoveDrive<'_>, "room drives --remove", "at the end";
    "room-export": room::Export<'_>, "room export", "at the end";
    "init": room::Init<'_>, "room init", "at the end";
    "invite": room::Invite<'_>, "room invite", "at the end";
    "ask": room::Ask<'_>, "room join", "while a machine waits for approval by its code; also `node` and `serve`";
    "join": room::Join<'_>, "room join", "at the end";
    "room-list": room::List<'_>, "room list", "at the end";
    "pending": room::Pending<'_>, "room pending", "at the end";
    "revoke": room::Revoke<'_>, "room revoke", "at the end";
    "room-serve": room::Serve<'_>, "room serve", "once machines can join, and when one joins, waits or is refused";
    "save": content::Save<'_>, "save", "at the end";
    "save-partial": content::SavePartial<'_>, "save --partial", "at the end";
    "search-hit": search::Found, "search", "without `--out`, for each hit";
    "search": search::Search<'_>, "search", "at the end";
    "serve": access::Serve<'_>, "serve", "once the disk can be read";
    "disks": access::Disks, "serve --list", "at the end";
    "status": cheetah_drive::status::DriveStatus, "status", "at the end";
    "unmount": access::Unmount<'_>, "unmount", "at the end";
    "verify-drive": verify::VerifyDrive<'_>, "verify DRIVE", "at the end";
    "verify-triage": verify::VerifyTriage<'_>, "verify FOLDER", "at the end";
    "verify-image": verify::VerifyImage<'_>, "verify IMAGE", "at the end";
    "verify-decrypted": verify::VerifyDecrypted<'_>, "verify --decrypted", "at the end";
    "verify-log": verify::VerifyLog<'_>, "verify LOG", "at the end";
    "watch": watch::Picture, "watch --once", "at the end; with `--terminal`, each time";
    "watch-page": watch::Watch, "watch", "once the page can be opened";
    "failed": failure::Failed<'_>, "each", "as the last value, if the command fails";
}
