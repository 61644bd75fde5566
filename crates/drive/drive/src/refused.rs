//! Why an operation on a drive is refused.

use std::path::PathBuf;

use cheetah_device::Size;
use cheetah_error::{Error, Kind, list};

/// Why an operation on a drive is refused. It is the cause of the operation's error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Others have the drive open.
    #[error("{drive} is in use: {users}; unmount and close it everywhere first", users = list(.users))]
    InUse {
        /// The name of the drive.
        drive: String,
        /// The use of each node's part, a clause each.
        users: Vec<String>,
    },
    /// An image does not fit on the drive.
    #[error(
        "{image} has {size}, {drive} only {has}; enlarge the drive or create one from the image", size = Size(*.image_bytes),
        has = Size(*.drive_bytes)
    )]
    TooLarge {
        /// The name of the image.
        image: String,
        /// Its size.
        image_bytes: u64,
        /// The name of the drive.
        drive: String,
        /// Its size.
        drive_bytes: u64,
    },
    /// The drive file is not as it was read.
    #[error("{drive} was enlarged or changed by another process meanwhile; try again")]
    Changed {
        /// The name of the drive.
        drive: String,
    },
    /// The drive file has several names, and a change would replace the file of one of them.
    #[error(
        "{path} has {names} names (hard links), and a change would reach only one of them; remove the other names, which \
         `find DIRECTORY -samefile {path}` lists, and use symbolic links instead", path = .path.display()
    )]
    SeveralNames {
        /// The name that was used.
        path: PathBuf,
        /// Their number.
        names: u64,
    },
    /// A node is lost, and no other one was named for its place.
    #[error("{lost} is to be replaced by a node with {} of free memory, and there is no spare", Size(*.bytes))]
    NoSpare {
        /// The lost node.
        lost: String,
        /// The free memory that its replacement needs.
        bytes: u64,
    },
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Self::caused(Kind::Failed, refused)
    }
}
