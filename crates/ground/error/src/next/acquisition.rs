//! What can be done about an acquisition, and about what it writes.

use serde::{Deserialize, Serialize};

/// What can be done about an acquisition, and about what it writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Acquisition {
    /// The same command goes on where it stopped.
    Resume,
    /// The disk is full.
    FreeSpaceAndResume,
    /// The same command goes on once the source is back.
    GoOn,
    /// The acquisition can only be begun anew.
    BeginAgain,
    /// A file that was begun is missing.
    PutBackOrBeginAgain,
    /// Something is in the way of the image.
    RemoveAndRunAgain,
    /// Another file has the name of a partial image.
    MoveAwayOrBeginAgain,
    /// An object in the store is not what was written.
    RemoveAndBeginAgain,
    /// The source was write-protected, and is not any more.
    ProtectOrBeginAgain,
    /// Another source is connected than the one that was begun with.
    ConnectOrBeginAgain,
    /// The source may be another one than the one that was begun with.
    ConnectOrVouch,
    /// The command is not the one with which the acquisition was begun.
    RepeatOrBeginAgain,
    /// The drive holds part of an image.
    RepeatBringingOrBeginAgain,
    /// A partial image of another command is in the way.
    RepeatOrAcquireAnew {
        /// The destination.
        destination: String,
    },
    /// A file was exchanged.
    FindOutAndBeginAgain,
    /// The journal is not the one that the custody log vouches for.
    DistrustJournal,
    /// Another user may have written the journal.
    AskWriterOrBeginAgain,
    /// The file is a part of an image that is being acquired.
    FinishImage,
    /// The same, and the journal of the acquisition is gone.
    FinishOrAcquireAnew,
    /// The source has bytes that cannot be read.
    SkipErrors,
    /// The same, and more of them than were allowed.
    SkipMoreErrors {
        /// How many bad ranges were allowed.
        tolerated: u64,
    },
    /// An agent waits for nobody, and calls nobody.
    ListenOrConnect,
    /// A custody log is signed with a key that was not named.
    NameKey {
        /// The public key.
        key: String,
    },
}
